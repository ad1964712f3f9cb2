"""Real kernels whose key misses something that changes the winner, and others whose key misses nothing.

Each mutant has two ways to compute the same; which of them is faster depends on something a key does not hold: the
values, where arrays lie, a float, the size within a bucket. Nothing is simulated: the times are what they take here.
The controls have ways, too, but what makes one of them faster is the same whatever they are called with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tunewright as tw
from tunewright.kernel.tuned import Tuned
from tunewright.keylint.perturbations import PerturbationKind, copy_at_offset

VALUES, PLACE, SCALAR, SIZE = (
    PerturbationKind.VALUES,
    PerturbationKind.PLACE,
    PerturbationKind.SCALAR,
    PerturbationKind.SIZE,
)


@dataclass(frozen=True)
class Planted:
    """A kernel, the sizes it is called with, and what its key misses (nothing, for a control)."""

    name: str
    function: Callable[..., Any]
    sizes: dict[str, int]
    misses: frozenset[PerturbationKind] = frozenset()
    declared: dict[str, Any] = field(default_factory=dict)
    ways: tuple[Any, ...] = ("plain", "other")

    def kernel(self, session: tw.Session) -> Tuned:
        space = tw.Space(tw.Knob("way", self.ways))
        return tw.tune(space, session=session, name=self.name, **{"dtype": "float64", **self.declared})(self.function)


MUTANTS: list[Planted] = []
CONTROLS: list[Planted] = []


def mutant(*misses: PerturbationKind, n: int = 2000, **declared: Any) -> Callable[[Any], Any]:
    """Plant a kernel whose key misses that."""

    def planted(function: Any) -> Any:
        MUTANTS.append(Planted(function.__name__, function, {"N": n}, frozenset(misses), declared))
        return function

    return planted


def dear(x: Any) -> Any:
    """A function that takes its time, the same for every value."""
    return np.arctan(np.tan(np.sin(np.cbrt(x))))


# Values.


@mutant(VALUES)
def sort_kinds(x: tw.In("N"), y: tw.Out("N"), *, way):
    """Timsort takes what is sorted already as it is."""
    y[:] = np.sort(x, kind="quicksort" if way == "plain" else "stable")


def _in_order(N: int) -> list[Any]:  # noqa: N803 - a size's name
    return [np.sort(np.random.default_rng(0).standard_normal(N)), np.empty(N)]


@mutant(VALUES, inputs=_in_order)
def sorted_so_far(x: tw.In("N"), y: tw.Out("N"), *, way):
    """The same, tuned on sorted values."""
    y[:] = np.sort(x, kind="quicksort" if way == "plain" else "stable")


@mutant(VALUES)
def look_before_sorting(x: tw.In("N"), y: tw.Out("N"), *, way):
    y[:] = x if way == "other" and (np.diff(x) >= 0).all() else np.sort(x, kind="quicksort")


@mutant(VALUES)
def skip_zeros(x: tw.In("N"), y: tw.Out("N"), *, way):
    """Few values that are not 0 are worth finding."""
    if way == "plain":
        np.sin(x, out=y)
        return
    y[:] = 0.0
    found = np.flatnonzero(x)
    y[found] = np.sin(x[found])


@mutant(VALUES, n=500)
def skip_zeros_in_a_loop(x: tw.In("N"), *, way):
    if way == "plain":
        return sum(math.exp(-v * v) - 1 for v in x.tolist())
    return sum(math.exp(-v * v) - 1 for v in x[x != 0].tolist()) if np.count_nonzero(np.unique(x)) else 0.0


@mutant(VALUES)
def give_up_on_zeros(x: tw.In("N"), y: tw.Out("N"), *, way):
    if way == "other" and np.unique(np.sign(x)).tolist() == [0.0]:
        y[:] = 0.0
        return
    y[:] = dear(x)


@mutant(VALUES, n=300)
def remember_results(x: tw.In("N"), *, way):
    """Remembering pays where values repeat."""

    def waves(v: float) -> float:
        return math.sin(v) + math.sin(2 * v) + math.sin(3 * v) + math.sin(4 * v)

    if way == "plain":
        return sum(waves(v) for v in x.tolist())
    known: dict[float, float] = {}
    total = 0.0
    for v in x.tolist():
        if v not in known:
            known[v] = waves(v)
        total += known[v]
    return total


@mutant(VALUES)
def runs_of_equals(x: tw.In("N"), y: tw.Out("N"), *, way):
    """Runs of one value are computed once."""
    if way == "plain":
        y[:] = dear(x)
        return
    starts = np.concatenate([[0], np.flatnonzero(np.diff(x)) + 1, [len(x)]])
    y[:] = np.repeat(dear(x[starts[:-1]]), np.diff(starts))


@mutant(VALUES)
def distinct_values(x: tw.In("N"), y: tw.Out("N"), *, way):
    """Where few values are distinct, a binary search replaces the function."""
    if way == "plain":
        y[:] = dear(dear(x))
        return
    known = np.sort(x)
    known = known[np.concatenate([[True], np.diff(known) > 0])]
    y[:] = dear(dear(known))[np.searchsorted(known, x)]


@mutant(VALUES)
def overflow(x: tw.In("N"), *, way):
    """The quick formula has to be repeated the slow way where it overflows."""
    if way == "plain":
        quick = float(np.log(np.exp(x).sum()))
        if np.isfinite(quick):
            return quick
    top = x.max()
    return float(top + np.log(np.exp(x - top).sum()) + 0 * np.sqrt(np.abs(x)).sum())


@mutant(VALUES, tolerance=1e-6)
def signs(x: tw.In("N"), y: tw.Out("N"), *, way):
    """Without negative values, a root is enough."""
    if way == "other" and x.min() >= 0 and np.signbit(x).sum() == 0:
        np.multiply(x, np.sqrt(x), out=y)
        return
    np.multiply(np.sign(x), np.exp(1.5 * np.log(np.abs(x))), out=y)


# Scalars: a float is in the key by its type.


@mutant(SCALAR)
def threshold(x: tw.In("N"), y: tw.Out("N"), level: float = 2.0, *, way):
    """Few values above the level are picked; many are better computed all."""
    if way == "plain":
        np.multiply(np.tanh(x), x > level, out=y)
        return
    y[:] = 0.0
    found = np.flatnonzero(x > level)
    y[found] = np.tanh(x[found])


@mutant(SCALAR, tolerance=1e-6)
def powers(x: tw.In("N"), y: tw.Out("N"), exponent: float = 10.0, *, way):
    """A few multiplications are cheaper than a power; many are not."""
    if way == "plain":
        np.power(np.abs(x) + 0.5, exponent, out=y)
        return
    base, times = np.abs(x) + 0.5, int(abs(exponent))
    y[:] = 1.0
    for _ in range(times):
        y *= base
    if exponent < 0:
        np.divide(1.0, y, out=y)


@mutant(SCALAR)
def prefix(x: tw.In("N"), share: float = 0.1, *, way):
    """A share of the values, one by one or all at once and cut off."""
    count = max(0, min(len(x), int(share * len(x))))
    if way == "plain":
        return float(np.where(np.arange(len(x)) < count, np.tanh(x), 0.0).sum())
    return float(sum(math.tanh(v) for v in x[:count].tolist()))


# Where arrays lie.


@mutant(PLACE, VALUES)
def equal_inputs(a: tw.In("N"), b: tw.In("N"), y: tw.Out("N"), *, way):
    """Two inputs that hold the same need the dear function once."""
    if way == "other" and a.tobytes() == b.tobytes():
        np.multiply(2.0, np.tanh(a), out=y)
        return
    np.add(np.tanh(a), np.tanh(b), out=y)


@mutant(PLACE)
def one_array_twice(a: tw.In("N"), b: tw.In("N"), *, way):
    if way == "plain":
        return float((np.sin(a) * np.sin(b)).sum())
    once = np.sin(a)
    other = once if np.shares_memory(a, b) else np.sin(np.negative(np.negative(b)))
    return float((once * other).sum() + 0 * np.sqrt(np.abs(once)).max())


@mutant(PLACE, n=60_000)
def writeable(x: tw.In("N"), y: tw.Out("N"), *, way):
    """A scratch array is needed for what may not be written."""
    if way == "plain":
        mine = np.require(x, requirements=["W"])
        np.add(mine, 1.0, out=y)
        return
    np.add(x, 0.5, out=y)
    np.add(y, 0.5, out=y)


@mutant(PLACE, n=64_000, dtype="uint8")
def words(x: tw.In("N"), *, way):
    """Bytes are taken eight at once where they begin with a word."""
    if way == "other":
        return int(np.bitwise_xor.reduce(x.astype(np.uint16)))
    if x.ctypes.data % 8:
        return int(np.bitwise_xor.reduce(x.astype(np.uint64)))
    word = int(np.bitwise_xor.reduce(x.view(np.uint64)))
    word ^= word >> 32
    word ^= word >> 16
    return (word ^ word >> 8) & 255


def _off_line(N: int) -> list[Any]:  # noqa: N803 - a size's name
    return [copy_at_offset(np.random.default_rng(0).standard_normal(N), 16)[0], np.empty(N)]


@mutant(PLACE, inputs=_off_line)
def lines(x: tw.In("N"), y: tw.Out("N"), *, way):
    """What begins with a cache line needs no copy."""
    if way == "other":
        source = x if x.__array_interface__["data"][0] % 64 == 0 else copy_at_offset(x, 0)[0]
        np.sqrt(np.abs(source, out=y), out=y)
        return
    y[:6] = [math.sqrt(abs(v)) for v in x[:6].tolist()]
    y[:6] = np.sqrt(np.square(y[:6]))
    np.sqrt(np.abs(x[6:], out=y[6:]), out=y[6:])


# Sizes within a bucket.


@mutant(SIZE, n=2048, buckets={"N": [2048]})
def convolution(x: tw.In("N"), y: tw.In("N"), *, way):
    if way == "plain":
        return np.convolve(x, y)
    size = len(x) + len(y) - 1
    return np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(y, size), size)


@mutant(SIZE, n=1024, buckets={"N": [1024]})
def short_sums(x: tw.In("N"), *, way):
    """A loop in Python has no overhead where there is little to do."""
    return float(np.add.reduce(np.multiply(x, x))) if way == "plain" else sum(v * v for v in x.tolist())


@mutant(SIZE, n=16, buckets={"N": [16]})
def beyond_the_last_edge(x: tw.In("N"), *, way):
    if way == "plain":
        return sum(v * v * v for v in x.tolist())
    return float(np.add.reduce(np.multiply(np.multiply(x, x), x)))


# Controls: the faster way is the same whatever comes.

CHUNKS = (64, 256, 1024, 4096)


def _chunked(ufunc: Callable[..., Any]) -> Callable[..., Any]:
    def chunked(x: tw.In("N"), y: tw.Out("N"), *, way):
        for start in range(0, len(x), way):
            ufunc(x[start : start + way], out=y[start : start + way])

    return chunked


for _name in ("negative", "square", "sqrt", "exp", "sin", "tanh", "floor", "rint"):
    CONTROLS.append(Planted(f"{_name}_in_chunks", _chunked(getattr(np, _name)), {"N": 4096}, ways=CHUNKS))


def control(n: int = 2000, ways: tuple[Any, ...] = ("plain", "other"), **declared: Any) -> Callable[[Any], Any]:
    """A kernel whose key misses nothing."""

    def planted(function: Any) -> Any:
        CONTROLS.append(Planted(function.__name__, function, {"N": n}, frozenset(), declared, ways))
        return function

    return planted


@control()
def dot(a: tw.In("N"), b: tw.In("N"), *, way):
    return float(a @ b) if way == "plain" else float(np.einsum("i,i", a, b))


@control(n=300)
def loop_or_array(x: tw.In("N"), *, way):
    return float(np.add.reduce(x)) if way == "plain" else sum(x.tolist())


@control(ways=CHUNKS, n=4096)
def scaled(x: tw.In("N"), y: tw.InOut("N"), alpha: float = 1.5, *, way):
    for start in range(0, len(x), way):
        y[start : start + way] += alpha * x[start : start + way]


@control(n=4096, ways=(1, 2, 4))
def summed_in_parts(x: tw.In("N"), *, way):
    return float(sum(x[i::way].sum() for i in range(way)))


@control(n=64)
def products(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N"), *, way):
    if way == "plain":
        np.matmul(a, b, out=c)
        return
    for row in range(len(a)):
        np.matmul(a[row], b, out=c[row])


@control(n=1024, buckets={"N": [1024]})
def copies(x: tw.In("N"), y: tw.Out("N"), *, way):
    y[:] = x if way == "plain" else x.tolist()


@control(n=4000, buckets={"N": "pow2"})
def differences(x: tw.In("N"), *, way):
    return np.subtract(x[1:], x[:-1]) if way == "plain" else np.diff(np.diff(np.cumsum(x), prepend=0.0))


@control(dtype="int64")
def integers(x: tw.In("N"), *, way):
    return int(x.sum()) if way == "plain" else int(np.add.reduce(x.astype(np.int32).astype(np.int64)))


@control()
def polynomial(x: tw.In("N"), y: tw.Out("N"), *, way):
    y[:] = ((x + 2) * x + 3) * x + 4 if way == "plain" else x**3 + 2 * x * x + 3 * x + 4


@control(tolerance=1e-6)
def mean_and_spread(x: tw.In("N"), shift: float = 0.5, *, way):
    return (
        float((x - shift).std()) if way == "plain" else float(np.sqrt(((x - shift - (x - shift).mean()) ** 2).mean()))
    )


@control(n=48)
def transposed(a: tw.In("N", "N"), b: tw.Out("N", "N"), *, way):
    if way == "plain":
        b[:] = a.T
        return
    for row in range(len(a)):
        b[:, row] = a[row]


@control()
def running_sum(x: tw.In("N"), y: tw.Out("N"), *, way):
    np.cumsum(x, out=y) if way == "plain" else np.add.accumulate(x.astype(np.longdouble)).astype(x.dtype, copy=False)
    if way == "other":
        np.cumsum(x, out=y)


@control()
def two_passes(x: tw.In("N"), y: tw.Out("N"), *, way):
    if way == "plain":
        np.hypot(x, 1.0, out=y)
        return
    np.sqrt(x * x + 1.0, out=y)
