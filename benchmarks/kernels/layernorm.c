/* The layer norm of each of ROWS rows of COLS floats, with a scale and a shift for each column.

     VW      floats in a vector
     SUMS    vectors that are summed side by side
     PASSES  2: sum and sum of squares in one pass; 3: the mean first
     ROWS_AT rows that are done together
     TAIL    what does not fill a vector: 0 one by one; 1 in a vector that is filled up */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define ALL TIMES(32)
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));

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

/* Sums of x - from, and of their squares, of rows that lie `cols` apart. */
INLINE void sums(int rows, const float *in, int64_t cols, const float *from, float *sum, float *square, int squares)
{
    vec one[ROWS_AT][SUMS], two[ROWS_AT][SUMS];
    ALL for (int r = 0; r < rows; r++)
        ALL for (int s = 0; s < SUMS; s++)
            one[r][s] = two[r][s] = (vec){0};
    int64_t x = 0;
    for (; x + SUMS * VW <= cols; x += SUMS * VW)
        ALL for (int r = 0; r < rows; r++)
            ALL for (int s = 0; s < SUMS; s++) {
                vec here = *(vec *)(in + r * cols + x + s * VW) - from[r];
                one[r][s] += here;
                if (squares)
                    two[r][s] += here * here;
            }
    for (; x + VW <= cols; x += VW)
        ALL for (int r = 0; r < rows; r++) {
            vec here = *(vec *)(in + r * cols + x) - from[r];
            one[r][0] += here;
            if (squares)
                two[r][0] += here * here;
        }
    ALL for (int r = 0; r < rows; r++) {
        ALL for (int s = 1; s < SUMS; s++)
            one[r][0] += one[r][s], two[r][0] += two[r][s];
        sum[r] = all(one[r][0]), square[r] = all(two[r][0]);
        if (TAIL && x < cols) {
            vec rest = part(in + r * cols + x, cols - x);
            float missing = VW - (cols - x);
            rest -= from[r];
            sum[r] += all(rest) + missing * from[r];
            square[r] += all(rest * rest) - missing * from[r] * from[r];
        } else
            for (int64_t i = x; i < cols; i++) {
                float here = in[r * cols + i] - from[r];
                sum[r] += here, square[r] += here * here;
            }
    }
}

INLINE void rows_at(int rows, const float *in, const float *scale, const float *shift, float *out, int64_t cols)
{
    float mean[ROWS_AT] = {0}, sum[ROWS_AT], square[ROWS_AT], by[ROWS_AT];
    if (PASSES == 3) {
        sums(rows, in, cols, mean, sum, square, 0);
        ALL for (int r = 0; r < rows; r++)
            mean[r] = sum[r] / cols;
    }
    sums(rows, in, cols, mean, sum, square, 1);
    ALL for (int r = 0; r < rows; r++) {
        float off = sum[r] / cols;
        by[r] = 1 / sqrtf(square[r] / cols - off * off + 1e-5f);
        mean[r] += off;
    }
    int64_t x = 0;
    for (; x + VW <= cols; x += VW)
        ALL for (int r = 0; r < rows; r++)
            *(vec *)(out + r * cols + x) =
                (*(vec *)(in + r * cols + x) - mean[r]) * by[r] * *(vec *)(scale + x) + *(vec *)(shift + x);
    for (int r = 0; r < rows; r++)
        if (TAIL && x < cols) {
            vec rest = (part(in + r * cols + x, cols - x) - mean[r]) * by[r] * part(scale + x, cols - x)
                + part(shift + x, cols - x);
            memcpy(out + r * cols + x, &rest, 4 * (cols - x));
        } else
            for (int64_t i = x; i < cols; i++)
                out[r * cols + i] = (in[r * cols + i] - mean[r]) * by[r] * scale[i] + shift[i];
}

void layernorm(const float *in, const float *scale, const float *shift, float *out, int64_t rows, int64_t cols)
{
    int64_t r = 0;
    for (; r + ROWS_AT <= rows; r += ROWS_AT)
        rows_at(ROWS_AT, in + r * cols, scale, shift, out + r * cols, cols);
    for (; r < rows; r++)
        rows_at(1, in + r * cols, scale, shift, out + r * cols, cols);
}
