// Transposes a matrix by tiles in shared memory. TILE, ROWS, PAD and BARRIER are knobs.
extern "C" __global__ void __launch_bounds__(TILE * ROWS)
transpose(const float *__restrict__ x, float *__restrict__ y, int m, int n) {
    __shared__ float tile[TILE][TILE + PAD];  // PAD columns more, so that a column is in different banks
    int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
#pragma unroll
    for (int i = 0; i < TILE; i += ROWS)
        if (row + i < m && column < n) tile[threadIdx.y + i][threadIdx.x] = x[(row + i) * n + column];
#if BARRIER
    __syncthreads();
#endif
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
#pragma unroll
    for (int i = 0; i < TILE; i += ROWS)
        if (row + i < n && column < m) y[(row + i) * m + column] = tile[threadIdx.x][threadIdx.y + i];
}
