/* One step of a five-point stencil on H x W floats; the border is copied.

     TX, TY    the tile
     RY        rows that are computed together
     XU        turns of the innermost loop written out
     ORDER     0: tiles of a row first; 1: tiles of a column first
     SIMD      0: as the compiler likes; 1: told that turns are independent; 2: told to make vectors */

#include <string.h>

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_TX, knob_TY, knob_ORDER;

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#if SIMD == 0
#define VECTORS
#elif SIMD == 1
#define VECTORS PRAGMA(GCC ivdep)
#else
#define VECTORS PRAGMA(omp simd)
#endif

static inline __attribute__((always_inline)) void rows(const float *in, float *out, int y, int count, int x0, int x1)
{
#if SIMD
    VECTORS
#else
    TIMES(XU)
#endif
    for (int x = x0; x < x1; x++)
        TIMES(8) for (int r = 0; r < count; r++) {
            const float *p = in + (y + r) * W + x;
            out[(y + r) * W + x] = 0.5f * p[0] + 0.125f * (p[-1] + p[1] + p[-W] + p[W]);
        }
}

static void tile(const float *in, float *out, int y0, int x0)
{
    int y1 = MIN(y0 + TY, H - 1), x1 = MIN(x0 + TX, W - 1), y = y0;
    for (; y + RY <= y1; y += RY)
        rows(in, out, y, RY, x0, x1);
    for (; y < y1; y++)
        rows(in, out, y, 1, x0, x1);
}

void stencil2d(const float *restrict in, float *restrict out)
{
    memcpy(out, in, sizeof(float) * W);
    memcpy(out + (H - 1) * W, in + (H - 1) * W, sizeof(float) * W);
    for (int y = 1; y < H - 1; y++)
        out[y * W] = in[y * W], out[y * W + W - 1] = in[y * W + W - 1];
    if (ORDER == 0) {
        for (int y = 1; y < H - 1; y += TY)
            for (int x = 1; x < W - 1; x += TX)
                tile(in, out, y, x);
    } else {
        for (int x = 1; x < W - 1; x += TX)
            for (int y = 1; y < H - 1; y += TY)
                tile(in, out, y, x);
    }
}
