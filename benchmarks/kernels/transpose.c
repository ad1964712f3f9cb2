/* The transpose of H x W floats.

     TY, TX  the tile
     MY, MX  the block inside a tile that is held in registers
     ORDER   0: tiles by rows of the input; 1: by rows of the result
     INNER   0: blocks by rows of the input; 1: by rows of the result
     ASIDE   0: written in place; 1: a tile is put together aside first
     AHEAD   tiles ahead whose input is prefetched */

#include <string.h>

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_TY, knob_TX, knob_ORDER, knob_INNER, knob_AHEAD;

#define LARGEST (128 * 128)
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

static inline __attribute__((always_inline)) void block(const float *restrict in, float *restrict out, int pitch)
{
    float held[MY][MX];
    TIMES(16) for (int y = 0; y < MY; y++)
        TIMES(16) for (int x = 0; x < MX; x++)
            held[y][x] = in[y * W + x];
    TIMES(16) for (int x = 0; x < MX; x++)
        TIMES(16) for (int y = 0; y < MY; y++)
            out[x * pitch + y] = held[y][x];
}

static void tile(const float *restrict in, float *restrict out, int y0, int x0)
{
    static float aside[ASIDE ? LARGEST : 1] __attribute__((aligned(64)));
    float *to = ASIDE ? aside : out + x0 * H + y0;
    int pitch = ASIDE ? TY : H;
    const float *from = in + y0 * W + x0;
    if (AHEAD)
        for (int y = 0; y < TY; y++)
            __builtin_prefetch(from + y * W + AHEAD * TX);
    if (INNER == 0) {
        for (int y = 0; y < TY; y += MY)
            for (int x = 0; x < TX; x += MX)
                block(from + y * W + x, to + x * pitch + y, pitch);
    } else {
        for (int x = 0; x < TX; x += MX)
            for (int y = 0; y < TY; y += MY)
                block(from + y * W + x, to + x * pitch + y, pitch);
    }
    if (ASIDE)
        for (int x = 0; x < TX; x++)
            memcpy(out + (x0 + x) * H + y0, aside + x * TY, sizeof(float) * TY);
}

void transpose(const float *in, float *out)
{
    if (ORDER == 0) {
        for (int y = 0; y < H; y += TY)
            for (int x = 0; x < W; x += TX)
                tile(in, out, y, x);
    } else {
        for (int x = 0; x < W; x += TX)
            for (int y = 0; y < H; y += TY)
                tile(in, out, y, x);
    }
}
