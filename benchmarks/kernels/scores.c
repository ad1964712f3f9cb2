/* For each of BATCH pairs, all M x N dot products of a row of queries and a row of keys, both K long, as of attention.

     VW      floats in a vector
     MR, NR  queries and keys whose products are held in registers
     KU      vectors of a row that are multiplied before the next step
     ORDER   0: blocks of queries outermost; 1: blocks of keys
     TAIL    what of a row fills no vector: 0 one by one; 1 in a vector that is filled up */

#include <stdint.h>
#include <string.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define ALL TIMES(32)
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));

typedef struct { const float *queries, *keys; float *out; int64_t m, n, k; } pair;

INLINE vec part(const float *from, int64_t count)
{
    vec found = {0};
    memcpy(&found, from, 4 * count);
    return found;
}

INLINE float all(vec sum)
{
    float total = 0;
    ALL for (int i = 0; i < VW; i++)
        total += sum[i];
    return total;
}

INLINE void step(pair p, vec sum[MR][NR], int rows, int cols, int64_t i, int64_t j, int64_t x)
{
    vec key[NR];
    ALL for (int c = 0; c < cols; c++)
        key[c] = *(const vec *)(p.keys + (j + c) * p.k + x);
    ALL for (int r = 0; r < rows; r++) {
        vec query = *(const vec *)(p.queries + (i + r) * p.k + x);
        ALL for (int c = 0; c < cols; c++)
            sum[r][c] += query * key[c];
    }
}

INLINE void block(pair p, int rows, int cols, int64_t i, int64_t j)
{
    vec sum[MR][NR];
    ALL for (int r = 0; r < rows; r++)
        ALL for (int c = 0; c < cols; c++)
            sum[r][c] = (vec){0};
    int64_t x = 0;
    for (; x + KU * VW <= p.k; x += KU * VW)
        ALL for (int u = 0; u < KU; u++)
            step(p, sum, rows, cols, i, j, x + u * VW);
    for (; x + VW <= p.k; x += VW)
        step(p, sum, rows, cols, i, j, x);
    if (TAIL && x < p.k) {
        ALL for (int r = 0; r < rows; r++)
            ALL for (int c = 0; c < cols; c++)
                sum[r][c] += part(p.queries + (i + r) * p.k + x, p.k - x) * part(p.keys + (j + c) * p.k + x, p.k - x);
        x = p.k;
    }
    ALL for (int r = 0; r < rows; r++)
        ALL for (int c = 0; c < cols; c++) {
            float total = all(sum[r][c]);
            for (int64_t y = x; y < p.k; y++)
                total += p.queries[(i + r) * p.k + y] * p.keys[(j + c) * p.k + y];
            p.out[(i + r) * p.n + j + c] = total;
        }
}

static void queries(pair p, int64_t i, int64_t to, int64_t j, int cols)
{
    for (; i + MR <= to; i += MR)
        if (cols == NR)
            block(p, MR, NR, i, j);
        else
            block(p, MR, 1, i, j);
    for (; i < to; i++)
        if (cols == NR)
            block(p, 1, NR, i, j);
        else
            block(p, 1, 1, i, j);
}

static void keys(pair p, int64_t i, int64_t to)
{
    int64_t j = 0;
    for (; j + NR <= p.n; j += NR)
        queries(p, i, to, j, NR);
    for (; j < p.n; j++)
        queries(p, i, to, j, 1);
}

void scores(const float *q, const float *k, float *out, int64_t batch, int64_t m, int64_t length, int64_t n)
{
    for (int64_t b = 0; b < batch; b++) {
        pair p = {q + b * m * length, k + b * n * length, out + b * m * n, m, n, length};
        if (ORDER == 1)
            keys(p, 0, m);
        else
            for (int64_t i = 0; i < m; i += MR)
                keys(p, i, i + MR < m ? i + MR : m);
    }
}
