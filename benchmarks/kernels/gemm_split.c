/* C = A * B with K in parts, of which there are SPLIT for few rows and one for many: rows depend on how many there are.

     SPLIT   parts of K that are summed by themselves, if there are fewer than 64 rows
     UNROLL  turns of the innermost loop written out */

#include <stdint.h>
#include <string.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

void gemm_split(const float *a, const float *b, float *c, int64_t m, int64_t k, int64_t n)
{
    int64_t parts = m < 64 ? SPLIT : 1;
    float sum[256];
    memset(c, 0, sizeof(float) * m * n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t part = 0; part < parts; part++) {
            memset(sum, 0, sizeof sum);
            for (int64_t x = part * k / parts; x < (part + 1) * k / parts; x++)
                TIMES(UNROLL) for (int64_t j = 0; j < n; j++)
                    sum[j] += a[i * k + x] * b[x * n + j];
            for (int64_t j = 0; j < n; j++)
                c[i * n + j] += sum[j];
        }
}
