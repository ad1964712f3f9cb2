/* C = A * B in three plain loops; the innermost runs along the rows of B and C, so that a compiler can vectorise it. */

void gemm(const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++)
            c[i * N + j] = 0;
        for (int k = 0; k < K; k++)
            for (int j = 0; j < N; j++)
                c[i * N + j] += a[i * K + k] * b[k * N + j];
    }
}
