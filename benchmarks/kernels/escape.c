/* For N points: how many turns of z = z^2 + c are made, at most MOST, before z is farther than 2 from 0; in numbers of
   which FRACTION bits are behind the point.

     METHOD   0: one point after the other; 1: some at once until all are done; 2: a point that is done makes room
     LANES    points at once
     CHECK    turns between two looks at which are done
     CYCLE    1: a point that comes back to where it was is done
     CHOOSE   what is far away stays: 0 by comparisons, 1 by masks
     UNROLL   turns of the loop over points written out */

#include <stdint.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define FAR (4 << FRACTION)

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_CHECK;

struct points {
    int32_t x[LANES], y[LANES], a[LANES], b[LANES], count[LANES], old_x[LANES], old_y[LANES], same[LANES];
};

static inline __attribute__((always_inline)) void turn(struct points *p, int i)
{
    int32_t x = p->x[i], y = p->y[i], xx = x * x >> FRACTION, yy = y * y >> FRACTION;
    int32_t new_x = xx - yy + p->a[i], new_y = (x * y >> (FRACTION - 1)) + p->b[i];
#if CHOOSE
    int32_t near = -(xx + yy <= FAR);
    p->x[i] = (new_x & near) | (x & ~near);
    p->y[i] = (new_y & near) | (y & ~near);
    p->count[i] -= near;
#else
    int near = xx + yy <= FAR;
    p->x[i] = near ? new_x : x;
    p->y[i] = near ? new_y : y;
    p->count[i] += near;
#endif
#if CYCLE
    p->same[i] |= (p->x[i] == p->old_x[i]) & (p->y[i] == p->old_y[i]);
#endif
}

static inline __attribute__((always_inline)) void start(struct points *p, int i, int32_t a, int32_t b)
{
    p->x[i] = p->y[i] = p->count[i] = p->same[i] = 0;
    p->old_x[i] = p->old_y[i] = 1 << 30;
    p->a[i] = a, p->b[i] = b;
}

/* Whether a point is done, after `turns` turns; if it goes on, where it is is remembered. */
static inline __attribute__((always_inline)) int done(struct points *p, int i, int turns)
{
    if (p->count[i] >= MOST || p->count[i] < turns)
        return 1;
#if CYCLE
    if (p->same[i]) {
        p->count[i] = MOST;
        return 1;
    }
    if (!(turns / CHECK & (turns / CHECK - 1)))
        p->old_x[i] = p->x[i], p->old_y[i] = p->y[i];
#endif
    return 0;
}

static void turns_of_all(struct points *p)
{
    for (int step = 0; step < CHECK; step++)
        TIMES(UNROLL) for (int i = 0; i < LANES; i++)
            turn(p, i);
}

static int32_t kept(const struct points *p, int i)
{
    return p->count[i] < MOST ? p->count[i] : MOST;
}

void escape(const int32_t *a, const int32_t *b, int32_t *out)
{
    struct points p;
#if METHOD < 2
    for (int first = 0; first < N; first += LANES) {
        for (int i = 0; i < LANES; i++)
            start(&p, i, a[first + i], b[first + i]);
        for (int turns = CHECK, going = LANES; going; turns += CHECK) {
            turns_of_all(&p);
            going = 0;
            for (int i = 0; i < LANES; i++)
                going += !done(&p, i, turns);
        }
        for (int i = 0; i < LANES; i++)
            out[first + i] = kept(&p, i);
    }
#else
    int place[LANES], turns[LANES], next = LANES, left = N;
    for (int i = 0; i < LANES; i++) {
        start(&p, i, a[i], b[i]);
        place[i] = i, turns[i] = 0;
    }
    while (left) {
        turns_of_all(&p);
        for (int i = 0; i < LANES; i++) {
            if (place[i] < 0 || !done(&p, i, turns[i] += CHECK))
                continue;
            out[place[i]] = kept(&p, i), left--;
            place[i] = next < N ? next : -1, turns[i] = 0;
            start(&p, i, a[next % N], b[next % N]);
            next++;
        }
    }
#endif
}
