/* A 3 x 3 convolution of C channels of IH x IW floats to K channels of H x W, without padding. One build serves every
   size: IH = H + 2, IW = W + 2.

     VW      floats in a vector
     KB      channels of the result that are computed together
     WB      vectors of a row that are computed together
     CB      channels of the input that are summed before the next tile; 0: all of them
     ORDER   0: rows outermost; 1: channels of the result outermost */

#include <stdint.h>

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define INLINE static inline __attribute__((always_inline))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define ALL TIMES(32)

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));

typedef struct { const float *in, *weights; float *out; int64_t c, ih, iw, k, h, w; } sizes;

INLINE void tile(sizes s, int kb, int wb, int64_t k, int64_t y, int64_t x, int64_t from, int64_t to)
{
    vec sum[KB][WB];
    ALL for (int i = 0; i < kb; i++)
        ALL for (int j = 0; j < wb; j++)
            sum[i][j] = from ? *(vec *)(s.out + ((k + i) * s.h + y) * s.w + x + j * VW) : (vec){0};
    for (int64_t c = from; c < to; c++)
        for (int t = 0; t < 9; t++) {
            const float *row = s.in + (c * s.ih + y + t / 3) * s.iw + x + t % 3;
            ALL for (int i = 0; i < kb; i++) {
                float weight = s.weights[((k + i) * s.c + c) * 9 + t];
                ALL for (int j = 0; j < wb; j++)
                    sum[i][j] += weight * *(vec *)(row + j * VW);
            }
        }
    ALL for (int i = 0; i < kb; i++)
        ALL for (int j = 0; j < wb; j++)
            *(vec *)(s.out + ((k + i) * s.h + y) * s.w + x + j * VW) = sum[i][j];
}

INLINE void row(sizes s, int kb, int64_t k, int64_t y, int64_t from, int64_t to)
{
    int64_t x = 0;
    for (; x + WB * VW <= s.w; x += WB * VW)
        tile(s, kb, WB, k, y, x, from, to);
    for (; x + VW <= s.w; x += VW)
        tile(s, kb, 1, k, y, x, from, to);
    for (; x < s.w; x++)
        for (int i = 0; i < kb; i++) {
            float *out = s.out + ((k + i) * s.h + y) * s.w + x, sum = from ? *out : 0;
            for (int64_t c = from; c < to; c++)
                for (int t = 0; t < 9; t++)
                    sum += s.weights[((k + i) * s.c + c) * 9 + t] * s.in[(c * s.ih + y + t / 3) * s.iw + x + t % 3];
            *out = sum;
        }
}

static void rows(sizes s, int64_t k, int64_t y, int64_t from, int64_t to)
{
    if (k + KB <= s.k)
        row(s, KB, k, y, from, to);
    else
        for (int64_t i = k; i < s.k; i++)
            row(s, 1, i, y, from, to);
}

void direct(const float *in, const float *weights, float *out, int64_t c, int64_t ih, int64_t iw, int64_t k, int64_t h,
            int64_t w)
{
    sizes s = {in, weights, out, c, ih, iw, k, h, w};
    int64_t step = CB ? CB : c;
    for (int64_t from = 0; from < c; from += step) {
        int64_t to = MIN(c, from + step);
        if (ORDER == 0) {
            for (int64_t y = 0; y < h; y++)
                for (int64_t i = 0; i < k; i += KB)
                    rows(s, i, y, from, to);
        } else {
            for (int64_t i = 0; i < k; i += KB)
                for (int64_t y = 0; y < h; y++)
                    rows(s, i, y, from, to);
        }
    }
}
