/* STEPS steps of a three-point stencil on N floats with a fixed border, blocked in time.

     BLOCK   elements of a block
     DEPTH   steps that are done in a block before the next one, on a copy with a margin
     XU      turns of the innermost loop written out
     PAIR    steps that are fused into one: 1, or 2 with five points
     PLACE   0: two buffers by turns; 1: one buffer, the last values kept in registers */

#include <string.h>

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_BLOCK, knob_DEPTH;

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define A 0.25f
#define B 0.5f

static float first[N], second[N], left[N + 64], right[N + 64];

/* One step of `count` elements; those at the ends of the whole array stay as they are. */
static inline void step(const float *restrict in, float *restrict out, int from, int to)
{
    TIMES(XU) for (int x = from; x < to; x++)
        out[x] = B * in[x] + A * (in[x - 1] + in[x + 1]);
}

static inline void step_in_place(float *data, int from, int to)
{
    float before = data[from - 1];
    TIMES(XU) for (int x = from; x < to; x++) {
        float here = data[x];
        data[x] = B * here + A * (before + data[x + 1]);
        before = here;
    }
}

static inline void two_steps(const float *restrict in, float *restrict out, int from, int to)
{
    TIMES(XU) for (int x = from; x < to; x++)
        out[x] = (B * B + 2 * A * A) * in[x] + 2 * A * B * (in[x - 1] + in[x + 1]) + A * A * (in[x - 2] + in[x + 2]);
}

/* `steps` steps of the block that begins at `start`. */
static void block(const float *in, float *out, int start, int steps)
{
    int end = MIN(start + BLOCK, N), low = MAX(start - steps, 0), high = MIN(end + steps, N), size = high - low;
    float *a = left + 2, *b = right + 2;
    memcpy(a, in + low, sizeof(float) * size);
    if (!PLACE)
        memcpy(b, a, sizeof(float) * size);
    int done = 0;
    while (done < steps) {
        int from = low ? done + 1 : 1, to = high < N ? size - done - 1 : size - 1;
        int inside = low && high < N;
        if (PLACE) {
            step_in_place(a, from, to);
            done++;
            continue;
        }
        if (PAIR == 2 && inside && done + 2 <= steps) {
            two_steps(a, b, from + 1, to - 1);
            done += 2;
        } else {
            step(a, b, from, to);
            done++;
        }
        float *c = a;
        a = b, b = c;
    }
    memcpy(out + start, a + (start - low), sizeof(float) * (end - start));
}

void heat(const float *in, float *out)
{
    const float *from = in;
    for (int done = 0; done < STEPS; done += DEPTH) {
        int steps = MIN(DEPTH, STEPS - done);
        float *to = done + DEPTH >= STEPS ? out : from == first ? second : first;
        for (int start = 0; start < N; start += BLOCK)
            block(from, to, start, steps);
        from = to;
    }
}
