"""Kernels in C that are recorded on many shapes: a product, a layer norm, convolutions, sums of rows, and others."""

from __future__ import annotations

import numpy as np
import space_kinds as kinds
from shapes_table import Recorded
from space_kinds import Array

import tunewright as tw

# Powers of two, and beside each a shape of the same bucket.
SHAPES = (
    ((8, 512, 512), (5, 400, 320)),
    ((16, 1024, 64), (12, 800, 50)),
    ((32, 32, 1024), (24, 20, 640)),
    ((64, 64, 64), (48, 50, 60)),
    ((64, 512, 128), (50, 300, 100)),
    ((128, 128, 128), (100, 120, 90)),
    ((128, 1024, 32), (72, 600, 27)),
    ((256, 16, 512), (200, 10, 300)),
    ((256, 256, 256), (192, 250, 160)),
    ((512, 64, 64), (384, 40, 48)),
    ((512, 512, 16), (300, 500, 9)),
    ((1024, 128, 128), (700, 96, 100)),
)
REDUCED = kinds.space(
    {
        "VW": [8, 16],
        "MR": [1, 4, 6, 12],
        "NR": [1, 2, 3],
        "KB": [32, 400],
        "NB": [256],
        "PACK": [0, 1, 2],
        "UNROLL": [1],
        "ORDER": [0, 1],
        "PADDED": [1],
    },
    ["MR * NR + NR < 32"],
)


