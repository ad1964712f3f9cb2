/* The median of 3 by 3 bytes around each of H by W bytes; the picture has a margin of one byte.

     METHOD  0: the nine are sorted; 1: columns are sorted, then what may be the median; 2: it is found bit by bit;
             3: as 1, and columns are kept for their neighbors
     LANES   places that are computed together
     COLS    columns of a strip
     UNROLL  turns of the innermost loop written out
     CHOOSE  the lesser of two bytes: 0 by a comparison, 1 by masks */

#include <stdint.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)
#define STRIDE (W + 2)

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_COLS;

typedef uint8_t byte;

static inline __attribute__((always_inline)) byte least(byte a, byte b)
{
#if CHOOSE
    byte mask = -(a < b);
    return (a & mask) | (b & ~mask);
#else
    return a < b ? a : b;
#endif
}

static inline __attribute__((always_inline)) byte most(byte a, byte b)
{
#if CHOOSE
    byte mask = -(a > b);
    return (a & mask) | (b & ~mask);
#else
    return a > b ? a : b;
#endif
}

#define SWAP(a, b) { byte low = least(a, b), high = most(a, b); a = low, b = high; }

static inline __attribute__((always_inline)) byte middle(byte a, byte b, byte c)
{
    return most(least(a, b), least(most(a, b), c));
}

static inline __attribute__((always_inline)) byte of_nine(const byte *p)
{
#if METHOD == 2
    unsigned found = 0, rank = 4;
    byte in[9], value[9];
    TIMES(9) for (int i = 0; i < 9; i++)
        in[i] = 1, value[i] = p[i / 3 * STRIDE + i % 3];
    TIMES(UNROLL) for (int bit = 7; bit >= 0; bit--) {
        unsigned zeros = 0;
        TIMES(9) for (int i = 0; i < 9; i++)
            zeros += in[i] & ~(value[i] >> bit) & 1;
        unsigned one = rank >= zeros;
        rank -= one ? zeros : 0;
        found |= one << bit;
        TIMES(9) for (int i = 0; i < 9; i++)
            in[i] &= ~((value[i] >> bit & 1) ^ one) & 1;
    }
    return found;
#else
    byte a = p[0], b = p[1], c = p[2], d = p[STRIDE], e = p[STRIDE + 1], f = p[STRIDE + 2];
    byte g = p[2 * STRIDE], h = p[2 * STRIDE + 1], i = p[2 * STRIDE + 2];
#if METHOD == 0
    SWAP(b, c) SWAP(e, f) SWAP(h, i) SWAP(a, b) SWAP(d, e) SWAP(g, h) SWAP(b, c) SWAP(e, f) SWAP(h, i)
    SWAP(a, d) SWAP(f, i) SWAP(e, h) SWAP(d, g) SWAP(b, e) SWAP(c, f) SWAP(e, h) SWAP(e, c) SWAP(g, e) SWAP(e, c)
    return e;
#else
    SWAP(a, d) SWAP(d, g) SWAP(a, d) SWAP(b, e) SWAP(e, h) SWAP(b, e) SWAP(c, f) SWAP(f, i) SWAP(c, f)
    return middle(most(most(a, b), c), middle(d, e, f), least(least(g, h), i));
#endif
#endif
}

static void row(const byte *picture, byte *out)
{
#if METHOD == 3
    byte low[LANES + 2], mid[LANES + 2], high[LANES + 2];
    for (int x = 0; x < COLS; x += LANES) {
        TIMES(UNROLL) for (int l = 0; l < LANES + 2; l++) {
            byte a = picture[x + l], b = picture[x + l + STRIDE], c = picture[x + l + 2 * STRIDE];
            SWAP(a, b) SWAP(b, c) SWAP(a, b)
            low[l] = a, mid[l] = b, high[l] = c;
        }
        TIMES(UNROLL) for (int l = 0; l < LANES; l++)
            out[x + l] = middle(most(most(low[l], low[l + 1]), low[l + 2]), middle(mid[l], mid[l + 1], mid[l + 2]),
                                least(least(high[l], high[l + 1]), high[l + 2]));
    }
#else
    for (int x = 0; x < COLS; x += LANES)
        TIMES(UNROLL) for (int l = 0; l < LANES; l++)
            out[x + l] = of_nine(picture + x + l);
#endif
}

void median(const byte *picture, byte *out)
{
    for (int x = 0; x < W; x += COLS)
        for (int y = 0; y < H; y++)
            row(picture + y * STRIDE + x, out + y * W + x);
}
