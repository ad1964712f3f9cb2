/* The edit distance of two strings of N bytes: the last row of the table of all prefixes.

     METHOD   0: some rows at once, column by column; 1: diagonals of a strip of rows
     TILE     rows at once, or of a strip
     TYPE     bits of a distance
     WIDE     1: characters are copied to numbers of that size first
     LEAST    the least of three: 0 by comparisons, 1 by arithmetic
     UNROLL   turns of the innermost loop written out */

#include <stdint.h>

#define PRAGMA(text) _Pragma(#text)
#define TIMES(count) PRAGMA(GCC unroll count)

#if TYPE == 16
typedef int16_t number;
#else
typedef int32_t number;
#endif
#if WIDE
typedef number letter;
#else
typedef uint8_t letter;
#endif

static number above[N + 1];

static inline __attribute__((always_inline)) number least(number x, number y)
{
#if LEAST
    number less = x - y;
    return y + (less & (less >> (TYPE - 1)));
#else
    return x < y ? x : y;
#endif
}

static inline __attribute__((always_inline)) number cell(number left, number up, number corner, int differ)
{
    return least(least(left, up) + 1, corner + differ);
}

#if METHOD == 0
/* Rows `first` to `first + TILE`; `above` is the row before them, then the last of them. */
static void strip(const letter *a, const letter *b, int first)
{
    number row[TILE];
    number last = first;
    TIMES(16) for (int r = 0; r < TILE; r++)
        row[r] = first + r + 1;
    above[0] = first + TILE;
    TIMES(UNROLL) for (int j = 1; j <= N; j++) {
        number corner = last, up = last = above[j];
        TIMES(16) for (int r = 0; r < TILE; r++) {
            number now = cell(row[r], up, corner, a[first + r] != b[j - 1]);
            corner = row[r], row[r] = up = now;
        }
        above[j] = up;
    }
}
#else
/* Cells of a diagonal are (i, d - i); `b` is reversed, so that both strings are read forward. */
static void strip(const letter *a, const letter *reversed, int first)
{
    static number rows[3][TILE + 1], below[N + 1];
    number *before = rows[0], *last = rows[1], *now = rows[2];
    for (int d = 0; d <= TILE + N; d++) {
        int low = d > N ? d - N : 1, high = d - 1 < TILE ? d - 1 : TILE;
        const letter *x = a + first - 1, *y = reversed + N - d;
        TIMES(UNROLL) for (int i = low; i <= high; i++)
            now[i] = cell(last[i], last[i - 1], before[i - 1], x[i] != y[i]);
        if (d <= N)
            now[0] = above[d];
        if (d <= TILE)
            now[d] = first + d;
        if (d >= TILE)
            below[d - TILE] = now[TILE];
        number *oldest = before;
        before = last, last = now, now = oldest;
    }
    for (int j = 0; j <= N; j++)
        above[j] = below[j];
}
#endif

void align(const uint8_t *a, const uint8_t *b, int32_t *out)
{
    static letter first[N], second[N];
    for (int i = 0; i < N; i++)
        first[i] = a[i], second[i] = b[METHOD ? N - 1 - i : i];
    for (int j = 0; j <= N; j++)
        above[j] = j;
    for (int i = 0; i < N; i += TILE)
        strip(first, second, i);
    for (int j = 0; j < N; j++)
        out[j] = above[j + 1];
}