@tw.tune(REDUCED, backend=kinds.backend("gemm", sizes="arguments"), reference=np.matmul)
def gemm(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


def gemm_job(m: int, n: int, k: int) -> kinds.Job:
    return kinds.Job(gemm, kinds.normal((m, k), (k, n)), kinds.floats(m, n), np.matmul)


# Few long rows and many short ones; lengths of powers of two, and others.
ROWS = (1, 8, 64)
COLS = (17, 64, 100, 128, 384, 512, 1000, 1024, 4096)
ODD = ((5, 50), (7, 100), (50, 700), (60, 120), (3, 3000))
LAYERNORM = kinds.space({"VW": [4, 8, 16], "SUMS": [1, 2, 4], "PASSES": [2, 3], "ROWS_AT": [1, 2, 4], "TAIL": [0, 1]})


def normed(rows: Array, scale: Array, shift: Array) -> Array:
    spread = np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    return (rows - rows.mean(1, keepdims=True)) / spread * scale + shift


@tw.tune(LAYERNORM, backend=kinds.backend("layernorm", sizes="arguments"), reference=normed)
def layernorm(rows: tw.In("ROWS", "COLS"), scale: tw.In("COLS"), shift: tw.In("COLS"), out: tw.Out("ROWS", "COLS")): ...


def layernorm_job(rows: int, cols: int) -> kinds.Job:
    return kinds.Job(layernorm, kinds.normal((rows, cols), (cols,), (cols,)), kinds.floats(rows, cols), normed)


# Channels in and out, height and width of the result: few channels of large pictures, many of small ones.
PICTURES = (
    ((3, 16, 56, 56), (3, 24, 50, 60)),
    ((8, 8, 28, 64), (6, 10, 30, 50)),
    ((16, 16, 28, 28), (12, 20, 25, 30)),
    ((16, 64, 14, 14), (20, 50, 12, 13)),
    ((32, 32, 14, 16), (30, 36, 13, 20)),
    ((64, 16, 16, 32), (48, 12, 20, 24)),
    ((64, 64, 7, 8), (60, 50, 7, 9)),
    ((128, 32, 7, 16), (96, 40, 6, 17)),
    ((1, 32, 64, 64), (1, 20, 48, 100)),
    ((4, 4, 64, 128), (5, 3, 40, 130)),
    ((32, 8, 32, 32), (24, 9, 28, 33)),
    ((256, 8, 8, 8), (200, 6, 7, 11)),
)
DIRECT = kinds.space(
    {"VW": [4, 8, 16], "KB": [1, 2, 4, 8], "WB": [1, 2, 3], "CB": [0, 8], "ORDER": [0, 1]}, ["KB * WB + WB < 28"]
)


@tw.tune(DIRECT, backend=kinds.backend("direct", sizes="arguments"), reference=kinds.mixed)
def direct(image: tw.In("C", "IH", "IW"), weights: tw.In("K", "C", 3, 3), out: tw.Out("K", "H", "W")): ...


def direct_job(c: int, k: int, h: int, w: int) -> kinds.Job:
    return kinds.Job(direct, kinds.normal((c, h + 2, w + 2), (k, c, 3, 3)), kinds.floats(k, h, w), kinds.mixed)


# Few long bags and many short ones, of narrow rows and wide ones.
BAGS = (
    ((1, 128, 1024), (1, 100, 1500)),
    ((4, 16, 2048), (3, 20, 2000)),
    ((8, 64, 64), (6, 50, 50)),
    ((8, 256, 16), (5, 200, 12)),
    ((16, 4, 512), (12, 3, 300)),
    ((16, 32, 128), (10, 30, 100)),
    ((32, 8, 256), (24, 7, 200)),
    ((64, 1, 128), (50, 1, 97)),
    ((64, 16, 32), (60, 12, 23)),
    ((128, 2, 64), (100, 2, 70)),
    ((256, 32, 8), (200, 40, 5)),
    ((512, 4, 16), (300, 5, 31)),
)
BAG = kinds.space({"VW": [4, 8, 16], "CB": [1, 2, 4, 8], "ITEMS_AT": [1, 2, 4], "ORDER": [0, 1], "TAIL": [0, 1]})
TOTAL = 1000


def bagged(at: Array, table: Array) -> Array:
    return table[at.astype(int)].sum(1)


@tw.tune(BAG, backend=kinds.backend("bag", sizes="arguments"), reference=bagged)
def bag(at: tw.In("BAGS", "ITEMS"), table: tw.In("TOTAL", "COLS"), out: tw.Out("BAGS", "COLS")): ...


def bag_job(bags: int, items: int, cols: int) -> kinds.Job:
    def inputs(rng: np.random.Generator) -> list[Array]:
        return [rng.integers(0, TOTAL, (bags, items), np.int32), rng.standard_normal((TOTAL, cols), dtype=np.float32)]

    return kinds.Job(bag, inputs, kinds.floats(bags, cols), bagged)


# Few large matrices and many small ones, square, flat and tall.
MATRICES = (
    ((1, 1024, 1024), (1, 900, 1000)),
    ((1, 64, 4096), (1, 50, 3001)),
    ((1, 2048, 32), (1, 1999, 30)),
    ((2, 512, 256), (2, 400, 250)),
    ((4, 128, 512), (3, 100, 301)),
    ((8, 64, 64), (7, 60, 50)),
    ((16, 16, 256), (12, 9, 200)),
    ((16, 256, 64), (10, 129, 40)),
    ((32, 128, 16), (25, 100, 12)),
    ((64, 32, 32), (48, 31, 23)),
    ((256, 8, 32), (200, 5, 17)),
    ((512, 16, 16), (300, 15, 9)),
)
SWAPPED = kinds.space(
    {"TY": [16, 64], "TX": [16, 64], "MY": [1, 4, 8], "MX": [1, 4, 8], "ORDER": [0, 1], "REST": [0, 1]},
    ["MY * MX > 1"],
)


def transposed(matrices: Array) -> Array:
    return matrices.transpose(0, 2, 1)


@tw.tune(SWAPPED, backend=kinds.backend("swapped", sizes="arguments"), reference=transposed)
def swapped(matrices: tw.In("BATCH", "H", "W"), out: tw.Out("BATCH", "W", "H")): ...


def swapped_job(batch: int, h: int, w: int) -> kinds.Job:
    return kinds.Job(swapped, kinds.normal((batch, h, w)), kinds.floats(batch, w, h), transposed)


# Few long sequences and many short ones; heads of 64 and 128 numbers, and of others.
SEQUENCES = (
    ((1, 256, 256, 64), (1, 200, 250, 72)),
    ((1, 1, 2048, 128), (1, 1, 1500, 96)),
    ((2, 128, 128, 128), (2, 100, 130, 80)),
    ((4, 16, 256, 64), (3, 15, 300, 50)),
    ((8, 64, 64, 32), (7, 50, 60, 40)),
    ((16, 1, 512, 64), (12, 1, 333, 60)),
    ((16, 32, 32, 64), (10, 25, 31, 100)),
    ((32, 8, 128, 16), (25, 7, 100, 23)),
    ((64, 16, 16, 32), (50, 13, 11, 37)),
    ((128, 4, 64, 8), (100, 3, 50, 5)),
    ((1, 512, 8, 512), (1, 400, 9, 300)),
    ((256, 8, 8, 64), (200, 5, 7, 48)),
)
SCORES = kinds.space(
    {"VW": [4, 8, 16], "MR": [1, 2, 4], "NR": [1, 2, 4], "KU": [1, 4], "ORDER": [0, 1], "TAIL": [0, 1]}
)


def scored(queries: Array, keys: Array) -> Array:
    return queries @ keys.transpose(0, 2, 1)


@tw.tune(SCORES, backend=kinds.backend("scores", sizes="arguments"), reference=scored)
def scores(queries: tw.In("BATCH", "M", "K"), keys: tw.In("BATCH", "N", "K"), out: tw.Out("BATCH", "M", "N")): ...


def scores_job(batch: int, m: int, n: int, k: int) -> kinds.Job:
    return kinds.Job(scores, kinds.normal((batch, m, k), (batch, n, k)), kinds.floats(batch, m, n), scored)


# Few long rows and many short ones, of few taps and many.
SIGNALS = (
    ((1, 65536, 3), (1, 50000, 5)),
    ((1, 8192, 64), (1, 7000, 50)),
    ((4, 4096, 16), (3, 5000, 11)),
    ((16, 1024, 4), (12, 1000, 3)),
    ((16, 512, 32), (15, 600, 25)),
    ((32, 256, 8), (24, 200, 7)),
    ((64, 128, 128), (50, 100, 90)),
    ((128, 64, 4), (100, 50, 5)),
    ((256, 32, 16), (200, 28, 13)),
    ((512, 16, 4), (400, 14, 3)),
    ((1024, 56, 3), (1000, 49, 7)),
    ((2048, 8, 8), (1500, 11, 9)),
)
DEPTHWISE = kinds.space(
    {"VW": [4, 8, 16], "WB": [1, 2, 4, 8], "TU": [1, 2, 4, 8], "ORDER": [0, 1], "TAIL": [0, 1]},
    ["ORDER == 0 or TAIL == 0"],
)


def filtered(signals: Array, weights: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(signals, weights.shape[1], 1)
    return np.einsum("cwt,ct->cw", windows, weights)


@tw.tune(DEPTHWISE, backend=kinds.backend("depthwise", sizes="arguments"), reference=filtered)
def depthwise(signals: tw.In("C", "PADDED"), weights: tw.In("C", "TAPS"), out: tw.Out("C", "W")): ...


def depthwise_job(c: int, w: int, taps: int) -> kinds.Job:
    return kinds.Job(depthwise, kinds.normal((c, w + taps - 1), (c, taps)), kinds.floats(c, w), filtered)


KERNELS = {
    "gemm": Recorded("gemm", ("M", "N", "K"), [shape for pair in SHAPES for shape in pair], gemm_job),
    "layernorm": Recorded("layernorm", ("ROWS", "COLS"), [*((r, c) for r in ROWS for c in COLS), *ODD], layernorm_job),
    "direct": Recorded("direct", ("C", "K", "H", "W"), [shape for pair in PICTURES for shape in pair], direct_job),
    "bag": Recorded("bag", ("BAGS", "ITEMS", "COLS"), [shape for pair in BAGS for shape in pair], bag_job),
    "swapped": Recorded("swapped", ("BATCH", "H", "W"), [one for pair in MATRICES for one in pair], swapped_job),
    "scores": Recorded("scores", ("BATCH", "M", "N", "K"), [one for pair in SEQUENCES for one in pair], scores_job),
    "depthwise": Recorded("depthwise", ("C", "W", "TAPS"), [one for pair in SIGNALS for one in pair], depthwise_job),
}
