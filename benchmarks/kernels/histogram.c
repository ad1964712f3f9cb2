/* How often each of 256 values occurs among N bytes.

     COPIES   histograms that are filled side by side
     COUNTER  bits of a counter; small ones are added up before they overflow
     LOAD     bytes read at a time
     UNROLL   turns of the innermost loop written out
     RUNS     0: count each byte; 1: count equal neighbors once, with their number
     BLOCK    bytes between two times of adding up */

#include <stdint.h>
#include <string.h>

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_BLOCK;

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

#if COUNTER == 8
typedef uint8_t counter;
#elif COUNTER == 16
typedef uint16_t counter;
#else
typedef uint32_t counter;
#endif
#if COUNTER == 8 && BLOCK / COPIES > 255
#error "a counter of eight bits could overflow"
#endif

static counter counts[COPIES][256] __attribute__((aligned(64)));

static void block(const uint8_t *data)
{
#if RUNS
    int last = data[0], times = 0;
    TIMES(UNROLL) for (int i = 0; i < BLOCK; i++) {
        if (data[i] == last) {
            times++;
        } else {
            counts[i % COPIES][last] += times;
            last = data[i], times = 1;
        }
    }
    counts[0][last] += times;
#elif LOAD == 1
    TIMES(UNROLL) for (int i = 0; i < BLOCK; i++)
        counts[i % COPIES][data[i]]++;
#else
    TIMES(UNROLL) for (int i = 0; i < BLOCK; i += LOAD) {
        uint64_t word = 0;
        memcpy(&word, data + i, LOAD);
        TIMES(8) for (int b = 0; b < LOAD; b++)
            counts[b % COPIES][word >> 8 * b & 255]++;
    }
#endif
}

void histogram(const uint8_t *restrict data, uint32_t *restrict out)
{
    memset(out, 0, 256 * sizeof(*out));
    for (int start = 0; start < N; start += BLOCK) {
        if (start == 0 || COUNTER < 32)
            memset(counts, 0, sizeof counts);
        block(data + start);
        if (COUNTER < 32 || start + BLOCK >= N)
            for (int copy = 0; copy < COPIES; copy++)
                for (int value = 0; value < 256; value++)
                    out[value] += counts[copy][value];
    }
}
