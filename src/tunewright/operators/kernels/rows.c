/* out = the sums of the rows of x: CHAINS sums of vectors of VW, which do not wait for each other. */
#include <stdint.h>

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));
enum { STEP = CHAINS * VW };

void reduce(const float *restrict x, float *restrict out)
{
    for (int64_t i = 0; i < M; i++) {
        vec sum[CHAINS] = {0};
        int64_t j = 0;
        for (; j + STEP <= N; j += STEP)
#pragma GCC unroll 8
            for (int c = 0; c < CHAINS; c++) sum[c] += *(const vec *)(x + i * N + j + c * VW);
        float whole = 0;
        for (int c = 0; c < CHAINS; c++)
            for (int l = 0; l < VW; l++) whole += sum[c][l];
        for (; j < N; j++) whole += x[i * N + j];
        out[i] = whole;
    }
}
