/* The Cholesky factor of a symmetric matrix of N x N floats: the lower triangle, row by row.

     METHOD   0: by rows, 1: by columns, both as inner products; 2: what is left is updated after each block
     BLOCK    rows at once (METHOD 1), or columns of a block (METHOD 2)
     SUMS     partial sums of an inner product
     WIDTH    columns that are updated at once (METHOD 2)
     SCALE    0: divide by the diagonal; 1: multiply by its inverse
     UNROLL   turns of the innermost loop written out */

#include <math.h>
#include <string.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

#if SCALE
#define SCALED(x, diagonal) ((x) * (1 / (diagonal)))
#else
#define SCALED(x, diagonal) ((x) / (diagonal))
#endif

static float l[N][N] __attribute__((aligned(64)));

static inline __attribute__((always_inline)) float inner(const float *x, const float *y, int count)
{
    float sums[SUMS] = {0}, sum = 0;
    int k = 0;
    TIMES(UNROLL) for (; k + SUMS <= count; k += SUMS)
        TIMES(16) for (int s = 0; s < SUMS; s++)
            sums[s] += x[k + s] * y[k + s];
    TIMES(16) for (int s = 0; s < SUMS; s++)
        sum += sums[s];
    for (; k < count; k++)
        sum += x[k] * y[k];
    return sum;
}

#if METHOD == 0
static void factor(void)
{
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < i; j++)
            l[i][j] = SCALED(l[i][j] - inner(l[i], l[j], j), l[j][j]);
        l[i][i] = sqrtf(l[i][i] - inner(l[i], l[i], i));
    }
}
#elif METHOD == 1
static void factor(void)
{
    for (int j = 0; j < N; j++) {
        l[j][j] = sqrtf(l[j][j] - inner(l[j], l[j], j));
        for (int i = j + 1; i < N; i += BLOCK) {
            int count = N - i < BLOCK ? N - i : BLOCK;
            float sums[BLOCK] = {0};
            if (count == BLOCK) {
                TIMES(UNROLL) for (int k = 0; k < j; k++)
                    TIMES(32) for (int r = 0; r < BLOCK; r++)
                        sums[r] += l[i + r][k] * l[j][k];
            } else {
                for (int r = 0; r < count; r++)
                    sums[r] = inner(l[i + r], l[j], j);
            }
            for (int r = 0; r < count; r++)
                l[i + r][j] = SCALED(l[i + r][j] - sums[r], l[j][j]);
        }
    }
}
#else
static float columns[BLOCK][N] __attribute__((aligned(64)));

static void factor(void)
{
    for (int first = 0; first < N; first += BLOCK) {
        int end = first + BLOCK < N ? first + BLOCK : N;
        for (int j = first; j < end; j++) {
            l[j][j] = sqrtf(l[j][j] - inner(l[j] + first, l[j] + first, j - first));
            columns[j - first][j] = l[j][j];
            for (int i = j + 1; i < N; i++) {
                l[i][j] = SCALED(l[i][j] - inner(l[i] + first, l[j] + first, j - first), l[j][j]);
                columns[j - first][i] = l[i][j];
            }
        }
        for (int from = end; from < N; from += WIDTH)
            for (int i = from; i < N; i++) {
                int to = i + 1 < from + WIDTH ? i + 1 : from + WIDTH;
                for (int k = 0; k < end - first; k++) {
                    float x = l[i][first + k];
                    TIMES(UNROLL) for (int j = from; j < to; j++)
                        l[i][j] -= x * columns[k][j];
                }
            }
    }
}
#endif

void cholesky(const float *matrix, float *out)
{
    memcpy(l, matrix, sizeof l);
    factor();
    for (int i = 0; i < N; i++) {
        memcpy(out + i * N, l[i], sizeof(float) * (i + 1));
        memset(out + i * N + i + 1, 0, sizeof(float) * (N - i - 1));
    }
}
