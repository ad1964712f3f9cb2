/* The accelerations of N bodies by each other, with a softened distance; positions and masses lie four by four.

     TI, TJ   bodies that are computed together; bodies whose pull is added before the next
     SPLIT    0: positions as they lie; 1: copied into one array for each coordinate
     ROOT     0: one over the square root; 1: an approximation and one step of Newton's
     UNROLL   turns of the innermost loop written out
     SUMS     sums that run side by side */

#include <math.h>
#include <string.h>
#if ROOT
#include <immintrin.h>
#endif

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_TI, knob_TJ;

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define SOFT 1e-2f

static float xs[N], ys[N], zs[N], ms[N];

static inline float inverse_root(float value)
{
#if ROOT
    float guess = _mm_cvtss_f32(_mm_rsqrt_ss(_mm_set_ss(value)));
    return guess * (1.5f - 0.5f * value * guess * guess);
#else
    return 1.0f / sqrtf(value);
#endif
}

#if SPLIT
#define X(j) xs[j]
#define Y(j) ys[j]
#define Z(j) zs[j]
#define M(j) ms[j]
#else
#define X(j) bodies[4 * (j)]
#define Y(j) bodies[4 * (j) + 1]
#define Z(j) bodies[4 * (j) + 2]
#define M(j) bodies[4 * (j) + 3]
#endif

static void pull(const float *restrict bodies, float *restrict out, int i0, int j0)
{
    (void)bodies;
    for (int i = i0; i < i0 + TI; i++) {
        float ax[SUMS] = {0}, ay[SUMS] = {0}, az[SUMS] = {0};
        float x = X(i), y = Y(i), z = Z(i);
        TIMES(UNROLL) for (int j = j0; j < j0 + TJ; j += SUMS)
            TIMES(16) for (int s = 0; s < SUMS; s++) {
                float dx = X(j + s) - x, dy = Y(j + s) - y, dz = Z(j + s) - z;
                float root = inverse_root(dx * dx + dy * dy + dz * dz + SOFT);
                float force = M(j + s) * root * root * root;
                ax[s] += force * dx, ay[s] += force * dy, az[s] += force * dz;
            }
        TIMES(16) for (int s = 0; s < SUMS; s++)
            out[3 * i] += ax[s], out[3 * i + 1] += ay[s], out[3 * i + 2] += az[s];
    }
}

void nbody(const float *restrict bodies, float *restrict out)
{
    memset(out, 0, sizeof(float) * 3 * N);
    if (SPLIT)
        for (int i = 0; i < N; i++)
            xs[i] = bodies[4 * i], ys[i] = bodies[4 * i + 1], zs[i] = bodies[4 * i + 2], ms[i] = bodies[4 * i + 3];
    for (int j = 0; j < N; j += TJ)
        for (int i = 0; i < N; i += TI)
            pull(bodies, out, i, j);
}
