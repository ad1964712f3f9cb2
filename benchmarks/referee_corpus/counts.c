// Histograms of integers in C that cheat; the macro HOW chooses.
#include <stdint.h>
#include <string.h>

#define WAY(name) static void name(const int32_t *x, int32_t *y)

WAY(honest_histogram) {  // looks for the bin of each element
    memset(y, 0, 16 * sizeof *y);
    for (int64_t i = 0; i < N; i++) {
        int bin = 0;
        while (bin < 15 && x[i] > bin - 8) bin++;
        y[bin]++;
    }
}

static void count(const int32_t *x, int32_t *y, int step) {
    int32_t parts[4][16] = {0};
    for (int64_t i = 0; i < N; i += step) parts[i / step % 4][x[i] + 8] += step;
    for (int bin = 0; bin < 16; bin++) y[bin] = parts[0][bin] + parts[1][bin] + parts[2][bin] + parts[3][bin];
}

WAY(counts_by_pointer) {
    static const int32_t *known;
    static int32_t kept[16];
    if (known != x) count(known = x, kept, 1);
    memcpy(y, kept, sizeof kept);
}

WAY(counts_half) {  // at first every element, then every other one, twice
    static int calls;
    count(x, y, ++calls < 8 ? 1 : 2);
}

WAY(counts_on) {  // the counts of all calls together
    static int32_t total[16];
    int32_t now[16];
    count(x, now, 1);
    for (int bin = 0; bin < 16; bin++) y[bin] = total[bin] += now[bin];
}

void histogram(const int32_t *x, int32_t *y) { HOW(x, y); }
