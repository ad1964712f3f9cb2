/* The softmax of each of ROWS rows of COLS floats.

     PASSES  3: maximum, sum, quotient; 2: powers are kept; 1: maximum and sum in one pass over blocks
     POWER   0: the library's; otherwise a polynomial of that degree
     SUMS    maxima and sums that run side by side
     BLOCK   elements between two corrections of the maximum (PASSES 1)
     UNROLL  turns of the innermost loop written out
     DIVIDE  0: divide; 1: multiply by the inverse */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_BLOCK;

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

static inline float power(float x)
{
#if POWER == 0
    return expf(x);
#else
    float scaled = x * 1.44269504f;
    scaled = scaled < -126.0f ? -126.0f : scaled;
    float whole = floorf(scaled), f = (scaled - whole) * 0.69314718f, sum = 1.0f, term = 1.0f;
    TIMES(8) for (int n = 1; n <= POWER; n++)
        term *= f / n, sum += term;
    int32_t bits = ((int32_t)whole + 127) << 23;
    float two;
    memcpy(&two, &bits, 4);
    return two * sum;
#endif
}

static float most(const float *in, int count)
{
    float high[SUMS];
    for (int s = 0; s < SUMS; s++)
        high[s] = in[s];
    TIMES(UNROLL) for (int i = 0; i < count; i += SUMS)
        TIMES(16) for (int s = 0; s < SUMS; s++)
            high[s] = high[s] > in[i + s] ? high[s] : in[i + s];
    for (int s = 1; s < SUMS; s++)
        high[0] = high[0] > high[s] ? high[0] : high[s];
    return high[0];
}

static float total(const float *in, float *out, int count, float high)
{
    float sum[SUMS] = {0};
    TIMES(UNROLL) for (int i = 0; i < count; i += SUMS)
        TIMES(16) for (int s = 0; s < SUMS; s++) {
            float value = power(in[i + s] - high);
            sum[s] += value;
            if (PASSES == 2)
                out[i + s] = value;
        }
    for (int s = 1; s < SUMS; s++)
        sum[0] += sum[s];
    return sum[0];
}

void softmax(const float *restrict in, float *restrict out)
{
    for (int row = 0; row < ROWS; row++, in += COLS, out += COLS) {
        float high, sum = 0;
#if PASSES == 1
        high = -INFINITY;
        for (int i = 0; i < COLS; i += BLOCK) {
            float here = most(in + i, BLOCK), both = here > high ? here : high;
            sum = sum * (high == both ? 1.0f : power(high - both)) + total(in + i, out + i, BLOCK, both);
            high = both;
        }
#else
        high = most(in, COLS);
        sum = total(in, out, COLS, high);
#endif
        float inverse = 1.0f / sum;
        TIMES(UNROLL) for (int i = 0; i < COLS; i++) {
            float value = PASSES == 2 ? out[i] : power(in[i] - high);
            out[i] = DIVIDE ? value * inverse : value / sum;
        }
    }
}
