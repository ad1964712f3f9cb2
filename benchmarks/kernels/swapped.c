/* BATCH matrices of H x W floats, each transposed.

     TY, TX  the tile
     MY, MX  the block inside a tile that is held in registers
     ORDER   0: tiles by rows of the input; 1: by rows of the result
     REST    what fills no block: 0 one by one; 1 in a block that ends with the last row or column */

#include <stdint.h>

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

typedef struct { const float *in; float *out; int64_t h, w; } matrix;

static inline __attribute__((always_inline)) void block(matrix m, int64_t y0, int64_t x0)
{
    float held[MY][MX];
    TIMES(16) for (int y = 0; y < MY; y++)
        TIMES(16) for (int x = 0; x < MX; x++)
            held[y][x] = m.in[(y0 + y) * m.w + x0 + x];
    TIMES(16) for (int x = 0; x < MX; x++)
        TIMES(16) for (int y = 0; y < MY; y++)
            m.out[(x0 + x) * m.h + y0 + y] = held[y][x];
}

static void singly(matrix m, int64_t y0, int64_t y1, int64_t x0, int64_t x1)
{
    for (int64_t y = y0; y < y1; y++)
        for (int64_t x = x0; x < x1; x++)
            m.out[x * m.h + y] = m.in[y * m.w + x];
}

static void tile(matrix m, int64_t y0, int64_t y1, int64_t x0, int64_t x1)
{
    if (REST && y1 - y0 >= MY && x1 - x0 >= MX) {
        for (int64_t y = y0; y < y1; y += MY)
            for (int64_t x = x0; x < x1; x += MX)
                block(m, MIN(y, y1 - MY), MIN(x, x1 - MX));
        return;
    }
    int64_t y2 = y1 - (y1 - y0) % MY, x2 = x1 - (x1 - x0) % MX;
    for (int64_t y = y0; y < y2; y += MY)
        for (int64_t x = x0; x < x2; x += MX)
            block(m, y, x);
    singly(m, y0, y2, x2, x1);
    singly(m, y2, y1, x0, x1);
}

void swapped(const float *in, float *out, int64_t batch, int64_t h, int64_t w)
{
    for (int64_t b = 0; b < batch; b++) {
        matrix m = {in + b * h * w, out + b * h * w, h, w};
        if (ORDER == 0) {
            for (int64_t y = 0; y < h; y += TY)
                for (int64_t x = 0; x < w; x += TX)
                    tile(m, y, MIN(y + TY, h), x, MIN(x + TX, w));
        } else {
            for (int64_t x = 0; x < w; x += TX)
                for (int64_t y = 0; y < h; y += TY)
                    tile(m, y, MIN(y + TY, h), x, MIN(x + TX, w));
        }
    }
}
