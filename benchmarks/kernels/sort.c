/* N unsigned numbers in order.

     METHOD  0: merging runs, from small ones up; 1: by digits of BITS bits, least first
     CUT     numbers of a small run (merging)
     SMALL   how small runs are sorted: 0: by insertion; 1: by selection; 2: by exchanging neighbors, odd and even
     MERGE   0: with branches; 1: without; 2: from both ends without
     BITS    of a digit
     BATCH   counters of digits that are filled side by side
     UNROLL  turns of the innermost loops written out */

#include <stdint.h>
#include <string.h>

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

static uint32_t other[N];

#if METHOD == 0
static void small(uint32_t *a, int count)
{
#if SMALL == 0
    for (int i = 1; i < count; i++) {
        uint32_t value = a[i];
        int j = i;
        for (; j > 0 && a[j - 1] > value; j--)
            a[j] = a[j - 1];
        a[j] = value;
    }
#elif SMALL == 1
    for (int i = 0; i + 1 < count; i++) {
        int least = i;
        TIMES(UNROLL) for (int j = i + 1; j < count; j++)
            least = a[j] < a[least] ? j : least;
        uint32_t value = a[i];
        a[i] = a[least], a[least] = value;
    }
#else
    for (int pass = 0; pass < count; pass++)
        TIMES(UNROLL) for (int i = pass % 2; i + 1 < count; i += 2) {
            uint32_t x = a[i], y = a[i + 1];
            a[i] = x < y ? x : y, a[i + 1] = x < y ? y : x;
        }
#endif
}

static void merge(const uint32_t *restrict a, int m, const uint32_t *restrict b, int n, uint32_t *restrict out)
{
    int i = 0, j = 0, k = 0;
#if MERGE == 0
    while (i < m && j < n)
        out[k++] = b[j] < a[i] ? b[j++] : a[i++];
#elif MERGE == 1
    TIMES(UNROLL) while (i < m && j < n) {
        uint32_t x = a[i], y = b[j];
        int second = y < x;
        out[k++] = second ? y : x;
        i += !second, j += second;
    }
#else
    if (m == n) {
        int p = m - 1, q = n - 1, end = m + n - 1;
        TIMES(UNROLL) for (k = 0; k < m; k++, end--) {
            uint32_t x = a[i], y = b[j], u = a[p], v = b[q];
            int second = y < x, last = u > v;
            out[k] = second ? y : x;
            out[end] = last ? u : v;
            i += !second, j += second, p -= last, q -= !last;
        }
        return;
    }
    while (i < m && j < n) {
        int second = b[j] < a[i];
        out[k++] = second ? b[j] : a[i];
        i += !second, j += second;
    }
#endif
    memcpy(out + k, a + i, sizeof(*a) * (m - i));
    memcpy(out + k + m - i, b + j, sizeof(*b) * (n - j));
}

void sort(const uint32_t *in, uint32_t *out)
{
    uint32_t *from = out, *to = other;
    memcpy(from, in, sizeof(*in) * N);
    for (int i = 0; i < N; i += CUT)
        small(from + i, MIN(CUT, N - i));
    for (int run = CUT; run < N; run *= 2) {
        for (int i = 0; i < N; i += 2 * run) {
            int m = MIN(run, N - i), n = MIN(run, N - i - m);
            merge(from + i, m, from + i + m, n, to + i);
        }
        uint32_t *swap = from;
        from = to, to = swap;
    }
    if (from != out)
        memcpy(out, from, sizeof(*in) * N);
}
#else
void sort(const uint32_t *in, uint32_t *out)
{
    static uint32_t counts[BATCH][1 << BITS];
    const uint32_t *from = in;
    int passes = (32 + BITS - 1) / BITS, shift = 0;
    for (int pass = 0; pass < passes; pass++, shift += BITS) {
        uint32_t *to = (passes - pass) % 2 ? out : other, total = 0;
        memset(counts, 0, sizeof counts);
        TIMES(UNROLL) for (int i = 0; i < N; i++)
            counts[i % BATCH][from[i] >> shift & ((1u << BITS) - 1)]++;
        for (int digit = 0; digit < 1 << BITS; digit++) {
            uint32_t count = 0;
            for (int b = 0; b < BATCH; b++)
                count += counts[b][digit];
            counts[0][digit] = total, total += count;
        }
        TIMES(UNROLL) for (int i = 0; i < N; i++)
            to[counts[0][from[i] >> shift & ((1u << BITS) - 1)]++] = from[i];
        from = to;
    }
}
#endif
