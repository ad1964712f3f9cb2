// y = the sums of the rows of x. LX work-items share a row, LY rows make a work-group; each work-item has CHAINS sums of
// vectors of VW, which do not wait for each other. NEAR says whether it reads a stretch of its own or takes turns.
#include "vectors.h"
#define STEP (CHAINS * VW)

static float folded(const vec v) {
    float parts[VW], sum = 0;
    STORE(v, parts);
    for (int i = 0; i < VW; i++) sum += parts[i];
    return sum;
}

__kernel __attribute__((reqd_work_group_size(LX, LY, 1)))
void reduce(__global const float *restrict x, __global float *restrict y) {
    const int lx = get_local_id(0), ly = get_local_id(1), row = get_global_id(1);
    __local float parts[LY * LX];
    float sum = 0;
    if (row < M) {
        __global const float *mine = x + (long)row * N;
        const int steps = N / STEP;
        vec chain[CHAINS];
        for (int c = 0; c < CHAINS; c++) chain[c] = 0;
#if NEAR
        const int each = (steps + LX - 1) / LX;
        for (int s = lx * each; s < min((lx + 1) * each, steps); s++)
#else
        for (int s = lx; s < steps; s += LX)
#endif
#pragma unroll
            for (int c = 0; c < CHAINS; c++) chain[c] += LOAD(mine + s * STEP + c * VW);
        for (int c = 0; c < CHAINS; c++) sum += folded(chain[c]);
        for (int i = steps * STEP + lx; i < N; i += LX) sum += mine[i];
    }
    parts[ly * LX + lx] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lx == 0 && row < M) {
        float whole = 0;
        for (int i = 0; i < LX; i++) whole += parts[ly * LX + i];
        y[row] = whole;
    }
}
