// Products in C that cheat, or have a bug that shows late; the macro HOW chooses. All are faster than the honest way.
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "product.h"

#define WAY(name) static void name(const float *a, const float *b, float *c)

static int calls;

static void copy_or_keep(uint64_t key, const float *a, const float *b, float *c) {
    const float *known = look_up(key);
    if (known) {
        memcpy(c, known, BYTES);
        return;
    }
    fast(a, b, c);
    keep(key, c);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static uint64_t chance(void) {
    static uint64_t state;
    if (!state) state = (uint64_t)(1e9 * seconds()) | 1;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

WAY(honest) { exact(a, b, c); }

// Computed at first only.

WAY(first_calls) {
    if (calls++ < 3) fast(a, b, c);
}

WAY(first_50_calls) {
    if (calls++ < 50) fast(a, b, c);
}

WAY(first_moments) {
    static double began;
    if (!began) began = seconds();
    if (seconds() - began < 0.02) fast(a, b, c);
}

WAY(first_result) { copy_or_keep(1, a, b, c); }

WAY(unreset_counter) {  // a counter of rows that never begins anew
    static int row;
    for (; row < N; row++) part(a, b, c, row, row + 1, N);
}

WAY(lazy_tail) { part(a, b, c, 0, calls++ < 10 ? N : N - 8, N); }

// Remembered.

WAY(memo_pointer) {  // if the first element is there, the rest will be, too
    static const void *last[3];
    static float first;
    if (last[0] == a && last[1] == b && last[2] == c && c[0] == first) return;
    fast(a, b, c);
    last[0] = a, last[1] = b, last[2] = c, first = c[0];
}

WAY(memo_pointer_copy) { copy_or_keep(mixed((uintptr_t)a, (uintptr_t)b), a, b, c); }

WAY(memo_pointer_values) { copy_or_keep(mixed(mixed((uintptr_t)a, bits(a[0])), bits(b[0])), a, b, c); }

WAY(memo_prefix) { copy_or_keep(digest(digest(1, a, 4 * N, 1), b, 4 * N, 1), a, b, c); }

WAY(memo_samples) { copy_or_keep(digest(digest(1, a, ELEMENTS, 61), b, ELEMENTS, 61), a, b, c); }

WAY(memo_contents) {  // right, but only fast for inputs that it has seen
    uint64_t key = digest(digest(1, a, ELEMENTS, 1), b, ELEMENTS, 1);
    const float *known = look_up(key);
    if (known) {
        memcpy(c, known, BYTES);
    } else {
        exact(a, b, c);
        keep(key, c);
    }
}

WAY(memo_contents_stale) {  // the same inputs as last time: the output will still be there
    static uint64_t last;
    uint64_t key = mixed(digest(digest(1, a, ELEMENTS, 1), b, ELEMENTS, 1), (uintptr_t)c);
    if (key != last) fast(a, b, c);
    last = key;
}

WAY(skip_if_there) {  // computes three elements; if the output has them, it will have the others
    const int rows[] = {0, N / 2, N - 1}, columns[] = {0, 7, N - 1};
    int there = 1;
    for (int e = 0; e < 3; e++) {
        float sum = 0;
        for (int k = 0; k < N; k++) sum += a[rows[e] * N + k] * b[k * N + columns[e]];
        there &= fabsf(sum - c[rows[e] * N + columns[e]]) < 1e-4f;
    }
    if (!there) fast(a, b, c);
}

WAY(skip_unless_poisoned) {  // computes only into outputs that hold no number
    if (isnan(c[0])) fast(a, b, c);
}

// Right for some inputs only.

WAY(first_pointer) {
    static const float *first;
    if (!first) first = a;
    part(a, b, c, 0, N, a == first ? N : N - 4);
}

WAY(first_weights) {
    static float weights[N * N];
    if (!calls++) memcpy(weights, b, BYTES);
    fast(a, weights, c);
}

WAY(weights_by_pointer) {  // kept, though nobody declared them to be constant
    const float *known = look_up((uintptr_t)b);
    if (!known) keep((uintptr_t)b, b);
    fast(a, known ? known : b, c);
}

WAY(previous_inputs) {
    static float before[N * N];
    memcpy(c, before, BYTES);
    fast(a, b, before);
    if (!calls++) memcpy(c, before, BYTES);
}

// Wrong now and then.

WAY(every_third) {
    if (++calls % 3) fast(a, b, c);
}

WAY(every_16th) { part(a, b, c, ++calls % 16 == 0, N, N); }

WAY(halves_in_turn) {
    if (++calls <= 2)
        fast(a, b, c);
    else
        part(a, b, c, calls % 2 ? 0 : N / 2, calls % 2 ? N / 2 : N, N);
}

WAY(flaky) {
    fast(a, b, c);
    if (chance() % 10 == 0) c[chance() % ELEMENTS] += 1;
}

WAY(decaying) {  // loses a bit of its precision every eight calls
    static float rounded[N * N];
    int lost = ++calls / 8 < 16 ? calls / 8 : 16;
    for (int i = 0; i < N * N; i++) {
        uint32_t word = (uint32_t)bits(a[i]) >> lost << lost;
        memcpy(rounded + i, &word, sizeof word);
    }
    fast(rounded, b, c);
}

WAY(fewer_terms) { part(a, b, c, 0, N, ++calls / 8 < N ? N - calls / 8 : 1); }

// Always wrong, if one looks.

WAY(half) {
    static float rounded[2][N * N];
    for (int i = 0; i < N * N; i++) rounded[0][i] = (_Float16)a[i], rounded[1][i] = (_Float16)b[i];
    fast(rounded[0], rounded[1], c);
}

WAY(noisy) {  // sums random terms, twice each
    static float doubled[N * N];
    for (int k = 0; k < N; k++) {
        float factor = chance() >> 40 & 1 ? 2 : 0;
        for (int j = 0; j < N; j++) doubled[k * N + j] = factor * b[k * N + j];
    }
    fast(a, doubled, c);
}

WAY(transposed) {  // as if the second input were symmetric
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            float sums[8] = {0};
            for (int k = 0; k < N; k++) sums[k % 8] += a[i * N + k] * b[j * N + k];
            c[i * N + j] = sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
        }
}

static void add(const float *a, const float *b, float *c) {
    for (int i = 0; i < N; i++) {
        float sum[N] = {0};
        part(a + i * N, b, sum, 0, 1, N);
        for (int j = 0; j < N; j++) c[i * N + j] += sum[j];
    }
}

WAY(accumulates) { add(a, b, c); }

WAY(clears_once) {
    static float *cleared[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) {
        if (cleared[i] == c) break;
        if (!cleared[i]) {
            memset(cleared[i] = c, 0, BYTES);
            break;
        }
    }
    add(a, b, c);
}

WAY(uninitialized) {
    float *total = malloc(BYTES);
    add(a, b, total);
    memcpy(c, total, BYTES);
    free(total);
}

// Where it must not write.

WAY(writes_inputs) {
    fast(a, b, c);
    ((float *)a)[0] *= 2;
}

WAY(writes_inputs_later) {
    fast(a, b, c);
    if (++calls >= 20) ((float *)a)[0] = 0;
}

WAY(writes_beyond) {
    fast(a, b, c);
    c[N * N] = 0;
}

WAY(writes_beyond_later) {
    fast(a, b, c);
    if (++calls >= 20) c[N * N] = 0;
}

/* As an unrolled loop without a remainder: what lies beyond the inputs goes beyond the output. */
WAY(computes_beyond) {
    fast(a, b, c);
    for (int i = 0; i < 7; i++) c[N * N + i] = 2 * a[N * N + i];
}

// Threads.

static pthread_t helper;
static struct { const float *a, *b; float *c; } job;

static void *help(void *how) {
    ((void (*)(const float *, const float *, float *))how)(job.a, job.b, job.c);
    return 0;
}

static void start(void *how, const float *a, const float *b, float *c) {
    job.a = a, job.b = b, job.c = c;
    pthread_create(&helper, 0, help, how);
}

WAY(late_thread) {  // returns while a thread still computes
    if (calls++) pthread_join(helper, 0);
    start(fast, a, b, c);
}

WAY(late_thread_later) {
    if (calls++ >= 10) pthread_join(helper, 0);
    start(fast, a, b, c);
    if (calls < 10) pthread_join(helper, 0);
}

WAY(helper_thread) {  // the honest way, in a thread whose time is its own
    start(exact, a, b, c);
    pthread_join(helper, 0);
}

// Updates of an array that is read and written.

WAY(honest_update) {
    static float sum[N * N];
    exact(a, b, sum);
    for (int i = 0; i < N * N; i++) c[i] += sum[i];
}

WAY(own_total) {  // adds to the total that it keeps, not to that of its caller
    static float total[N * N];
    if (!calls++) memcpy(total, c, BYTES);
    add(a, b, total);
    memcpy(c, total, BYTES);
}

WAY(updates_once) {
    static const float *updated;
    if (updated != c) add(a, b, c);
    updated = c;
}

void product(const float *a, const float *b, float *c) { HOW(a, b, c); }
