/* y = A x for a sparse matrix of ROWS rows, given by rows (CSR), padded by rows (ELL) and padded in slices of eight.

     FORMAT  0: CSR; 1: ELL, row by row; 2: slices, column by column over BATCH * 64 rows; 3: slice by slice
     SUMS    sums of a row that run side by side (CSR and ELL by rows)
     UNROLL  turns of the innermost loop written out
     AHEAD   elements ahead whose x is prefetched; 0: none
     BATCH   rows between two looks at the loop's end; slices side by side */

#include <stdint.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

static inline float row(const float *values, const int32_t *columns, const float *x, int from, int to)
{
    float sum[SUMS] = {0};
    int i = from;
    TIMES(UNROLL) for (; i + SUMS <= to; i += SUMS) {
        if (AHEAD)
            __builtin_prefetch(x + columns[i + AHEAD]);
        TIMES(8) for (int s = 0; s < SUMS; s++)
            sum[s] += values[i + s] * x[columns[i + s]];
    }
    for (; i < to; i++)
        sum[0] += values[i] * x[columns[i]];
    float total = 0;
    TIMES(8) for (int s = 0; s < SUMS; s++)
        total += sum[s];
    return total;
}

void spmv(const int32_t *restrict starts, const int32_t *restrict columns, const float *restrict values,
          const int32_t *restrict ell_columns, const float *restrict ell_values,
          const int32_t *restrict slice_columns, const float *restrict slice_values, const float *restrict x,
          float *restrict y)
{
    (void)starts, (void)columns, (void)values, (void)ell_columns, (void)ell_values;
    (void)slice_columns, (void)slice_values;
#if FORMAT == 0
    for (int r = 0; r < ROWS; r += BATCH)
        TIMES(8) for (int b = 0; b < BATCH; b++)
            y[r + b] = row(values, columns, x, starts[r + b], starts[r + b + 1]);
#elif FORMAT == 1
    for (int r = 0; r < ROWS; r += BATCH)
        TIMES(8) for (int b = 0; b < BATCH; b++)
            y[r + b] = row(ell_values, ell_columns, x, (r + b) * WIDTH, (r + b + 1) * WIDTH);
#elif FORMAT == 2
    for (int r = 0; r < ROWS; r += 64 * BATCH) {
        for (int b = 0; b < 64 * BATCH; b++)
            y[r + b] = 0;
        for (int k = 0; k < WIDTH; k++)
            TIMES(UNROLL) for (int b = 0; b < 64 * BATCH; b++) {
                if (AHEAD && b % 16 == 0)
                    __builtin_prefetch(slice_values + (r + b + AHEAD) * WIDTH + k * 8);
                y[r + b] += slice_values[(r + b) / 8 * 8 * WIDTH + k * 8 + (r + b) % 8] *
                            x[slice_columns[(r + b) / 8 * 8 * WIDTH + k * 8 + (r + b) % 8]];
            }
    }
#else
    for (int r = 0; r < ROWS; r += 8 * BATCH) {
        float sum[BATCH][8 * SUMS] = {0};
        const float *v = slice_values + r * WIDTH;
        const int32_t *c = slice_columns + r * WIDTH;
        TIMES(UNROLL) for (int k = 0; k + SUMS <= WIDTH; k += SUMS)
            TIMES(8) for (int b = 0; b < BATCH; b++) {
                const int at = (b * WIDTH + k) * 8;
                if (AHEAD)
                    __builtin_prefetch(v + at + AHEAD * 8);
                TIMES(64) for (int s = 0; s < 8 * SUMS; s++)
                    sum[b][s] += v[at + s] * x[c[at + s]];
            }
        TIMES(8) for (int b = 0; b < BATCH; b++)
            TIMES(8) for (int i = 0; i < 8; i++) {
                float total = 0;
                TIMES(8) for (int s = 0; s < SUMS; s++)
                    total += sum[b][s * 8 + i];
                y[r + 8 * b + i] = total;
            }
    }
#endif
}
