// y = x transposed. A work-group moves a tile of LX * TX columns by LY * TY rows; with STAGE through local memory, whose
// rows PAD may set apart. FLIP says whether neighbours write side by side rather than read.
#define WIDE (LX * TX)
#define HIGH (LY * TY)

__kernel __attribute__((reqd_work_group_size(LX, LY, 1)))
void transpose(__global const float *restrict x, __global float *restrict y) {
    const int lx = get_local_id(0), ly = get_local_id(1);
    const int col = get_group_id(0) * WIDE, row = get_group_id(1) * HIGH;
#if STAGE
    __local float tile[HIGH * (WIDE + PAD)];
    for (int i = ly; i < HIGH; i += LY)
        for (int j = lx; j < WIDE; j += LX)
            if (row + i < M && col + j < N) tile[i * (WIDE + PAD) + j] = x[(row + i) * N + col + j];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = ly; j < WIDE; j += LY)
        for (int i = lx; i < HIGH; i += LX)
            if (row + i < M && col + j < N) y[(col + j) * M + row + i] = tile[i * (WIDE + PAD) + j];
#elif FLIP
    for (int j = ly; j < WIDE; j += LY)
        for (int i = lx; i < HIGH; i += LX)
            if (row + i < M && col + j < N) y[(col + j) * M + row + i] = x[(row + i) * N + col + j];
#else
    for (int i = ly; i < HIGH; i += LY)
        for (int j = lx; j < WIDE; j += LX)
            if (row + i < M && col + j < N) y[(col + j) * M + row + i] = x[(row + i) * N + col + j];
#endif
}
