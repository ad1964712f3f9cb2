/* For each of BAGS bags, the sum of ITEMS rows of a table of TOTAL x COLS floats, as of an embedding.

     VW      floats in a vector
     CB      vectors of a row that are summed together
     ITEMS_AT  rows that are added to each other before they are added to the sum
     ORDER   0: bags outermost; 1: blocks of columns outermost
     TAIL    columns that fill no vector: 0 one by one; 1 in a vector that ends with the last column */

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define ALL TIMES(32)

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));

typedef struct { const int32_t *at; const float *table; float *out; int64_t bags, items, cols; } sizes;

INLINE const float *row(sizes s, int64_t bag, int64_t item, int64_t x)
{
    return s.table + s.at[bag * s.items + item] * s.cols + x;
}

INLINE void add(sizes s, vec *sum, int cb, int count, int64_t bag, int64_t item, int64_t x)
{
    ALL for (int j = 0; j < cb; j++) {
        vec some = *(const vec *)(row(s, bag, item, x) + j * VW);
        ALL for (int i = 1; i < count; i++)
            some += *(const vec *)(row(s, bag, item + i, x) + j * VW);
        sum[j] += some;
    }
}

INLINE void block(sizes s, int cb, int64_t bag, int64_t x)
{
    vec sum[CB] = {{0}};
    int64_t item = 0;
    for (; item + ITEMS_AT <= s.items; item += ITEMS_AT)
        add(s, sum, cb, ITEMS_AT, bag, item, x);
    for (; item < s.items; item++)
        add(s, sum, cb, 1, bag, item, x);
    ALL for (int j = 0; j < cb; j++)
        *(vec *)(s.out + bag * s.cols + x + j * VW) = sum[j];
}

static void columns(sizes s, int64_t bag, int64_t x, int64_t to)
{
    for (; x + CB * VW <= to; x += CB * VW)
        block(s, CB, bag, x);
    for (; x + VW <= to; x += VW)
        block(s, 1, bag, x);
    if (x == to)
        return;
    if (TAIL && s.cols >= VW) {
        block(s, 1, bag, s.cols - VW);
        return;
    }
    for (; x < to; x++) {
        float sum = 0;
        for (int64_t item = 0; item < s.items; item++)
            sum += *row(s, bag, item, x);
        s.out[bag * s.cols + x] = sum;
    }
}

void bag(const int32_t *at, const float *table, float *out, int64_t bags, int64_t items, int64_t total, int64_t cols)
{
    sizes s = {at, table, out, bags, items, cols};
    (void)total;
    if (ORDER == 0) {
        for (int64_t b = 0; b < bags; b++)
            columns(s, b, 0, cols);
    } else {
        for (int64_t x = 0; x < cols; x += CB * VW)
            for (int64_t b = 0; b < bags; b++)
                columns(s, b, x, x + CB * VW < cols ? x + CB * VW : cols);
    }
}
