"""The algorithm as part of the choice: three ways to count values; the fastest depends on the size."""

from collections import Counter

import numpy as np
from easel import blank, keep

import tunewright as tw

tw.configure(pool="serial")
space = tw.Space(variants=[tw.Variant(name) for name in ("sorting", "bincount", "counter")])


def sorting(x, out):
    values, counts = np.unique(x, return_counts=True)
    out[:] = 0
    out[values] = counts


def bincount(x, out):
    out[:] = np.bincount(x, minlength=len(out))


def counter(x, out):
    out[:] = 0
    for value, count in Counter(x.tolist()).items():
        out[value] = count


@tw.tune(
    space,
    backend={"sorting": sorting, "bincount": bincount, "counter": counter},
    inputs=lambda N, V: [np.random.default_rng(0).integers(0, V, N), np.zeros(V, np.int64)],
)
def histogram(x: tw.In("N"), out: tw.Out("V")): ...


if __name__ == "__main__":
    sizes = [(8, 200_000), (64, 2_000), (512, 256), (4096, 256), (32768, 256)]
    times = {name: [] for name in ("sorting", "bincount", "counter")}
    for size, values in sizes:
        args = histogram.example({"N": size, "V": values})
        decision = histogram.decide(*args)
        for trial in histogram.session.store.trials(decision.key):
            times[trial.config["variant"]].append(1e6 * trial.seconds)
        print(f"{size} values below {values}: {decision.config}")
    figure, axes = blank("Which way to count is fastest?")
    for name, seconds in times.items():
        axes.plot(range(len(sizes)), seconds, marker="o", label=name)
    axes.set_xticks(range(len(sizes)), [f"{n}\nbelow {v}" for n, v in sizes])
    axes.set(yscale="log", ylabel="microseconds")
    axes.legend()
    keep(figure, __file__)
