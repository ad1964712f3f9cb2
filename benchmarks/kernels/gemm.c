/* C = A * B for row-major float matrices: A is M x K, B is K x N, C is M x N. One build serves every size.

   The knobs are macros:

     VW      floats in a vector
     MR, NR  the register block: MR rows times NR vectors of C, held in registers while k runs
     KB, NB  the cache block: a piece of B, KB rows by about NB columns
     PACK    0: A and B are read where they lie; 1: pieces of B are copied into the order they are read in; 2: of A too
     UNROLL  steps of k written out per turn of the innermost loop
     ORDER   0: columns of C in the outer loop (reuses B first); 1: rows (reuses A first)

   What sticks out below is computed one row at a time; what sticks out on the right by a plain loop, or with PADDED as a
   whole block beside the matrix, of which only a part is kept. */

#include <stdint.h>

#if MR * NR + NR + 1 > 32
#error "the sums, a row of B and an element of A need more than 32 registers"
#endif

#ifndef PADDED
#define PADDED 0
#endif

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define UP(x, step) (((x) + (step) - 1) / (step) * (step))
#define INLINE static inline __attribute__((always_inline))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define ALL TIMES(32)

enum { NC = NR * VW, WIDTH = UP(NB, NC), HEIGHT = UP(96, MR) };

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));

/* Where a matrix lies: element (i, j) is at[i * down + j * right]. */
typedef struct { const float *at; int64_t down, right; } matrix;

INLINE void block(int rows, int64_t depth, matrix a, matrix b, float *c, int64_t n, int add)
{
    vec sum[MR][NR];
    ALL for (int i = 0; i < rows; i++)
        ALL for (int j = 0; j < NR; j++)
            sum[i][j] = add ? *(vec *)(c + i * n + j * VW) : (vec){0};
    TIMES(UNROLL) for (int64_t k = 0; k < depth; k++) {
        vec row[NR];
        ALL for (int j = 0; j < NR; j++)
            row[j] = *(vec *)(b.at + k * b.down + j * VW);
        ALL for (int i = 0; i < rows; i++)
            ALL for (int j = 0; j < NR; j++)
                sum[i][j] += a.at[i * a.down + k * a.right] * row[j];
    }
    ALL for (int i = 0; i < rows; i++)
        ALL for (int j = 0; j < NR; j++)
            *(vec *)(c + i * n + j * VW) = sum[i][j];
}

#if PADDED
static void padded(int64_t rows, int64_t cols, int64_t depth, matrix a, matrix b, float *c, int64_t n, int add)
{
    float piece[KB * NC] __attribute__((aligned(64))), aside[MR * NC] __attribute__((aligned(64)));
    matrix y = {piece, NC, 1};
    for (int64_t k = 0; k < depth; k++)
        for (int x = 0; x < NC; x++)
            piece[k * NC + x] = x < cols ? b.at[k * b.down + x] : 0;
    for (int64_t i = 0, step; i < rows; i += step) {
        matrix x = {a.at + i * a.down, a.down, 1};
        step = i + MR <= rows ? MR : 1;
        if (step == MR)
            block(MR, depth, x, y, aside, NC, 0);
        else
            block(1, depth, x, y, aside, NC, 0);
        for (int64_t r = 0; r < step; r++)
            for (int64_t j = 0; j < cols; j++)
                c[(i + r) * n + j] = (add ? c[(i + r) * n + j] : 0) + aside[r * NC + j];
    }
}
#else
static void plain(int64_t rows, int64_t cols, int64_t depth, matrix a, matrix b, float *c, int64_t n, int add)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float sum = add ? c[i * n + j] : 0;
            for (int64_t k = 0; k < depth; k++)
                sum += a.at[i * a.down + k] * b.at[k * b.down + j];
            c[i * n + j] = sum;
        }
}
#endif

static void pack_a(float *to, matrix a, int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i + MR <= rows; i += MR)
        for (int64_t k = 0; k < depth; k++)
            for (int r = 0; r < MR; r++)
                *to++ = a.at[(i + r) * a.down + k];
}

static void pack_b(float *to, matrix b, int64_t cols, int64_t depth)
{
    for (int64_t j = 0; j + NC <= cols; j += NC)
        for (int64_t k = 0; k < depth; k++, to += NC)
            ALL for (int x = 0; x < NR; x++)
                *(vec *)(to + x * VW) = *(vec *)(b.at + k * b.down + j + x * VW);
}

void gemm(const float *a, const float *b, float *c, int64_t m, int64_t k, int64_t n)
{
    float packed_a[PACK == 2 ? HEIGHT * KB : 1] __attribute__((aligned(64)));
    float packed_b[PACK >= 1 ? WIDTH * KB : 1] __attribute__((aligned(64)));

    for (int64_t j0 = 0; j0 < n; j0 += WIDTH)
        for (int64_t k0 = 0; k0 < k; k0 += KB) {
            int64_t cols = MIN(WIDTH, n - j0), depth = MIN(KB, k - k0);
            int64_t whole = cols / NC * NC;
            matrix right = {b + k0 * n + j0, n, 1};
            if (PACK >= 1)
                pack_b(packed_b, right, cols, depth);
            for (int64_t i0 = 0; i0 < m; i0 += HEIGHT) {
                int64_t rows = MIN(HEIGHT, m - i0), full = rows / MR * MR;
                matrix left = {a + i0 * k + k0, k, 1};
                float *to = c + i0 * n + j0;
                if (PACK == 2)
                    pack_a(packed_a, left, rows, depth);
                int64_t outer = ORDER ? full / MR : whole / NC, inner = ORDER ? whole / NC : full / MR;
                for (int64_t u = 0; u < outer; u++)
                    for (int64_t v = 0; v < inner; v++) {
                        int64_t i = (ORDER ? u : v) * MR, j = (ORDER ? v : u) * NC;
                        matrix x = {left.at + i * k, k, 1}, y = {right.at + j, n, 1};
                        if (PACK == 2)
                            x = (matrix){packed_a + i * depth, 1, MR};
                        if (PACK >= 1)
                            y = (matrix){packed_b + j * depth, NC, 1};
                        block(MR, depth, x, y, to + i * n + j, n, k0 > 0);
                    }
                for (int64_t i = full; i < rows; i++)
                    for (int64_t j = 0; j < whole; j += NC) {
                        matrix y = PACK >= 1 ? (matrix){packed_b + j * depth, NC, 1} : (matrix){right.at + j, n, 1};
                        block(1, depth, (matrix){left.at + i * k, k, 1}, y, to + i * n + j, n, k0 > 0);
                    }
                matrix rest = {right.at + whole, n, 1};
#if PADDED
                if (whole < cols)
                    padded(rows, cols - whole, depth, left, rest, to + whole, n, k0 > 0);
#else
                plain(rows, cols - whole, depth, left, rest, to + whole, n, k0 > 0);
#endif
            }
        }
}
