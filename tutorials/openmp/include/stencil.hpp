#pragma once

// The sum over the neighbors at distance 1 to R along each axis, minus the center as often.
template <typename T, int R>
inline T laplace(const T *u, long i, long row, long plane) {
    T sum = -6 * R * u[i];
    for (int r = 1; r <= R; r++)
        sum += u[i - r] + u[i + r] + u[i - r * row] + u[i + r * row] + u[i - r * plane] + u[i + r * plane];
    return sum;
}

extern "C" double damp(double x);
