/* The fast Walsh-Hadamard transform of N floats: log2(N) rounds of butterflies.

     RADIX    rounds done in one pass, as a power of two: 2, 4, 8 or 16 elements at a time
     BLOCK    a block of so many elements is finished for all short strides before the next
     UNROLL   turns of the innermost loop written out
     DOWN     0: short strides first; 1: long strides first
     VECTOR   0: as the compiler likes; 1: told that turns are independent */

#include <string.h>

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_BLOCK;

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#if VECTOR
#define FREE PRAGMA(GCC ivdep)
#else
#define FREE TIMES(UNROLL)
#endif

static inline __attribute__((always_inline)) void butterflies(float *a, int size, int stride, int radix)
{
    for (int base = 0; base < size; base += radix * stride)
        FREE for (int i = 0; i < stride; i++) {
            float v[RADIX];
            TIMES(16) for (int r = 0; r < radix; r++)
                v[r] = a[base + i + r * stride];
            TIMES(4) for (int half = 1; half < radix; half *= 2)
                TIMES(16) for (int r = 0; r < radix; r++)
                    if (!(r & half)) {
                        float x = v[r], y = v[r + half];
                        v[r] = x + y, v[r + half] = x - y;
                    }
            TIMES(16) for (int r = 0; r < radix; r++)
                a[base + i + r * stride] = v[r];
        }
}

/* All rounds with strides from `low` up to, but not including, `high`. */
static void rounds(float *a, int size, int low, int high)
{
#if DOWN
    int stride = high;
    while (stride / RADIX >= low)
        butterflies(a, size, stride /= RADIX, RADIX);
    while (stride / 2 >= low)
        butterflies(a, size, stride /= 2, 2);
#else
    int stride = low;
    for (; stride * RADIX <= high; stride *= RADIX)
        butterflies(a, size, stride, RADIX);
    for (; stride * 2 <= high; stride *= 2)
        butterflies(a, size, stride, 2);
#endif
}

void hadamard(const float *in, float *out)
{
    memcpy(out, in, sizeof(float) * N);
    if (DOWN && BLOCK < N)
        rounds(out, N, BLOCK, N);
    for (int start = 0; start < N; start += BLOCK)
        rounds(out + start, BLOCK, 1, BLOCK);
    if (!DOWN && BLOCK < N)
        rounds(out, N, BLOCK, N);
}
