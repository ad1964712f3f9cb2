/* A picture of H x W floats convolved with 5 x 5 weights; the input has a margin of two pixels on each side.

   The compiler makes the vectors, so its flags are knobs as well. The others are macros:

     TX, TY  the tile: pixels across and down that are done before the next tile
     RY      rows of the result that are computed together, and share what they read
     FUSE    how many of the 25 weights are applied in one pass over a row
     XU      turns of the innermost loop written out
     COPY    whether a tile's input is copied aside first */

#include <stdint.h>
#include <string.h>

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define INLINE static inline __attribute__((always_inline))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

enum { SIDE = 5, TAPS = SIDE * SIDE, EDGE = SIDE - 1 };

#if COPY && (TX + 4) * (TY + 4) * 4 > 24576
#error "the copy of a tile takes more than half of the first-level cache"
#endif

/* One pass over `cols` pixels of `rows` rows: FUSE weights, beginning with number `first`. */
INLINE void pass(const float *restrict in, int64_t pitch, const float *weights, float *restrict out, int64_t w,
                 int rows, int cols, int first)
{
    float weight[FUSE];
    const float *from[FUSE];
    TIMES(25) for (int t = 0; t < FUSE; t++) {
        weight[t] = weights[first + t];
        from[t] = in + (first + t) / SIDE * pitch + (first + t) % SIDE;
    }
    TIMES(XU) for (int x = 0; x < cols; x++)
        TIMES(4) for (int y = 0; y < rows; y++) {
            float sum = first ? out[y * w + x] : 0;
            TIMES(25) for (int t = 0; t < FUSE; t++)
                sum += weight[t] * from[t][y * pitch + x];
            out[y * w + x] = sum;
        }
}

INLINE void passes(const float *in, int64_t pitch, const float *weights, float *out, int64_t w, int rows, int cols)
{
    pass(in, pitch, weights, out, w, rows, cols, 0);
    TIMES(1) for (int first = FUSE; first < TAPS; first += FUSE)
        pass(in, pitch, weights, out, w, rows, cols, first);
}

static void tile(const float *in, int64_t pitch, const float *weights, float *out, int64_t w, int rows, int cols)
{
    float aside[COPY ? (TY + EDGE) * (TX + EDGE) : 1] __attribute__((aligned(64)));
    if (COPY) {
        for (int y = 0; y < rows + EDGE; y++)
            memcpy(aside + y * (TX + EDGE), in + y * pitch, sizeof(float) * (cols + EDGE));
        in = aside, pitch = TX + EDGE;
    }
    int y = 0;
    for (; y + RY <= rows; y += RY)
        passes(in + y * pitch, pitch, weights, out + y * w, w, RY, cols);
    if (RY > 1)
        for (; y < rows; y++)
            passes(in + y * pitch, pitch, weights, out + y * w, w, 1, cols);
}

void conv(const float *in, const float *weights, float *out, int64_t ih, int64_t iw, int64_t h, int64_t w)
{
    for (int64_t y = 0; y < h; y += TY)
        for (int64_t x = 0; x < w; x += TX)
            tile(in + y * iw + x, iw, weights, out + y * w + x, w, MIN(TY, h - y), MIN(TX, w - x));
}
