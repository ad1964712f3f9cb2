// y = x seen through a window of R x S. A work-item makes TY rows by TX vectors of y; LX x LY of them make a work-group.
// With STAGE the weights lie in local memory; with ROWS a row of x that several rows of y need is read once.
#include "vectors.h"
#define WIDE (TX * VW)
#define ACROSS (W - S + 1)
#define DOWN (H - R + 1)

__kernel __attribute__((reqd_work_group_size(LX, LY, 1)))
void conv2d(__global const float *restrict x, __global const float *restrict w, __global float *restrict y) {
    const int col = get_global_id(0) * WIDE, row = get_global_id(1) * TY;
#if STAGE
    __local float weights[R * S];
    for (int i = get_local_id(1) * LX + get_local_id(0); i < R * S; i += LX * LY) weights[i] = w[i];
    barrier(CLK_LOCAL_MEM_FENCE);
#else
#define weights w
#endif
    if (row + TY > DOWN || col + WIDE > ACROSS) {
        for (int i = row; i < min(row + TY, DOWN); i++)
            for (int j = col; j < min(col + WIDE, ACROSS); j++) {
                float one = 0;
                for (int r = 0; r < R; r++)
                    for (int s = 0; s < S; s++) one += x[(i + r) * W + j + s] * weights[r * S + s];
                y[i * ACROSS + j] = one;
            }
        return;
    }
    vec sum[TY][TX];
#pragma unroll
    for (int i = 0; i < TY; i++)
#pragma unroll
        for (int j = 0; j < TX; j++) sum[i][j] = 0;
#if ROWS
#pragma unroll UNROLL
    for (int q = 0; q < TY + R - 1; q++)
        for (int s = 0; s < S; s++)
#pragma unroll
            for (int j = 0; j < TX; j++) {
                const vec seen = LOAD(x + (row + q) * W + col + j * VW + s);
#pragma unroll
                for (int i = 0; i < TY; i++)
                    if (q - i >= 0 && q - i < R) sum[i][j] += seen * weights[(q - i) * S + s];
            }
#else
#pragma unroll UNROLL
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
#pragma unroll
            for (int i = 0; i < TY; i++)
#pragma unroll
                for (int j = 0; j < TX; j++)
                    sum[i][j] += LOAD(x + (row + i + r) * W + col + j * VW + s) * weights[r * S + s];
#endif
#pragma unroll
    for (int i = 0; i < TY; i++)
#pragma unroll
        for (int j = 0; j < TX; j++) STORE(sum[i][j], y + (row + i) * ACROSS + col + j * VW);
}
