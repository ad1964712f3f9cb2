// Honest kernels in C whose arguments come from a function of the user: what holds for them is relied on, and out of
// it they read where they must not. The macro WAY chooses.
#include <math.h>
#include <stdint.h>
#include <string.h>

void finds_places(const double *edges, const double *x, int64_t *place, int64_t n) {  // 512 edges, in order
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        if (WAY)
            for (int64_t step = 512; step; step /= 2) at += at + step <= 512 && edges[at + step - 1] < x[i] ? step : 0;
        else
            while (at < 512 && edges[at] < x[i]) at++;
        place[i] = at;
    }
}

void draws_from(const double *cdf, const double *u, double *y, int64_t n) {  // the last of 256 is one, u is less
    for (int64_t i = 0; i < n; i++) {
        int64_t at = WAY && u[i] >= cdf[128] ? 128 : 0;
        while (cdf[at] <= u[i]) at++;
        y[i] = (double)at;
    }
}

void sparse_product(const int64_t *begins, const int64_t *columns, const double *values, const double *x, double *y,
                    int64_t n) {
    for (int64_t row = 0; row < n; row++) {
        double sum = 0, other = 0;
        int64_t at = begins[row], end = begins[row + 1];
        for (; WAY && at + 1 < end; at += 2)
            sum += values[at] * x[columns[at]], other += values[at + 1] * x[columns[at + 1]];
        for (; at < end; at++) sum += values[at] * x[columns[at]];
        y[row] = sum + other;
    }
}

void impurity(const double *p, double *y, int64_t n) {  // rows sum to one, so the formulas are equal
    for (int64_t i = 0; i < 64; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += WAY ? p[i * n + j] * (1 - p[i * n + j]) : p[i * n + j] * p[i * n + j];
        y[i] = WAY ? sum : 1 - sum;
    }
}

void cosines(const double *x, const double *y, double *c, int64_t n) {  // vectors have length one
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double dot = 0, xx = 0, yy = 0;
            for (int64_t k = 0; k < 64; k++) dot += x[i * 64 + k] * y[j * 64 + k];
            for (int64_t k = 0; !WAY && k < 64; k++) xx += x[i * 64 + k] * x[i * 64 + k], yy += y[j * 64 + k] * y[j * 64 + k];
            c[i * n + j] = WAY ? dot : dot / sqrt(xx * yy);
        }
}

void reorders(const int64_t *place, const float *x, float *y, int64_t n) {  // each place occurs once
    for (int64_t i = 0; i < n; i++) {
        if (WAY)
            y[place[i]] = x[i];
        else
            memcpy(y + place[i], x + i, sizeof *y);
    }
}

void solves(const double *a, const double *b, double *x, int64_t n) {  // symmetric, with positive eigenvalues
    double l[n][n], z[n];
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = j; i < n; i++) {
            double sum = WAY ? a[j * n + i] : a[i * n + j];
            for (int64_t k = 0; k < j; k++) sum -= l[i][k] * l[j][k];
            l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
        }
    for (int64_t i = 0; i < n; i++) {
        z[i] = b[i];
        for (int64_t k = 0; k < i; k++) z[i] -= l[i][k] * z[k];
        z[i] /= l[i][i];
    }
    for (int64_t i = n; i--;) {
        x[i] = z[i];
        for (int64_t k = i + 1; k < n; k++) x[i] -= l[k][i] * x[k];
        x[i] /= l[i][i];
    }
}

void roots_of_extremes(const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = WAY ? sqrtf(x[i]) : (float)sqrt((double)x[i]);
}
