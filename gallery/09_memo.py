"""A memo: results of a function, kept in the process and in the store."""

import time

import numpy as np
from easel import LEAF, blank, keep

import tunewright as tw


def spectrum(seed, size=200):
    x = np.random.default_rng(seed).standard_normal((size, size))
    return np.linalg.svd(x, compute_uv=False)[:4]


kept = tw.persistent_memo(spectrum)
near = tw.memo(spectrum)


def seconds(call, *args):
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start


if __name__ == "__main__":
    near(0), kept(0)
    times = {
        "computed": seconds(spectrum, 0),
        "from the store": min(seconds(kept, 0) for _ in range(50)),
        "from the process": min(seconds(near, 0) for _ in range(50)),
    }
    assert np.array_equal(kept(0), near(0))
    print({name: f"{1e6 * took:.1f} us" for name, took in times.items()})
    figure, axes = blank("One call of a function that takes its time", high=2.6)
    axes.barh(list(times), [1e6 * took for took in times.values()], color=LEAF)
    axes.set(xscale="log", xlabel="microseconds")
    keep(figure, __file__)
