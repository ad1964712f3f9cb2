"""Tutorial 8: a project of several files with OpenMP, whose number of threads is a knob.

The kernel is C++ in `openmp/src`, its header in `openmp/include`, and a helper is in C. Nothing is copied or changed:
the files are named, and Tunewright compiles and links them with each config. Every file counts: if one changes, the
kernel is tuned again.

Run this file twice. The first run searches for some seconds; the second finds the answer in the store.
"""

import numpy as np

import tunewright as tw

HALO = slice(2, -2)

# More threads are not always faster: for a small box, starting them costs more than they save.
space = tw.Space(
    tw.Knob("THREADS", [1, 2]),
    tw.Knob("BZ", [4, 16]),
    tw.Knob("BY", [8, 64]),
)


def reference(u, v):
    """The same step in numpy, slowly and plainly."""
    inside = (HALO, HALO, HALO)
    total = -12 * u[inside]
    for axis in range(3):
        for shift in (-2, -1, 1, 2):
            total = total + np.roll(u, shift, axis)[inside]
    result = v.copy()
    result[inside] = u[inside] + 0.05 * total
    result[HALO, HALO, 2] += np.tanh(u[HALO, HALO, 2])
    return result


# `threads=2` says how many threads the kernel may use: it is timed by the wall clock, not by the time of one processor.
@tw.tune(
    space,
    backend=tw.C(
        sources=["openmp/src/heat.cpp", "openmp/src/damp.c"],
        include=["openmp/include"],
        flags="-O3 -march=native -fopenmp",
    ),
    reference=reference,
    threads=2,
)
def heat(u: tw.In("NZ", "NY", "NX"), v: tw.InOut("NZ", "NY", "NX")): ...


def main():
    u = np.random.default_rng(0).standard_normal((36, 68, 132))
    v = u.copy()
    heat(u, v)
    assert np.allclose(v, reference(u, u))

    decision = heat.decide(u, v)
    gain = decision.evidence.gain if decision.evidence else 1.0
    print(f"heat {u.shape}: {decision.config}, {gain:.2f} times as fast as the default")
    print(f"measurements {heat.session.counts['measurements']}")


if __name__ == "__main__":
    main()
