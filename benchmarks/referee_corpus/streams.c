// Kernels in C other than products that cheat, or have a bug that shows late; the macro HOW chooses.
#include <math.h>
#include <stdint.h>

#define WAY(name) static void name(const float *x, float *y)

static int calls;

// Stencils: each element with half of its neighbors, and nothing beyond the ends.

WAY(honest_stencil) {
    for (int64_t i = 0; i < N; i++) y[i] = x[i] + ((i ? (double)x[i - 1] : 0) + (i < N - 1 ? x[i + 1] : 0)) / 2;
}

WAY(reads_beyond) {  // takes what lies beyond the ends for zeros
    for (int64_t i = 0; i < N; i++) y[i] = x[i] + (x[i - 1] + x[i + 1]) / 2;
}

// Norms: a vector of length one.

static float norm(const float *x) {
    float sums[16] = {0}, sum = 0;
    for (int64_t i = 0; i < N; i++) sums[i % 16] += x[i] * x[i];
    for (int i = 0; i < 16; i++) sum += sums[i];
    return sqrtf(sum);
}

WAY(honest_norm) {
    double sum = 0;
    for (int64_t i = 0; i < N; i++) sum += (double)x[i] * x[i];
    for (int64_t i = 0; i < N; i++) y[i] = x[i] / sqrt(sum);
}

WAY(stale_norm) {  // divides by the norm of the call before
    static float before;
    float now = norm(x), factor = 1 / (calls++ ? before : now);
    for (int64_t i = 0; i < N; i++) y[i] = x[i] * factor;
    before = now;
}

WAY(first_norm) {
    static float factor;
    if (!calls++) factor = 1 / norm(x);
    for (int64_t i = 0; i < N; i++) y[i] = x[i] * factor;
}

WAY(stale_total) {  // an accumulator that is not reset
    static float sums[16];
    float sum = 0;
    for (int64_t i = 0; i < N; i++) sums[i % 16] += x[i] * x[i];
    for (int i = 0; i < 16; i++) sum += sums[i];
    for (int64_t i = 0; i < N; i++) y[i] = x[i] / sqrtf(sum);
}

void stream(const float *x, float *y) { HOW(x, y); }
