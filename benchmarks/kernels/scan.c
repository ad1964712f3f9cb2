/* Running sums of N integers.

     METHOD  0: one after another; 1: in blocks, whose sums come first; 2: LANES strips side by side;
             3: by doubling distances inside a block
     BLOCK   integers of a block
     LANES   strips or elements that are summed together
     UNROLL  turns of the innermost loop written out
     COPY    0: from the input to the result; 1: through a buffer */

#include <stdint.h>
#include <string.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

static int32_t aside[BLOCK + 64];

static int32_t block(const int32_t *restrict in, int32_t *restrict out, int32_t sum)
{
#if METHOD == 0
    TIMES(UNROLL) for (int i = 0; i < BLOCK; i++)
        out[i] = sum += in[i];
    return sum;
#elif METHOD == 1
    for (int i = 0; i < BLOCK; i += LANES) {
        int32_t part[LANES];
        part[0] = in[i];
        TIMES(32) for (int l = 1; l < LANES; l++)
            part[l] = part[l - 1] + in[i + l];
        TIMES(32) for (int l = 0; l < LANES; l++)
            out[i + l] = sum + part[l];
        sum += part[LANES - 1];
    }
    return sum;
#elif METHOD == 2
    int32_t part[LANES] = {0}, strip = BLOCK / LANES;
    TIMES(UNROLL) for (int i = 0; i < BLOCK / LANES; i++)
        TIMES(32) for (int l = 0; l < LANES; l++)
            out[l * strip + i] = part[l] += in[l * strip + i];
    for (int l = 0; l < LANES; l++) {
        TIMES(UNROLL) for (int i = 0; i < BLOCK / LANES; i++)
            out[l * strip + i] += sum;
        sum += part[l];
    }
    return sum;
#else
    for (int i = 0; i < BLOCK; i += LANES) {
        int32_t v[LANES], w[LANES];
        TIMES(32) for (int l = 0; l < LANES; l++)
            v[l] = in[i + l];
        TIMES(5) for (int far = 1; far < LANES; far *= 2) {
            TIMES(32) for (int l = 0; l < LANES; l++)
                w[l] = v[l] + (l >= far ? v[l - far] : 0);
            TIMES(32) for (int l = 0; l < LANES; l++)
                v[l] = w[l];
        }
        TIMES(32) for (int l = 0; l < LANES; l++)
            out[i + l] = sum + v[l];
        sum += v[LANES - 1];
    }
    return sum;
#endif
}

void scan(const int32_t *in, int32_t *out)
{
    int32_t sum = 0;
    for (int start = 0; start < N; start += BLOCK) {
        if (COPY) {
            sum = block(in + start, aside, sum);
            memcpy(out + start, aside, sizeof(*out) * BLOCK);
        } else {
            sum = block(in + start, out + start, sum);
        }
    }
}
