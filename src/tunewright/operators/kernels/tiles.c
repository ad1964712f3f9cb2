/* out = x transposed, in tiles of TM rows by TN columns. */
#include <stdint.h>
#define MIN(x, y) ((x) < (y) ? (x) : (y))

void transpose(const float *restrict x, float *restrict out)
{
    for (int64_t i = 0; i < M; i += TM)
        for (int64_t j = 0; j < N; j += TN)
            if (i + TM <= M && j + TN <= N) {
                for (int64_t q = 0; q < TN; q++)
                    for (int64_t p = 0; p < TM; p++) out[(j + q) * M + i + p] = x[(i + p) * N + j + q];
            } else {
                for (int64_t q = j; q < MIN(j + TN, N); q++)
                    for (int64_t p = i; p < MIN(i + TM, M); p++) out[q * M + p] = x[p * N + q];
            }
}
