/* How often a pattern of P bytes occurs in each of N / BLOCK parts of a text; the text has a margin of 64 bytes.

     METHOD  0: compare at each place; 1: jump by the last byte (Horspool); 2: bits of all prefixes (Shift-And);
             3: compare one byte of LANES places, then the rest; 4: as 3 with two bytes
     LANES   places that are compared together
     FIRST   which byte is compared first
     CHECK   how the rest is compared: 0: memcmp; 1: a loop; 2: words
     UNROLL  turns of the innermost loop written out */

#include <stdint.h>
#include <string.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

static inline int equal(const uint8_t *text, const uint8_t *pattern)
{
#if CHECK == 0
    return memcmp(text, pattern, P) == 0;
#elif CHECK == 1
    for (int i = 0; i < P; i++)
        if (text[i] != pattern[i])
            return 0;
    return 1;
#else
    uint64_t a, b, c, d;
    memcpy(&a, text, 8), memcpy(&b, pattern, 8), memcpy(&c, text + P - 8, 8), memcpy(&d, pattern + P - 8, 8);
    return ((a ^ b) | (c ^ d)) == 0;
#endif
}

static uint32_t part(const uint8_t *text, const uint8_t *pattern)
{
    uint32_t found = 0;
#if METHOD == 0
    TIMES(UNROLL) for (int i = 0; i < BLOCK; i++)
        if (text[i + FIRST] == pattern[FIRST])
            found += equal(text + i, pattern);
#elif METHOD == 1
    uint8_t jump[256];
    memset(jump, P, sizeof jump);
    for (int i = 0; i < P - 1; i++)
        jump[pattern[i]] = P - 1 - i;
    for (int i = 0; i < BLOCK;) {
        uint8_t last = text[i + P - 1];
        if (last == pattern[P - 1])
            found += equal(text + i, pattern);
        i += jump[last];
    }
#elif METHOD == 2
    uint32_t masks[256] = {0}, state = 0;
    for (int i = 0; i < P; i++)
        masks[pattern[i]] |= 1u << i;
    TIMES(UNROLL) for (int i = 0; i < BLOCK + P - 1; i++) {
        state = (state << 1 | 1) & masks[text[i]];
        found += state >> (P - 1) & 1;
    }
#else
    for (int i = 0; i < BLOCK; i += LANES) {
        uint8_t hit[LANES], any = 0;
        TIMES(64) for (int l = 0; l < LANES; l++) {
            hit[l] = text[i + l + FIRST] == pattern[FIRST];
            if (METHOD == 4)
                hit[l] &= text[i + l + P - 1] == pattern[P - 1];
            any |= hit[l];
        }
        if (any)
            TIMES(UNROLL) for (int l = 0; l < LANES; l++)
                if (hit[l])
                    found += equal(text + i + l, pattern);
    }
#endif
    return found;
}

void find(const uint8_t *text, const uint8_t *pattern, uint32_t *out)
{
    for (int block = 0; block < N / BLOCK; block++)
        out[block] = part(text + block * BLOCK, pattern);
}
