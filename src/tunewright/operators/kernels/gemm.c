/* out = a b: MR rows by NR vectors of sums in registers while k runs; k is cut into stretches of KB, for which a part of
   b is copied into the order it is read in. */
#include <stdint.h>

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));
enum { WIDE = NR * VW };
#define MIN(x, y) ((x) < (y) ? (x) : (y))

static inline __attribute__((always_inline)) void tile(const float *a, const float *part, float *out, int depth, int add)
{
    vec sum[MR][NR];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 16
        for (int j = 0; j < NR; j++) sum[i][j] = add ? *(vec *)(out + (int64_t)i * N + j * VW) : (vec){0};
    for (int k = 0; k < depth; k++) {
        vec row[NR];
#pragma GCC unroll 16
        for (int j = 0; j < NR; j++) row[j] = *(const vec *)(part + k * WIDE + j * VW);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 16
            for (int j = 0; j < NR; j++) sum[i][j] += a[(int64_t)i * K + k] * row[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 16
        for (int j = 0; j < NR; j++) *(vec *)(out + (int64_t)i * N + j * VW) = sum[i][j];
}

static void plain(const float *a, const float *b, float *out, int rows, int cols)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < cols; j++) out[(int64_t)i * N + j] = 0;
        for (int k = 0; k < K; k++)
            for (int j = 0; j < cols; j++) out[(int64_t)i * N + j] += a[(int64_t)i * K + k] * b[(int64_t)k * N + j];
    }
}

void gemm(const float *restrict a, const float *restrict b, float *restrict out)
{
    float part[KB * WIDE];
    int whole = M / MR * MR, col = 0;
    for (; col + WIDE <= N; col += WIDE)
        for (int k = 0; k < K; k += KB) {
            int depth = MIN(KB, K - k);
            for (int q = 0; q < depth; q++)
                for (int j = 0; j < WIDE; j++) part[q * WIDE + j] = b[(int64_t)(k + q) * N + col + j];
            for (int row = 0; row < whole; row += MR)
                tile(a + (int64_t)row * K + k, part, out + (int64_t)row * N + col, depth, k > 0);
        }
    if (whole < M) plain(a + (int64_t)whole * K, b, out + (int64_t)whole * N, M - whole, col);
    if (col < N) plain(a, b + col, out + col, M, N - col);
}
