#include <string.h>
#if SHIFT == 13
#error "thirteen is refused"
#endif
void shifted(const double *x, double *y) {
    memcpy(y, x + 0 * SHIFT, N * sizeof(double));
}
