/* For Q numbers: how many of the N sorted keys are smaller.

     METHOD  0: halves, with branches; 1: halves, without branches; 2: the high BITS say where to look, then halves;
             3: one of FAN parts after the other, by comparing with all their ends
     BITS    of a key that METHOD 2 looks up in a table, which is made at the first call with these keys and kept: they
             must not change
     FAN     parts of METHOD 3
     LEAF    what is left is counted when there are so few keys
     BATCH   numbers that are looked up together
     AHEAD   1: the keys that may come next are prefetched */

#include <stdint.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

static uint32_t starts[(1 << BITS) + 1];
static const uint32_t *known;

static void fill(const uint32_t *keys)
{
    uint32_t place = 0;
    for (uint32_t i = 0; i <= 1u << BITS; i++) {
        while (place < N && (uint64_t)keys[place] < (uint64_t)i << (32 - BITS))
            place++;
        starts[i] = place;
    }
    known = keys;
}

static inline __attribute__((always_inline)) uint32_t counted(const uint32_t *keys, uint32_t count, uint32_t number)
{
    uint32_t smaller = 0;
    for (uint32_t i = 0; i < count; i++)
        smaller += keys[i] < number;
    return smaller;
}

/* A step of each of the numbers that are looked up together: `from` is where its keys begin, `left` how many. */
static inline __attribute__((always_inline)) void step(const uint32_t *keys, uint32_t number, uint32_t *from, uint32_t *left)
{
    uint32_t count = *left, first = *from;
    if (count <= LEAF)
        return;
#if METHOD == 3
    uint32_t part = count / FAN, passed = 0;
    for (uint32_t i = 1; i < FAN; i++)
        passed += keys[first + i * part - 1] < number;
    *from = first + passed * part;
    *left = passed == FAN - 1 ? count - passed * part : part;
#else
    uint32_t half = count / 2;
#if AHEAD
    __builtin_prefetch(keys + first + half / 2);
    __builtin_prefetch(keys + first + half + half / 2);
#endif
#if METHOD == 0
    if (keys[first + half - 1] < number) {
        *from = first + half;
        *left = count - half;
    } else
        *left = half;
#else
    *from = first + (keys[first + half - 1] < number) * half;
    *left = count - half;
#endif
#endif
}

void lookup(const uint32_t *keys, const uint32_t *numbers, uint32_t *out)
{
    if (METHOD == 2 && known != keys)
        fill(keys);
    for (int q = 0; q < Q; q += BATCH) {
        uint32_t from[BATCH], left[BATCH], most = 0;
        for (int b = 0; b < BATCH; b++) {
            from[b] = 0, left[b] = N;
            if (METHOD == 2) {
                uint32_t high = numbers[q + b] >> (32 - BITS);
                from[b] = starts[high], left[b] = starts[high + 1] - starts[high];
            }
            most = left[b] > most ? left[b] : most;
        }
        while (most > LEAF) {
            most = 0;
            TIMES(32) for (int b = 0; b < BATCH; b++) {
                step(keys, numbers[q + b], &from[b], &left[b]);
                most = left[b] > most ? left[b] : most;
            }
        }
        for (int b = 0; b < BATCH; b++)
            out[q + b] = from[b] + counted(keys + from[b], left[b], numbers[q + b]);
    }
}
