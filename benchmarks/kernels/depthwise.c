/* Each of C rows of W floats, filtered by TAPS weights of its own: a depthwise convolution without padding.

     VW      floats in a vector
     WB      vectors of the result that are held in registers
     TU      taps that are multiplied before the next step
     ORDER   0: blocks of a row outermost; 1: blocks of taps, which add to the result
     TAIL    results that fill no vector: 0 one by one; 1 in a vector that ends with the last result */

#include <stdint.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define ALL TIMES(32)
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));

typedef struct { const float *in, *weights; float *out; int64_t w; } row;

INLINE void taps(row r, vec *sum, int wb, int64_t x, int64_t t, int count)
{
    ALL for (int u = 0; u < count; u++)
        ALL for (int j = 0; j < wb; j++)
            sum[j] += *(const vec *)(r.in + x + j * VW + t + u) * r.weights[t + u];
}

INLINE void block(row r, int wb, int64_t x, int64_t t, int64_t to, int first)
{
    vec sum[WB];
    ALL for (int j = 0; j < wb; j++)
        sum[j] = first ? (vec){0} : *(vec *)(r.out + x + j * VW);
    for (; t + TU <= to; t += TU)
        taps(r, sum, wb, x, t, TU);
    for (; t < to; t++)
        taps(r, sum, wb, x, t, 1);
    ALL for (int j = 0; j < wb; j++)
        *(vec *)(r.out + x + j * VW) = sum[j];
}

static void singly(row r, int64_t x, int64_t t, int64_t to, int first)
{
    for (; x < r.w; x++) {
        float sum = first ? 0 : r.out[x];
        for (int64_t u = t; u < to; u++)
            sum += r.in[x + u] * r.weights[u];
        r.out[x] = sum;
    }
}

static void filter(row r, int64_t t, int64_t to, int first)
{
    int64_t x = 0;
    for (; x + WB * VW <= r.w; x += WB * VW)
        block(r, WB, x, t, to, first);
    for (; x + VW <= r.w; x += VW)
        block(r, 1, x, t, to, first);
    if (x == r.w)
        return;
    if (TAIL && ORDER == 0 && r.w >= VW)
        block(r, 1, r.w - VW, t, to, first);
    else
        singly(r, x, t, to, first);
}

void depthwise(const float *in, const float *weights, float *out, int64_t c, int64_t padded, int64_t count, int64_t w)
{
    for (int64_t i = 0; i < c; i++) {
        row r = {in + i * padded, weights + i * count, out + i * w, w};
        if (ORDER == 0)
            filter(r, 0, count, 1);
        else
            for (int64_t t = 0; t < count; t += TU)
                filter(r, t, t + TU < count ? t + TU : count, t == 0);
    }
}
