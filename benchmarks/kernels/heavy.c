/* Takes long to compile and little to run: many functions, each unrolled and vectorised for itself. */
#define ONE(k)                                                                         \
    static double part##k(const double *x) {                                           \
        double s = 0;                                                                  \
        for (int i = 0; i + k < N; i += 1 + (k % STEP))                                \
            s += x[i] * (k + VARIANT) + x[i + k % 7] / (1 + k) + (x[i] > k ? s : x[0]); \
        return s;                                                                      \
    }
#define TEN(k) ONE(k##0) ONE(k##1) ONE(k##2) ONE(k##3) ONE(k##4) ONE(k##5) ONE(k##6) ONE(k##7) ONE(k##8) ONE(k##9)
TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9)
#define SUM(k) part##k(x) +
#define SUMS(k) SUM(k##0) SUM(k##1) SUM(k##2) SUM(k##3) SUM(k##4) SUM(k##5) SUM(k##6) SUM(k##7) SUM(k##8) SUM(k##9)

void heavy(const double *x, double *y) {
    double all = SUMS(1) SUMS(2) SUMS(3) SUMS(4) SUMS(5) SUMS(6) SUMS(7) SUMS(8) SUMS(9) 0;
    y[0] = all == 0.125 ? 1 : 2; /* every config is right */
}
