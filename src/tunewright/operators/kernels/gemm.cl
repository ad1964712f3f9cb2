// c = a b. A work-item makes a tile of TM rows by TN vectors; LX x LY of them make a work-group.
// With STAGE the group first copies KB rows of b into local memory: on a GPU to share them, on a CPU to have them
// without gaps.
#include "vectors.h"
#define WIDE (TN * VW)
#define ACROSS (LX * WIDE)

static void edge(__global const float *restrict a, __global const float *restrict b, __global float *restrict c,
                 const int row, const int col) {
    for (int i = row; i < min(row + TM, M); i++)
        for (int j = col; j < min(col + WIDE, N); j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += a[i * K + k] * b[k * N + j];
            c[i * N + j] = sum;
        }
}

__kernel __attribute__((reqd_work_group_size(LX, LY, 1)))
void gemm(__global const float *restrict a, __global const float *restrict b, __global float *restrict c) {
    const int col = get_global_id(0) * WIDE, row = get_global_id(1) * TM;
    vec sum[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) sum[i][j] = 0;
#if STAGE
    __local float staged[KB * ACROSS];
    const int here = get_local_id(1) * LX + get_local_id(0), first = get_group_id(0) * ACROSS;
    const bool inside = row + TM <= M && col + WIDE <= N;
    for (int k0 = 0; k0 < K; k0 += KB) {
        for (int i = here; i < KB * LX * TN; i += LX * LY) {
            const int k = k0 + i / (LX * TN), at = first + i % (LX * TN) * VW;
            if (k < K && at + VW <= N) STORE(LOAD(b + k * N + at), staged + i * VW);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (inside)
            for (int k = 0; k < min(KB, K - k0); k++) {
                vec right[TN];
#pragma unroll
                for (int j = 0; j < TN; j++)
                    right[j] = LOAD(staged + k * ACROSS + get_local_id(0) * WIDE + j * VW);
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) sum[i][j] += a[(row + i) * K + k0 + k] * right[j];
            }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (!inside) {
        edge(a, b, c, row, col);
        return;
    }
#else
    if (row + TM > M || col + WIDE > N) {
        edge(a, b, c, row, col);
        return;
    }
#pragma unroll KB
    for (int k = 0; k < K; k++) {
        vec right[TN];
#pragma unroll
        for (int j = 0; j < TN; j++) right[j] = LOAD(b + k * N + col + j * VW);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) sum[i][j] += a[(row + i) * K + k] * right[j];
    }
#endif
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) STORE(sum[i][j], c + (row + i) * N + col + j * VW);
}
