/* A 3 x 3 convolution of C channels of H x W floats to K channels, without padding.

     KB      channels of the result that are computed together
     WB      pixels of a row that are computed together
     CB      channels of the input that are summed before the next tile
     ORDER   0: rows outermost; 1: channels of the result outermost
     PACK    0: weights as they lie; 1: copied so that those of KB channels are neighbors
     TAPS    0: the nine weights in loops; 1: written out */

#include <stdint.h>
#include <string.h>

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_CB, knob_ORDER;

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#if TAPS
#define NINE TIMES(9)
#else
#define NINE TIMES(1)
#endif
#if KB * WB > 256
#error "the sums need more than the registers"
#endif

static float packed[K * C * 9];

static inline float weight(const float *weights, int k, int kk, int c, int t)
{
    return PACK ? packed[((k / KB * C + c) * 9 + t) * KB + kk] : weights[((k + kk) * C + c) * 9 + t];
}

static void tile(const float *restrict in, const float *restrict weights, float *restrict out, int k, int y, int c0)
{
    for (int x = 0; x < OW; x += WB) {
        float sum[KB][WB];
        TIMES(16) for (int kk = 0; kk < KB; kk++)
            TIMES(64) for (int i = 0; i < WB; i++)
                sum[kk][i] = c0 ? out[((k + kk) * OH + y) * OW + x + i] : 0;
        for (int c = c0; c < c0 + CB; c++)
            NINE for (int t = 0; t < 9; t++) {
                const float *from = in + (c * H + y + t / 3) * W + x + t % 3;
                TIMES(16) for (int kk = 0; kk < KB; kk++) {
                    float w = weight(weights, k, kk, c, t);
                    TIMES(64) for (int i = 0; i < WB; i++)
                        sum[kk][i] += w * from[i];
                }
            }
        TIMES(16) for (int kk = 0; kk < KB; kk++)
            TIMES(64) for (int i = 0; i < WB; i++)
                out[((k + kk) * OH + y) * OW + x + i] = sum[kk][i];
    }
}

void channels(const float *in, const float *weights, float *out)
{
    if (PACK)
        for (int k = 0; k < K; k++)
            for (int c = 0; c < C; c++)
                for (int t = 0; t < 9; t++)
                    packed[((k / KB * C + c) * 9 + t) * KB + k % KB] = weights[(k * C + c) * 9 + t];
    for (int c = 0; c < C; c += CB)
        if (ORDER == 0) {
            for (int y = 0; y < OH; y++)
                for (int k = 0; k < K; k += KB)
                    tile(in, weights, out, k, y, c);
        } else {
            for (int k = 0; k < K; k += KB)
                for (int y = 0; y < OH; y++)
                    tile(in, weights, out, k, y, c);
        }
}
