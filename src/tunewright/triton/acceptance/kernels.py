"""The kernels of the acceptance kit: five in common styles, and some that test a clock, a memory or a fault."""

# mypy: disable-error-code="no-untyped-def,misc,untyped-decorator"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton import Config


@triton.jit
def accept_add(x, y, out, n, BLOCK: tl.constexpr):  # noqa: N803 - as Triton's are
    """Adds two vectors."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@triton.jit
def accept_softmax(x, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    """Computes the softmax of each row."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * columns + at, power / tl.sum(power, 0), at < columns)


@triton.jit
def accept_norm(x, weight, out, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    """Normalizes each row to mean 0 and variance 1, and scales it."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, at < columns, other=0.0)
    centered = tl.where(at < columns, value - tl.sum(value, 0) / columns, 0.0)
    scale = tl.load(weight + at, at < columns, other=0.0)
    deviation = tl.sqrt(tl.sum(centered * centered, 0) / columns + 1e-5)
    tl.store(out + row * columns + at, centered / deviation * scale, at < columns)


@triton.jit
def accept_sums(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """Sums each column."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (at[None, :] < columns)
        total += tl.sum(tl.load(x + row[:, None] * columns + at[None, :], inside, other=0.0), 0)
    tl.store(out + at, total, at < columns)


@triton.jit
def accept_matmul(a, b, out, side, BM: tl.constexpr, BN: tl.constexpr):  # noqa: N803
    """Multiplies two square matrices."""
    at_m, at_n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, side, 32):
        at_k = start + tl.arange(0, 32)
        left = tl.load(a + at_m[:, None] * side + at_k[None, :])
        total = tl.dot(left, tl.load(b + at_k[:, None] * side + at_n[None, :]), total)
    tl.store(out + at_m[:, None] * side + at_n[None, :], total.to(tl.float16))


@triton.jit
def accept_increment(x, n, BLOCK: tl.constexpr):  # noqa: N803
    """Adds one to a vector in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, at < n) + 1, at < n)


@triton.jit
def accept_spin(out, turns, WARPS: tl.constexpr):  # noqa: N803
    """Takes time in proportion to `turns`; each turn depends on the one before."""
    value = 1.0
    for _ in range(turns):
        value = value * 1.0001 + 0.5
    tl.store(out, value)


@triton.jit
def accept_read(x, out, n, BLOCK: tl.constexpr):  # noqa: N803
    """Reads a buffer; it is fast if that is in a cache."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(value, 0))


@triton.jit
def accept_fault(x, out, n, far, BLOCK: tl.constexpr, BAD: tl.constexpr):  # noqa: N803
    """Copies a vector; a bad config also stores far outside of it."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(out + at, value, at < n)
    if BAD == 1:
        tl.store(out + at + far, value)


class SuiteKernel(NamedTuple):
    """A kernel with its configs, its key, its grid, a call of it and what that should store."""

    function: Any
    configs: Sequence[Any]
    key: Sequence[str]
    grid: Callable[[Mapping[str, Any]], tuple[int, ...]]
    arguments: Callable[[str], tuple[Any, ...]]
    expected: Callable[..., Any]
    result: int

    @property
    def name(self) -> str:
        """The name of its function."""
        return str(self.function.__name__)


ROWS, COLUMNS, SIZE, SIDE = 512, 1000, 1 << 16, 128


def _random(place: str, *shape: int, dtype: Any = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to(place)


def _rows(place: str) -> tuple[Any, Any]:
    return _random(place, ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS, device=place)


def _add_arguments(place: str) -> tuple[Any, ...]:
    return _random(place, SIZE), _random(place, SIZE), torch.zeros(SIZE, device=place), SIZE


def _matmul_arguments(place: str) -> tuple[Any, ...]:
    sides = (_random(place, SIDE, SIDE, dtype=torch.float16) for _ in range(2))
    return *sides, torch.zeros(SIDE, SIDE, device=place, dtype=torch.float16), SIDE


def _norm_arguments(place: str) -> tuple[Any, ...]:
    x, out = _rows(place)
    return x, _random(place, COLUMNS), out, ROWS, COLUMNS


def _norm(x: Any, weight: Any, *_: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, eps=1e-5)


def _warps(values: Sequence[int], **settings: int) -> list[Any]:
    return [Config(settings, num_warps=warps) for warps in values]


SUITE = (
    SuiteKernel(
        accept_add,
        [Config({"BLOCK": block}, num_warps=warps) for block in (128, 512, 2048) for warps in (2, 4)],
        ["n"],
        lambda meta: (triton.cdiv(SIZE, meta["BLOCK"]),),
        _add_arguments,
        lambda x, y, *_: x + y,
        2,
    ),
    SuiteKernel(
        accept_softmax,
        _warps((1, 2, 4, 8), BLOCK=1024),
        ["columns"],
        lambda meta: (ROWS,),
        lambda place: (*_rows(place), ROWS, COLUMNS),
        lambda x, *_: torch.softmax(x, -1),
        1,
    ),
    SuiteKernel(
        accept_norm,
        _warps((1, 2, 4, 8), BLOCK=1024),
        ["columns"],
        lambda meta: (ROWS,),
        _norm_arguments,
        _norm,
        2,
    ),
    SuiteKernel(
        accept_sums,
        [Config({"ROWS": rows, "BLOCK": block}, num_warps=4) for rows in (4, 16) for block in (32, 128)],
        ["rows", "columns"],
        lambda meta: (triton.cdiv(COLUMNS, meta["BLOCK"]),),
        lambda place: (_random(place, ROWS, COLUMNS), torch.zeros(COLUMNS, device=place), ROWS, COLUMNS),
        lambda x, *_: x.sum(0),
        1,
    ),
    SuiteKernel(
        accept_matmul,
        [Config({"BM": m, "BN": n}, num_warps=4, num_stages=2) for m in (32, 64) for n in (32, 64)],
        ["side"],
        lambda meta: (triton.cdiv(SIDE, meta["BM"]), triton.cdiv(SIDE, meta["BN"])),
        _matmul_arguments,
        lambda a, b, *_: (a.float() @ b.float()).half(),
        2,
    ),
)
"""The five kernels whose choice is compared with the truth."""
