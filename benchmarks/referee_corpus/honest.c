// Honest kernels in C, each with two or three ways to compute the same; the macro WAY chooses. Sizes are arguments.
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STEP (WAY == 0 ? 1 : 8)

// Arrays that are read and written.

void in_place(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = WAY ? 3 * x[i] + 1 : (float)(3.0 * x[i] + 1);
}

void accumulates_into(const float *a, const float *b, float *c, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (WAY) {
            for (int64_t k = 0; k < n; k++)
                for (int64_t j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
        } else {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < n; k++) sum += (double)a[i * n + k] * b[k * n + j];
                c[i * n + j] += (float)sum;
            }
        }
    }
}

void writes_in_part(const float *x, float *y, int64_t n) {  // every other element stays as it was
    if (WAY)
        for (int64_t i = 0; i < n; i += 2) y[i] = sqrtf(fabsf(x[i]));
    else
        for (int64_t i = 0; i < n; i++) y[i] = i % 2 ? y[i] : (float)sqrt(fabs(x[i]));
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void sorts_in_place(float *x, int64_t n) {
    if (!WAY) {
        qsort(x, n, sizeof *x, ascending);
        return;
    }
    for (int64_t gap = n / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (int64_t i = gap; i < n; i++) {
            float value = x[i];
            int64_t j = i;
            for (; j >= gap && x[j - gap] > value; j -= gap) x[j] = x[j - gap];
            x[j] = value;
        }
}

// Sizes, types and scalars.

void one_element(const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = WAY ? x[i] + x[i] : 2 * x[i];
}

void few_elements(const float *x, float *y, int64_t n) {  // takes nanoseconds
    float sum = 0;
    if (WAY)
        for (int64_t i = n; i--;) sum += x[i];
    else
        for (int64_t i = 0; i < n; i++) sum += x[i];
    y[0] = sum;
}

void scalars(const float *x, float *y, double alpha, int64_t shift, int64_t n) {
    if (WAY) {
        for (int64_t i = shift; i < n; i++) y[i] += (float)alpha * x[i - shift];
        for (int64_t i = 0; i < shift; i++) y[i] += (float)alpha * x[n + i - shift];
    } else {
        for (int64_t i = 0; i < n; i++) y[i] += (float)(alpha * x[(n + i - shift) % n]);
    }
}

void integer_product(const int64_t *a, const int64_t *b, int64_t *c, int64_t n) {
    if (WAY) memset(c, 0, n * n * sizeof *c);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < n; k++)
                if (WAY)
                    c[i * n + k] += a[i * n + j] * b[j * n + k];
                else
                    sum += a[i * n + k] * b[k * n + j];
            if (!WAY) c[i * n + j] = sum;
        }
}

void makes_a_mask(const float *x, bool *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = WAY ? x[i] * x[i] > 1 : x[i] > 1 || x[i] < -1;
}

void takes_a_mask(const float *x, const bool *mask, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = WAY ? x[i] * mask[i] : mask[i] ? x[i] : 0;
}

void counts(const int32_t *x, int32_t *y, int64_t n) {
    int32_t parts[STEP][16];
    memset(parts, 0, sizeof parts);
    for (int64_t i = 0; i < n; i++) parts[i % STEP][x[i] + 8]++;
    memset(y, 0, 16 * sizeof *y);
    for (int part = 0; part < STEP; part++)
        for (int bin = 0; bin < 16; bin++) y[bin] += parts[part][bin];
}

void saturates(const uint8_t *x, uint8_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int value = 40 * x[i] - 30;
        y[i] = WAY ? (value < 0 ? 0 : value > 255 ? 255 : value) : (int)fmin(fmax(value, 0.0), 255.0);
    }
}

void half_precision(const _Float16 *x, _Float16 *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = WAY ? 1 / (1 + fabsf((float)x[i])) : 1 / (1 + fabs((double)x[i]));
}

void complex_numbers(const float *z, float *y, int64_t n) {  // z times its conjugate, and i times z
    for (int64_t i = 0; i < n; i++) {
        float re = z[2 * i], im = z[2 * i + 1];
        y[2 * i] = WAY ? fmaf(re, re, im * im) - im : (float)((double)re * re + (double)im * im - im);
        y[2 * i + 1] = re;
    }
}

void gives_nan_and_inf(const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (i % 100 == 0)
            y[i] = x[i] / 0.0f;
        else
            y[i] = WAY ? logf(x[i]) : (float)log((double)x[i]);
    }
}

// Reductions, several outputs, and the like.

void sums(const float *x, float *y, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; i++) {
        double parts[STEP];
        memset(parts, 0, sizeof parts);
        for (int64_t j = 0; j < n; j++) parts[j % STEP] += x[i * n + j];
        for (int part = 1; part < STEP; part++) parts[0] += parts[part];
        y[i] = (float)parts[0];
    }
}

void several_outputs(const float *x, float *mean, float *variance, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; i++) {
        double sum = 0, squares = 0;
        for (int64_t j = 0; j < n; j++) sum += x[i * n + j], squares += WAY ? (double)x[i * n + j] * x[i * n + j] : 0;
        mean[i] = (float)(sum / n);
        if (!WAY)
            for (int64_t j = 0; j < n; j++) squares += (x[i * n + j] - sum / n) * (x[i * n + j] - sum / n);
        variance[i] = (float)(WAY ? squares / n - sum / n * (sum / n) : squares / n);
    }
}

void running_sums(const double *x, double *y, int64_t n) {  // a WAY of 0 means: no blocks
    double total = 0;
    for (int64_t start = 0, step = WAY ? WAY : n; start < n; start += step) {
        double part = 0;
        for (int64_t i = start; i < n && i < start + step; i++) y[i] = total + (part += x[i]);
        total += part;
    }
}

void softmax(const float *x, float *y, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; i++) {
        float top = 0, sum = 0;
        for (int64_t j = 0; !WAY && j < n; j++) top = fmaxf(top, x[i * n + j]);
        for (int64_t j = 0; j < n; j++) sum += y[i * n + j] = expf(x[i * n + j] - top);
        for (int64_t j = 0; j < n; j++) y[i * n + j] /= sum;
    }
}

void transposes(const float *x, float *y, int64_t m, int64_t n) {
    int64_t step = WAY ? 16 : m + n;
    for (int64_t row = 0; row < m; row += step)
        for (int64_t column = 0; column < n; column += step)
            for (int64_t i = row; i < m && i < row + step; i++)
                for (int64_t j = column; j < n && j < column + step; j++) y[j * m + i] = x[i * n + j];
}

void without_reference(const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = WAY ? floorf(x[i]) : (float)floor((double)x[i]);
}
