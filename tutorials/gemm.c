/* C = A * B for row-major float matrices: A is M x K, B is K x N, C is M x N.

   The sizes M, N and K are macros, and so are the knobs:

     VW      floats in a vector
     MR, NR  the register block: MR rows times NR vectors of C, held in registers while k runs
     KB, NB  the cache block: a piece of B, KB rows by NB columns, copied ("packed") into the order it is read in
     UNROLL  steps of k written out per turn of the innermost loop
     PACK_A  whether the rows of A are packed too
     ROWS_OUTER  whether the loop over rows of C is the outer one (reuses A first) or the inner one (reuses B first)

   Sizes that no block divides are fine: the last rows get a smaller register block, the last columns are padded.
   Buffers belong to the thread, so calls may run side by side. */

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define UP(x, step) (((x) + (step) - 1) / (step) * (step))
#define INLINE static inline __attribute__((always_inline))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define ALL TIMES(64)

enum { NC = NR * VW, DEPTH = MIN(KB, K), WIDTH = MIN(UP(NB, NC), UP(N, NC)) };

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));

static _Thread_local float packed_a[PACK_A ? UP(M, MR) * DEPTH : 1] __attribute__((aligned(64)));
static _Thread_local float packed_b[DEPTH * WIDTH] __attribute__((aligned(64)));

/* A block of C, `rows` x NC: its registers take up `depth` products. Element (i, k) of A is a[i * ra + k * ka]. */
INLINE void registers(int rows, int depth, const float *a, long ra, long ka, const float *b, float *c, long rc, int add)
{
    vec sum[MR][NR];
    ALL for (int i = 0; i < rows; i++)
        ALL for (int j = 0; j < NR; j++)
            sum[i][j] = add ? *(vec *)(c + i * rc + j * VW) : (vec){0};
    TIMES(UNROLL) for (int k = 0; k < depth; k++) {
        vec right[NR];
        ALL for (int j = 0; j < NR; j++)
            right[j] = *(vec *)(b + k * NC + j * VW);
        ALL for (int i = 0; i < rows; i++)
            ALL for (int j = 0; j < NR; j++)
                sum[i][j] += a[i * ra + k * ka] * right[j];
    }
    ALL for (int i = 0; i < rows; i++)
        ALL for (int j = 0; j < NR; j++)
            *(vec *)(c + i * rc + j * VW) = sum[i][j];
}

/* The same where the block may stick out of C on the right: then it is computed aside, and what fits is copied. */
INLINE void block(int rows, int cols, int depth, const float *a, const float *b, float *c, int add)
{
    long ra = PACK_A ? 1 : K, ka = PACK_A ? rows : 1;
    if (N % NC == 0 || cols >= NC) {
        registers(rows, depth, a, ra, ka, b, c, N, add);
        return;
    }
    float aside[MR * NC];
    registers(rows, depth, a, ra, ka, b, aside, NC, 0);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            c[i * N + j] = (add ? c[i * N + j] : 0) + aside[i * NC + j];
}

/* Rows i.. and columns j.. of C, from packed B; the last rows may be fewer than MR. */
static void tile(int i, int j, int cols, int depth, const float *a, const float *b, float *c, int add)
{
    a = PACK_A ? packed_a + (long)i * depth : a + (long)i * K;
    c += (long)i * N + j;
    if (i + MR <= M)
        block(MR, cols, depth, a, b, c, add);
    else
        block(M % MR, cols, depth, a, b, c, add);
}

static void pack_a(const float *a, int depth)
{
    float *to = packed_a;
    for (int i = 0; i < M; i += MR)
        for (int k = 0; k < depth; k++)
            for (int r = i; r < MIN(i + MR, M); r++)
                *to++ = a[(long)r * K + k];
}

static void pack_b(const float *b, int depth, int width)
{
    vec *to = (vec *)packed_b;
    for (int j = 0; j < width; j += NC)
        for (int k = 0; k < depth; k++)
            for (int x = j; x < j + NC; x += VW, to++)
                if (x + VW <= width)
                    *to = *(vec *)(b + (long)k * N + x);
                else
                    for (int y = 0; y < VW; y++)
                        (*to)[y] = x + y < width ? b[(long)k * N + x + y] : 0;
}

void gemm(const float *a, const float *b, float *c)
{
    for (int k = 0; k < K; k += DEPTH) {
        int depth = MIN(DEPTH, K - k);
        if (PACK_A)
            pack_a(a + k, depth);
        for (int n = 0; n < N; n += WIDTH) {
            int width = MIN(WIDTH, N - n);
            pack_b(b + (long)k * N + n, depth, width);
            if (ROWS_OUTER)
                for (int i = 0; i < M; i += MR)
                    for (int j = 0; j < width; j += NC)
                        tile(i, n + j, width - j, depth, a + k, packed_b + j * depth, c, k > 0);
            else
                for (int j = 0; j < width; j += NC)
                    for (int i = 0; i < M; i += MR)
                        tile(i, n + j, width - j, depth, a + k, packed_b + j * depth, c, k > 0);
        }
    }
}
