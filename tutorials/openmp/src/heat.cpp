#include "stencil.hpp"

#include <algorithm>

// One step of heat in a box with a halo of two cells. BZ, BY and THREADS are knobs; NZ, NY and NX are sizes.
extern "C" void heat(const double *u, double *v) {
    constexpr long H = 2, row = NX, plane = NX * NY;
#pragma omp parallel for collapse(2) num_threads(THREADS) schedule(static)
    for (long zb = H; zb < NZ - H; zb += BZ)
        for (long yb = H; yb < NY - H; yb += BY)
            for (long z = zb; z < std::min<long>(zb + BZ, NZ - H); z++)
                for (long y = yb; y < std::min<long>(yb + BY, NY - H); y++)
                    for (long x = H; x < NX - H; x++) {
                        long i = (z * NY + y) * NX + x;
                        v[i] = u[i] + 0.05 * laplace<double, 2>(u, i, row, plane) + (x == H ? damp(u[i]) : 0.0);
                    }
}
