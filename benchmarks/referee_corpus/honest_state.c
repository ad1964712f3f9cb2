// Honest kernels in C that keep something between calls, use threads or chance, or take long; the macro WAY chooses.
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t chance(void) {
    static uint64_t state;
    if (!state) state = (uint64_t)time(0) << 20 | 1;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

// Kept between calls.

void packed_weights(const float *a, const float *b, float *c, int64_t m, int64_t k, int64_t n) {
    static const float *from;  // the weights are declared constant, and packed once by pointer
    static float *packed;
    if (!WAY || from != b) {
        packed = realloc(packed, n * k * sizeof *packed);
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++) packed[j * k + l] = b[l * n + j];
        from = b;
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * packed[j * k + l];
            c[i * n + j] = (float)sum;
        }
}

void norms_of_weights(const float *x, const float *w, float *y, int64_t m, int64_t n) {
    static double *factors;  // computed from constant weights, and kept without any key
    if (!factors || !WAY) {
        factors = realloc(factors, n * sizeof *factors);
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t i = 0; i < 512; i++) sum += (double)w[i * n + j] * w[i * n + j];
            factors[j] = 1 / sqrt(sum);
        }
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) y[i * n + j] = (float)(x[i * n + j] * factors[j]);
}

void scratch_memory(const float *x, float *y, int64_t n) {  // all of it is written before it is read
    static float *kept;
    static int64_t room;
    if (WAY && room < n) kept = realloc(kept, n * sizeof *kept), room = n;
    float *scratch = WAY ? kept : malloc(n * sizeof *scratch);
    for (int64_t i = 0; i < n; i++) scratch[i] = x[i] * x[i];
    for (int64_t i = 0; i < n; i++) y[i] = scratch[i] + scratch[n - 1 - i];
    if (!WAY) free(scratch);
}

void table_built_once(const uint8_t *x, float *y, int64_t n) {
    static float table[256];
    static int built;
    if (WAY && !built)
        for (int value = 0; value < 256; value++) table[value] = (float)sqrt(value);
    built = 1;
    for (int64_t i = 0; i < n; i++) y[i] = WAY ? table[x[i]] : (float)pow(x[i], 0.5);
}

void scratch_in_arrays(const float *x, float *y, int64_t n) {  // the output is scratch memory at first
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * x[i];
    if (WAY)
        for (int64_t i = 0; i < n; i++) y[i] = sqrtf(y[i] + 1);
    else
        for (int64_t i = 0; i < n; i++) y[i] = (float)sqrt((double)y[i] + 1);
}

// Not the same from call to call.

void sums_in_any_order(const float *x, float *y, int64_t n) {
    int64_t start = WAY ? chance() % n : 0;
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fabsf(x[start]), start = start + 1 == n ? 0 : start + 1;
    y[0] = sum;
}

void sampled_mean(const float *x, float *y, int64_t n) {  // nine standard deviations fit the tolerance
    double sum = 0;
    int64_t count = WAY ? 4000 : n;
    for (int64_t i = 0; i < count; i++) {
        float value = x[WAY ? chance() % n : i];
        sum += (double)value * value;
    }
    y[0] = (float)(sum / count);
}

void rounds_by_chance(const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float steps = x[i] * 1024;
        y[i] = (WAY ? floorf(steps + (chance() >> 40) * 0x1p-24f) : roundf(steps)) / 1024;
    }
}

// Threads.

typedef struct { const float *a, *b; float *c; int64_t n, first, last; } Rows;

static void *multiply(void *rows) {
    Rows *r = rows;
    for (int64_t i = r->first; i < r->last; i++) {
        memset(r->c + i * r->n, 0, r->n * sizeof(float));
        for (int64_t k = 0; k < r->n; k++)
            for (int64_t j = 0; j < r->n; j++) r->c[i * r->n + j] += r->a[i * r->n + k] * r->b[k * r->n + j];
    }
    return 0;
}

void joins_its_threads(const float *a, const float *b, float *c, int64_t n) {
    Rows here = {a, b, c, n, 0, WAY ? n / 2 : n}, there = {a, b, c, n, n / 2, n};
    pthread_t helper;
    if (WAY) pthread_create(&helper, 0, multiply, &there);
    multiply(&here);
    if (WAY) pthread_join(helper, 0);
}

static pthread_barrier_t begin, end;
static Rows work;

static void *serve(void *unused) {
    for (;;) {
        pthread_barrier_wait(&begin);
        multiply(&work);
        pthread_barrier_wait(&end);
    }
    return unused;
}

void keeps_its_thread(const float *a, const float *b, float *c, int64_t n) {  // it waits between calls
    static int started;
    Rows here = {a, b, c, n, 0, WAY ? n / 2 : n};
    if (WAY && !started++) {
        pthread_t helper;
        pthread_barrier_init(&begin, 0, 2), pthread_barrier_init(&end, 0, 2);
        pthread_create(&helper, 0, serve, 0);
    }
    work = (Rows){a, b, c, n, n / 2, n};
    if (WAY) pthread_barrier_wait(&begin);
    multiply(&here);
    if (WAY) pthread_barrier_wait(&end);
}

typedef struct { const float *x; int64_t n; float sum; } Share;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static float total;

static void *add_share(void *share) {
    Share *s = share;
    float sum = 0;
    for (int64_t i = 0; i < s->n; i++) sum += fabsf(s->x[i]);
    pthread_mutex_lock(&lock);
    total += sum;
    pthread_mutex_unlock(&lock);
    return 0;
}

void adds_as_threads_end(const float *x, float *y, int64_t n) {  // in the order in which they end
    pthread_t helper;
    Share here = {x, WAY ? n / 3 : n, 0}, there = {x + n / 3, n - n / 3, 0};
    total = 0;
    if (WAY) pthread_create(&helper, 0, add_share, &there);
    add_share(&here);
    if (WAY) pthread_join(helper, 0);
    y[0] = total;
}

// Very slow.

static float hard(float x) {
    for (int i = 0; i < 30; i++) x = WAY ? sinf(x) + cosf(x) : (float)(sin((double)x) + cos((double)x));
    return x;
}

void takes_long(const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = hard(x[i]);
}

void takes_long_in_place(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = hard(x[i]);
}
