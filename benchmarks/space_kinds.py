"""Kernels of many kinds, whose whole spaces `record_spaces.py` records: each has knobs, inputs and a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tunewright as tw
from tunewright.backends import expressions
from tunewright.backends.host import cpu, digest

FLAGS = "-O2 -march=native"
VECTORS = [f"-O3 -mprefer-vector-width={bits}" for bits in (128, 256, 512)]
LEVELS = ["-O2", "-O3", "-O3 -mprefer-vector-width=512"]
FAST = ["-O2", "-O3", "-O3 -ffast-math"]

Array = NDArray[Any]


def space(knobs: dict[str, list[Any]], constraints: Sequence[str] = ()) -> tw.Space:
    """A space whose rules can be kept as text."""
    return tw.Space(
        *(tw.Knob(name, values) for name, values in knobs.items()), rules=map(expressions.parse_rule, constraints)
    )


def backend(source: str, *, flags: str = "", sizes: str = "macros") -> tw.C:
    """A C back end with the usual flags and some more."""
    return tw.C(f"kernels/{source}.c", flags=f"{FLAGS} {flags}".strip(), sizes=sizes)


@dataclass(frozen=True)
class Job:
    """A kernel to record, its inputs, the form of its result, and what computes it."""

    kernel: tw.Tuned
    inputs: Callable[[np.random.Generator], Sequence[Array]]
    result: Array
    reference: Callable[..., Array]
    at_run_time: Sequence[str] = ()
    """Knobs that are variables of the library, so that configs that differ in nothing else are one build."""

    def args(self) -> list[Array]:
        """The same numbers each time; the last array is for the result."""
        return [*self.inputs(np.random.default_rng(1)), self.result.copy()]

    def compiled(self, config: tw.Config) -> tw.Config:
        """What is built for a config: knobs of run time are named instead of their values."""
        return tw.Config({**config, **{name: f"knob_{name}" for name in self.at_run_time}})

    @property
    def constraints(self) -> tuple[str, ...]:
        """The rules of its space, as text."""
        return tuple(rule.reason for rule in self.kernel.space.rules)

    @property
    def mark(self) -> str:
        """What must be equal to go on with what was done before."""
        source = self.kernel.backend.path.read_text()
        knobs = [f"{knob.name} {knob.values}" for knob in self.kernel.space.knobs]
        shapes = [str(array.shape) for array in self.args()]
        return digest(source, FLAGS, cpu().model, *shapes, *knobs, *self.constraints)[:16]


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[Array]]:
    """Inputs of normal numbers."""
    return lambda rng: [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def floats(*shape: int) -> Array:
    """A result of floats."""
    return np.zeros(shape, np.float32)


GEMM = space(
    {
        "VW": [4, 8, 16],
        "MR": [1, 4, 6, 8, 12],
        "NR": [1, 2, 3, 4],
        "KB": [32, 128, 400],
        "NB": [64, 256],
        "PACK": [0, 1, 2],
        "UNROLL": [1, 4],
        "ORDER": [0, 1],
    },
    ["UNROLL == 1 or MR * NR * UNROLL <= 32"],
)
CONV = space(
    {
        "TX": [32, 64, 128, 256, 512],
        "TY": [2, 4, 8, 16],
        "RY": [1, 2, 4],
        "FUSE": [1, 5, 25],
        "XU": [1, 4],
        "COPY": [0, 1],
        "opt": ["-O2", *VECTORS],
    },
    ["RY <= TY", "RY * FUSE <= 50"],
)
STENCIL2D = space(
    {
        "TX": [32, 128, 256, 1024],
        "TY": [8, 32, 128],
        "RY": [1, 2, 4],
        "XU": [1, 2, 4],
        "ORDER": [0, 1],
        "SIMD": [0, 1, 2],
        "opt": LEVELS,
    },
    ["RY <= TY", "SIMD == 0 or XU == 1"],
)
STENCIL3D = space(
    {
        "TZ": [4, 16, 48],
        "TY": [4, 8, 16, 64],
        "TX": [32, 128],
        "ORDER": [0, 1, 2],
        "XU": [1, 4],
        "AHEAD": [0, 128],
        "SUM": [0, 1],
        "opt": ["-O2", "-O3"],
    }
)
HEAT = space(
    {
        "BLOCK": [256, 512, 1024, 2048, 4096, 16384],
        "DEPTH": [1, 2, 4, 8, 16],
        "XU": [1, 2, 4, 8],
        "PAIR": [1, 2],
        "PLACE": [0, 1],
        "opt": LEVELS,
    },
    ["PLACE == 0 or PAIR == 1"],
)
SPMV = space(
    {
        "FORMAT": [0, 1, 2, 3],
        "SUMS": [1, 2, 4, 8],
        "UNROLL": [1, 2, 4],
        "AHEAD": [0, 16, 64],
        "BATCH": [1, 2, 4, 8],
        "opt": FAST,
    },
    ["FORMAT != 2 or SUMS == 1"],
)
SORT = space(
    {
        "METHOD": [0, 1],
        "CUT": [4, 6, 8, 12, 16, 24, 32, 48, 64],
        "SMALL": [0, 1, 2],
        "MERGE": [0, 1, 2],
        "BITS": [4, 6, 8, 11],
        "BATCH": [1, 2, 4],
        "UNROLL": [1, 2, 4, 8],
        "opt": LEVELS,
    },
    ["METHOD == 0 or CUT == 4 and SMALL == 0 and MERGE == 0", "METHOD == 1 or BITS == 4 and BATCH == 1"],
)
HADAMARD = space(
    {
        "RADIX": [2, 4, 8, 16],
        "BLOCK": [16, 64, 128, 256, 512, 1024, 2048, 4096, 16384],
        "UNROLL": [1, 2, 4, 8],
        "DOWN": [0, 1],
        "VECTOR": [0, 1],
        "opt": LEVELS,
    },
    ["VECTOR == 0 or UNROLL == 1"],
)
HISTOGRAM = space(
    {
        "COPIES": [1, 2, 4, 8, 16],
        "COUNTER": [8, 16, 32],
        "LOAD": [1, 4, 8],
        "UNROLL": [1, 2, 4, 8],
        "RUNS": [0, 1],
        "BLOCK": [512, 4096, 32768],
        "opt": ["-O2", "-O3"],
    },
    [
        "RUNS == 0 or LOAD == 1",
        "COUNTER != 8 or RUNS == 0",
        "COUNTER != 8 or LOAD == 1",
        "COUNTER != 8 or BLOCK <= 255 * COPIES",
    ],
)
NBODY = space(
    {
        "TI": [32, 256],
        "TJ": [16, 32, 64, 128, 256],
        "SPLIT": [0, 1],
        "ROOT": [0, 1],
        "UNROLL": [1, 2, 4],
        "SUMS": [1, 4, 16],
        "opt": FAST,
    }
)
CHANNELS = space(
    {
        "KB": [1, 2, 4, 8],
        "WB": [4, 8, 16, 32],
        "CB": [1, 2, 8],
        "ORDER": [0, 1],
        "PACK": [0, 1],
        "TAPS": [0, 1],
        "opt": LEVELS,
    },
    ["KB * WB <= 128"],
)
TRANSPOSE = space(
    {
        "TY": [8, 32, 128],
        "TX": [8, 32, 128],
        "MY": [1, 4, 8],
        "MX": [1, 4, 8],
        "ORDER": [0, 1],
        "INNER": [0, 1],
        "ASIDE": [0, 1],
        "AHEAD": [0, 1],
    }
)
SCAN = space(
    {
        "METHOD": [0, 1, 2, 3],
        "BLOCK": [256, 1024, 4096, 16384, 65536],
        "LANES": [4, 8, 16, 32],
        "UNROLL": [1, 2, 4, 8],
        "COPY": [0, 1],
        "opt": [*LEVELS, "-O3 -mprefer-vector-width=128"],
    },
    ["METHOD != 0 or LANES == 4", "METHOD == 0 or METHOD == 2 or UNROLL == 1"],
)
FIND = space(
    {
        "METHOD": [0, 1, 2, 3, 4],
        "LANES": [8, 16, 32, 64],
        "FIRST": [0, 3, 7, 11],
        "CHECK": [0, 1, 2],
        "UNROLL": [1, 2, 4],
        "opt": [*LEVELS, "-O3 -mprefer-vector-width=128"],
    },
    [
        "METHOD >= 3 or LANES == 8",
        "METHOD != 1 and METHOD != 2 or FIRST == 0",
        "METHOD != 1 or UNROLL == 1",
        "METHOD != 2 or CHECK == 0",
    ],
)
SOFTMAX = space(
    {
        "PASSES": [1, 2, 3],
        "POWER": [0, 6, 7],
        "SUMS": [1, 4, 8, 16],
        "BLOCK": [32, 128, 512],
        "UNROLL": [1, 2, 4],
        "DIVIDE": [0, 1],
        "opt": FAST,
    },
    ["PASSES == 1 or BLOCK == 32"],
)

ALIGN = space(
    {
        "METHOD": [0, 1],
        "TILE": [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024],
        "TYPE": [16, 32],
        "WIDE": [0, 1],
        "LEAST": [0, 1],
        "UNROLL": [1, 2, 4],
        "opt": ["-O2", *VECTORS],
    },
    ["METHOD == 0 or TILE >= 32", "METHOD == 1 or TILE <= 16"],
)
CHOLESKY = space(
    {
        "METHOD": [0, 1, 2],
        "BLOCK": [1, 2, 4, 8, 16, 32],
        "SUMS": [1, 4, 8, 16],
        "WIDTH": [16, 32, 128],
        "SCALE": [0, 1],
        "UNROLL": [1, 2, 4],
        "opt": FAST,
    },
    ["METHOD != 0 or BLOCK == 1", "METHOD == 2 or WIDTH == 128"],
)
ESCAPE = space(
    {
        "METHOD": [0, 1, 2],
        "LANES": [1, 4, 8, 16, 32, 64],
        "CHECK": [1, 2, 4, 8, 16, 32],
        "CYCLE": [0, 1],
        "CHOOSE": [0, 1],
        "UNROLL": [1, 4],
        "opt": ["-O2", *VECTORS],
    },
    ["METHOD == 0 or LANES >= 4", "METHOD >= 1 or LANES == 1"],
)
LOOKUP = space(
    {
        "METHOD": [0, 1, 2, 3],
        "BITS": [4, 6, 8, 10, 12],
        "FAN": [2, 4, 8, 16],
        "LEAF": [1, 2, 4, 8, 16, 32, 64],
        "BATCH": [1, 2, 4, 8, 16, 32],
        "AHEAD": [0, 1],
        "opt": LEVELS,
    },
    [
        "METHOD == 2 or BITS == 4",
        "METHOD == 3 or FAN == 2",
        "METHOD != 3 or LEAF >= FAN",
        "METHOD != 3 or AHEAD == 0",
    ],
)
MEDIAN = space(
    {
        "METHOD": [0, 1, 2, 3],
        "LANES": [8, 16, 32, 64, 128],
        "COLS": [128, 256, 512],
        "UNROLL": [1, 2, 4, 8],
        "CHOOSE": [0, 1],
        "opt": ["-O2", *VECTORS],
    }
)


@tw.tune(GEMM, backend=backend("gemm", sizes="arguments"), reference=np.matmul)
def gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


def convolved(picture: Array, weights: Array) -> Array:
    return np.einsum("hwvu,vu->hw", np.lib.stride_tricks.sliding_window_view(picture, (5, 5)), weights)


@tw.tune(CONV, backend=backend("conv", sizes="arguments"), reference=convolved)
def conv(picture: tw.In("IH", "IW"), weights: tw.In(5, 5), out: tw.Out("H", "W")): ...


def stepped2d(grid: Array) -> Array:
    out = grid.copy()
    around = grid[1:-1, :-2] + grid[1:-1, 2:] + grid[:-2, 1:-1] + grid[2:, 1:-1]
    out[1:-1, 1:-1] = 0.5 * grid[1:-1, 1:-1] + 0.125 * around
    return out


@tw.tune(STENCIL2D, backend=backend("stencil2d", flags="-fopenmp-simd"), reference=stepped2d)
def stencil2d(grid: tw.In("H", "W"), out: tw.Out("H", "W")): ...


def stepped3d(grid: Array) -> Array:
    out, inner = np.zeros_like(grid), slice(1, -1)
    around = sum(
        grid[tuple(slice(1 + by, grid.shape[axis] - 1 + by) if axis == along else inner for axis in range(3))]
        for along in range(3)
        for by in (-1, 1)
    )
    out[1:-1, 1:-1, 1:-1] = 0.4 * grid[1:-1, 1:-1, 1:-1] + 0.1 * around
    return out


@tw.tune(STENCIL3D, backend=backend("stencil3d"), reference=stepped3d)
def stencil3d(grid: tw.In("D", "H", "W"), out: tw.Out("D", "H", "W")): ...


STEPS = 16


def heated(rod: Array) -> Array:
    rod = rod.copy()
    for _ in range(STEPS):
        rod[1:-1] = 0.5 * rod[1:-1] + 0.25 * (rod[:-2] + rod[2:])
    return rod


@tw.tune(HEAT, backend=backend("heat", flags=f"-DSTEPS={STEPS}"), reference=heated)
def heat(rod: tw.In("N"), out: tw.Out("N")): ...


WIDTH, MARGIN = 16, 64


def sparse(rng: np.random.Generator, rows: int = 4096) -> list[Array]:
    """A matrix with up to WIDTH numbers in a row in three formats, and a vector; arrays have a margin to prefetch."""
    lengths = rng.integers(4, WIDTH + 1, rows)
    ell_columns = rng.integers(0, rows, (rows, WIDTH)).astype(np.int32)
    ell_values = rng.standard_normal((rows, WIDTH), dtype=np.float32)
    used = np.arange(WIDTH) < lengths[:, None]
    ell_values[~used], ell_columns[~used] = 0, 0
    starts = np.r_[0, np.cumsum(lengths)].astype(np.int32)
    sliced = [part.reshape(-1, 8, WIDTH).transpose(0, 2, 1).ravel() for part in (ell_columns, ell_values)]
    flat = [ell_columns[used], ell_values[used], ell_columns.ravel(), ell_values.ravel(), *sliced]
    padded = [np.r_[part, np.zeros(MARGIN, part.dtype)] for part in flat]
    return [starts, *padded, rng.standard_normal(rows, dtype=np.float32)]


def multiplied(starts: Array, columns: Array, values: Array, *rest: Array) -> Array:
    products = (values * rest[-1][columns.astype(int)])[: int(starts[-1])]
    return np.add.reduceat(products, starts[:-1].astype(int))


@tw.tune(SPMV, backend=backend("spmv", flags=f"-DWIDTH={WIDTH}"), reference=multiplied)
def spmv(  # noqa: PLR0913, PLR0917 - a matrix in three formats
    starts: tw.In("S"),
    columns: tw.In("NNZ"),
    values: tw.In("NNZ"),
    ell_columns: tw.In("PADDED"),
    ell_values: tw.In("PADDED"),
    slice_columns: tw.In("PADDED"),
    slice_values: tw.In("PADDED"),
    x: tw.In("ROWS"),
    y: tw.Out("ROWS"),
): ...


@tw.tune(SORT, backend=backend("sort"), reference=np.sort)
def sort(numbers: tw.In("N"), out: tw.Out("N")): ...


def transformed(signal: Array) -> Array:
    out = signal.copy()
    stride = 1
    while stride < len(out):
        pairs = out.reshape(-1, 2, stride)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).ravel()
        stride *= 2
    return out


@tw.tune(HADAMARD, backend=backend("hadamard"), reference=transformed)
def hadamard(signal: tw.In("N"), out: tw.Out("N")): ...


def counted(data: Array) -> Array:
    return np.bincount(data.astype(np.uint8), minlength=256)


@tw.tune(HISTOGRAM, backend=backend("histogram"), reference=counted)
def histogram(data: tw.In("N"), out: tw.Out(256)): ...


def pulled(bodies: Array) -> Array:
    away = bodies[None, :, :3] - bodies[:, None, :3]
    force = bodies[:, 3] / (np.square(away).sum(-1) + 1e-2) ** 1.5
    return np.einsum("ij,ijc->ic", force, away)


@tw.tune(NBODY, backend=backend("nbody"), reference=pulled)
def nbody(bodies: tw.In("N", 4), out: tw.Out("N", 3)): ...


def mixed(image: Array, weights: Array) -> Array:
    return np.einsum("chwvu,kcvu->khw", np.lib.stride_tricks.sliding_window_view(image, (3, 3), (1, 2)), weights)


@tw.tune(CHANNELS, backend=backend("channels"), reference=mixed)
def channels(image: tw.In("C", "H", "W"), weights: tw.In("K", "C", 3, 3), out: tw.Out("K", "OH", "OW")): ...


@tw.tune(TRANSPOSE, backend=backend("transpose", flags="-O3"), reference=np.transpose)
def transpose(matrix: tw.In("H", "W"), out: tw.Out("W", "H")): ...


@tw.tune(SCAN, backend=backend("scan"), reference=np.cumsum)
def scan(numbers: tw.In("N"), out: tw.Out("N")): ...


TEXT, PART, PATTERN = 65536, 4096, 12


def texts(rng: np.random.Generator) -> list[Array]:
    """A text of four letters with a margin, and a pattern that occurs in it."""
    text = rng.integers(97, 101, TEXT + MARGIN).astype(np.uint8)
    pattern = text[1000 : 1000 + PATTERN].copy()
    for at in rng.integers(0, TEXT - PATTERN, 40):
        text[at : at + PATTERN] = pattern
    return [text, pattern]


def found(text: Array, pattern: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(text, PATTERN)[:TEXT]
    return (windows == pattern).all(1).reshape(-1, PART).sum(1)


@tw.tune(FIND, backend=backend("find", flags=f"-DN={TEXT} -DBLOCK={PART}"), reference=found)
def find(text: tw.In("T"), pattern: tw.In("P"), out: tw.Out("PARTS")): ...


def softened(rows: Array) -> Array:
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@tw.tune(SOFTMAX, backend=backend("softmax"), reference=softened)
def softmax(rows: tw.In("ROWS", "COLS"), out: tw.Out("ROWS", "COLS")): ...


def skewed(rng: np.random.Generator) -> list[Array]:
    return [np.minimum(rng.geometric(0.03, 65536), 255).astype(np.uint8)]


def aligned(first: Array, second: Array) -> Array:
    row = np.arange(len(second) + 1)
    steps = np.arange(len(second) + 1)
    for i, letter in enumerate(first):
        free = np.minimum(row[1:] + 1, row[:-1] + (second != letter))
        row = np.minimum.accumulate(np.r_[i + 1, free] - steps) + steps
    return row[1:]


@tw.tune(ALIGN, backend=backend("align"), reference=aligned)
def align(first: tw.In("N"), second: tw.In("N"), out: tw.Out("N")): ...


def letters(rng: np.random.Generator) -> list[Array]:
    """A text of four letters, and the same with a third of it changed, moved by three."""
    text = rng.integers(97, 101, 1024).astype(np.uint8)
    return [text, np.roll(np.where(rng.random(1024) < 1 / 3, rng.permutation(text), text), 3)]


@tw.tune(CHOLESKY, backend=backend("cholesky"), reference=np.linalg.cholesky)
def cholesky(matrix: tw.In("N", "N"), out: tw.Out("N", "N")): ...


def positive(rng: np.random.Generator) -> list[Array]:
    part = rng.standard_normal((128, 256), dtype=np.float32)
    return [part @ part.T / 256]


MOST, FRACTION = 256, 12


def escaped(a: Array, b: Array) -> Array:
    a, b = a.astype(np.int64), b.astype(np.int64)
    x, y, count = np.zeros_like(a), np.zeros_like(a), np.zeros_like(a)
    for _ in range(MOST):
        xx, yy = x * x >> FRACTION, y * y >> FRACTION
        near = xx + yy <= 4 << FRACTION
        x, y = np.where(near, xx - yy + a, x), np.where(near, (x * y >> (FRACTION - 1)) + b, y)
        count += near
    return count


@tw.tune(ESCAPE, backend=backend("escape", flags=f"-DMOST={MOST} -DFRACTION={FRACTION}"), reference=escaped)
def escape(a: tw.In("N"), b: tw.In("N"), out: tw.Out("N")): ...


def plane(rng: np.random.Generator) -> list[Array]:
    """Points of a grid with 64 in a row, moved a little."""
    y, x = np.mgrid[0:32, 0:64]
    moved = rng.integers(0, 64, (2, 32, 64))
    scaled = [x * (3 << FRACTION) // 64 - (2 << FRACTION), y * (2 << FRACTION) // 32 - (1 << FRACTION)]
    return [(part + by).ravel().astype(np.int32) for part, by in zip(scaled, moved, strict=True)]


def placed(keys: Array, numbers: Array) -> Array:
    return np.searchsorted(keys, numbers)


@tw.tune(LOOKUP, backend=backend("lookup"), reference=placed)
def lookup(keys: tw.In("N"), numbers: tw.In("Q"), out: tw.Out("Q")): ...


def keyed(rng: np.random.Generator) -> list[Array]:
    """Sorted keys, and numbers to look up."""
    keys, numbers = (rng.integers(0, 1 << 32, count, dtype=np.uint32) for count in (65536, 4096))
    return [np.sort(keys), numbers]


def filtered(picture: Array) -> Array:
    return np.median(np.lib.stride_tricks.sliding_window_view(picture, (3, 3)), axis=(2, 3))


@tw.tune(MEDIAN, backend=backend("median"), reference=filtered)
def median(picture: tw.In("IH", "IW"), out: tw.Out("H", "W")): ...


JOBS = {
    "gemm": Job(gemm, normal((126, 400), (400, 480)), floats(126, 480), np.matmul),
    "conv": Job(conv, normal((128, 504), (5, 5)), floats(124, 500), convolved),
    "stencil2d": Job(stencil2d, normal((256, 1024)), floats(256, 1024), stepped2d, ("TX", "TY", "ORDER")),
    "stencil3d": Job(stencil3d, normal((48, 64, 128)), floats(48, 64, 128), stepped3d, ("TZ", "TY", "TX", "ORDER")),
    "heat": Job(heat, normal((16384,)), floats(16384), heated, ("BLOCK", "DEPTH")),
    "spmv": Job(spmv, sparse, floats(4096), multiplied),
    "sort": Job(
        sort, lambda rng: [rng.integers(0, 1 << 32, 8192, dtype=np.uint32)], np.zeros(8192, np.uint32), np.sort
    ),
    "hadamard": Job(hadamard, normal((16384,)), floats(16384), transformed, ("BLOCK",)),
    "histogram": Job(histogram, skewed, np.zeros(256, np.uint32), counted, ("BLOCK",)),
    "nbody": Job(nbody, normal((256, 4)), floats(256, 3), pulled, ("TI", "TJ")),
    "channels": Job(channels, normal((8, 34, 34), (16, 8, 3, 3)), floats(16, 32, 32), mixed, ("CB", "ORDER")),
    "transpose": Job(
        transpose, normal((256, 512)), floats(512, 256), np.transpose, ("TY", "TX", "ORDER", "INNER", "AHEAD")
    ),
    "scan": Job(scan, lambda rng: [rng.integers(-9, 10, 65536, dtype=np.int32)], np.zeros(65536, np.int32), np.cumsum),
    "find": Job(find, texts, np.zeros(TEXT // PART, np.uint32), found),
    "softmax": Job(softmax, normal((32, 512)), floats(32, 512), softened, ("BLOCK",)),
    "align": Job(align, letters, np.zeros(1024, np.int32), aligned),
    "cholesky": Job(cholesky, positive, floats(128, 128), np.linalg.cholesky),
    "escape": Job(escape, plane, np.zeros(2048, np.int32), escaped, ("CHECK",)),
    "lookup": Job(lookup, keyed, np.zeros(4096, np.uint32), placed),
    "median": Job(
        median,
        lambda rng: [rng.integers(0, 256, (130, 514), dtype=np.uint8)],
        np.zeros((128, 512), np.uint8),
        filtered,
        ("COLS",),
    ),
}
