// Every way a candidate can misbehave, chosen by the macro CASE (see faulty.py).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if CASE == 4
#error this candidate does not compile
#endif

void twice(const float *x, float *y) {
#if CASE == 1
    *(volatile int *)0 = 1;
#elif CASE == 2
    for (;;) pause();
#elif CASE == 3
    for (;;) memset(malloc(1 << 24), 1, 1 << 24);
#elif CASE == 10
    _exit(3);
#elif CASE == 11
    abort();
#elif CASE == 14
    for (FILE *file = tmpfile();;) fwrite(x, sizeof *x, N, file);
#elif CASE == 12
    for (volatile long i = 0;; i++) {}
#elif CASE == 13
    for (;; usleep(20000)) memset(malloc(1 << 20), 1, 1 << 20);
#endif
    for (int i = 0; i < N; i++) y[i] = (CASE == 5 ? 3 : 2) * x[i];
#if CASE == 6
    y[N] = 1;
#elif CASE == 7
    ((float *)x)[0] += 1;
#elif CASE == 8
    y[N - 1] = 0.0f / 0.0f;
#elif CASE == 9
    y[-1] = 1;
#endif
}
