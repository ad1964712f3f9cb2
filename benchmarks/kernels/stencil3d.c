/* One step of a seven-point stencil inside D x H x W floats; the border becomes zero.

     TZ, TY, TX  the tile
     ORDER       which loop over tiles is outermost: 0: z y x, 1: y z x, 2: x y z
     XU          turns of the innermost loop written out
     AHEAD       elements ahead that are prefetched from the next plane; 0: none
     SUM         0: neighbors are added one by one; 1: in pairs */

#include <string.h>

/* Knobs that may be given at run time: -DX=knob_X instead of a number. */
int knob_TZ, knob_TY, knob_TX, knob_ORDER;

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

static void tile(const float *restrict in, float *restrict out, int z0, int y0, int x0)
{
    for (int z = z0; z < MIN(z0 + TZ, D - 1); z++)
        for (int y = y0; y < MIN(y0 + TY, H - 1); y++) {
            const float *p = in + (z * H + y) * W;
            float *q = out + (z * H + y) * W;
            if (AHEAD)
                for (int x = x0; x < MIN(x0 + TX, W - 1); x += 16)
                    __builtin_prefetch(p + H * W + AHEAD + x);
            TIMES(XU) for (int x = x0; x < MIN(x0 + TX, W - 1); x++)
                q[x] = SUM ? 0.4f * p[x] + 0.1f * ((p[x - 1] + p[x + 1]) + (p[x - W] + p[x + W]) +
                                                   (p[x - H * W] + p[x + H * W]))
                           : 0.4f * p[x] + 0.1f * (p[x - 1] + p[x + 1] + p[x - W] + p[x + W] + p[x - H * W] +
                                                   p[x + H * W]);
        }
}

static void clear_border(float *out)
{
    memset(out, 0, sizeof(float) * H * W);
    memset(out + (D - 1) * H * W, 0, sizeof(float) * H * W);
    for (int z = 1; z < D - 1; z++) {
        memset(out + z * H * W, 0, sizeof(float) * W);
        memset(out + (z * H + H - 1) * W, 0, sizeof(float) * W);
        for (int y = 1; y < H - 1; y++)
            out[(z * H + y) * W] = out[(z * H + y) * W + W - 1] = 0;
    }
}

void stencil3d(const float *in, float *out)
{
    clear_border(out);
    if (ORDER == 0) {
        for (int z = 1; z < D - 1; z += TZ)
            for (int y = 1; y < H - 1; y += TY)
                for (int x = 1; x < W - 1; x += TX)
                    tile(in, out, z, y, x);
    } else if (ORDER == 1) {
        for (int y = 1; y < H - 1; y += TY)
            for (int z = 1; z < D - 1; z += TZ)
                for (int x = 1; x < W - 1; x += TX)
                    tile(in, out, z, y, x);
    } else {
        for (int x = 1; x < W - 1; x += TX)
            for (int y = 1; y < H - 1; y += TY)
                for (int z = 1; z < D - 1; z += TZ)
                    tile(in, out, z, y, x);
    }
}
