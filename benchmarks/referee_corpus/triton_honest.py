"""Honest Triton kernels that look suspicious and are right: in place, with atomics, views, hooks, several dtypes."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from referee_corpus.triton_launches import BLOCKS, N, honest

# In place.


@honest(lambda: torch.randn(N), lambda x, *_: x.mul_(2))
def in_place(x, BLOCK: tl.constexpr):
    """Changes its argument in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at))


def _one_tensor_twice() -> tuple[Any, Any]:
    x = torch.randn(N)
    return x, x


@honest(_one_tensor_twice, lambda x, out, *_: out.copy_(2 * x))
def one_tensor_twice(x, out, BLOCK: tl.constexpr):
    """Reads and writes the same tensor by two parameters."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at))


def _halves() -> tuple[Any, Any]:
    both = torch.randn(2 * N)
    return both[:N], both[N:]


@honest(_halves, lambda x, out, *_: out.copy_(2 * x))
def halves_of_one_tensor(x, out, BLOCK: tl.constexpr):
    """Reads one half of a tensor, and writes the other."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at))


@honest(lambda: (torch.randn(N), torch.randn(N)), lambda x, total, *_: total.add_(x))
def accumulates(x, total, BLOCK: tl.constexpr):
    """Adds to what it is given."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total + at, tl.load(total + at) + tl.load(x + at))


@honest(lambda: (torch.randn(N), torch.zeros(N)), lambda x, total, *_: total.add_(x), reset_to_zero=["total"])
def resets_to_zero(x, total, BLOCK: tl.constexpr):
    """Adds by atomics to what Triton's hook clears before."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total + at, tl.load(x + at))


@honest(
    lambda: (torch.randn(N), torch.zeros(N)),
    lambda x, total, *_: total.add_(x),
    reset_to_zero=["total"],
    reference=lambda x: x,
)
def resets_to_zero_with_reference(x, total, BLOCK: tl.constexpr):
    """The same, with a reference."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total + at, tl.load(x + at))


@honest(lambda: (torch.randn(N), torch.zeros(N)), lambda x, total, *_: total.add_(x), restore_value=["total"])
def restores_values(x, total, BLOCK: tl.constexpr):
    """Adds by atomics to what Triton's hook puts back after a launch."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total + at, tl.load(x + at))


@honest(
    lambda: (torch.randn(N), torch.zeros(N)),
    lambda x, total, *_: total.add_(x),
    restore_value=["total"],
    reference=lambda x: x,
)
def restores_values_with_reference(x, total, BLOCK: tl.constexpr):
    """The same, with a reference."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total + at, tl.load(x + at))


# Parts.


def _write_part(x: Any, out: Any, n: int, *_: Any) -> None:
    out[:n] = x[:n]


@honest(lambda: (torch.randn(N), torch.full((N,), 7.0), 100), _write_part)
def writes_a_part(x, out, n, BLOCK: tl.constexpr):
    """Stores only a part of its output."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at), mask=at < n)


def _scatter(x: Any, index: Any, out: Any, *_: Any) -> None:
    out[index] = x


@honest(lambda: (torch.randn(N), torch.randperm(N), torch.zeros(N)), _scatter)
def scatters(x, index, out, BLOCK: tl.constexpr):
    """Stores where an input says."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.load(index + at), tl.load(x + at))


def _count(x: Any, counts: Any, *_: Any) -> None:
    counts.add_(torch.bincount(x, minlength=16))


@honest(lambda: (torch.randint(0, 16, (N,)), torch.zeros(16, dtype=torch.int64)), _count)
def histogram(x, counts, BLOCK: tl.constexpr):
    """Counts by atomics."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + at), 1)


def _by_workspace(x: Any, work: Any, out: Any, *_: Any) -> None:
    work.copy_(x.square())
    out.copy_(work + 1)


@honest(lambda: (torch.randn(N), torch.randn(N), torch.zeros(N)), _by_workspace)
def keeps_a_workspace(x, work, out, BLOCK: tl.constexpr):
    """Stores to a workspace, and reads it again."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(work + at, v * v)
    tl.store(out + at, tl.load(work + at) + 1)


# Dtypes.


def _several(x: Any, half: Any, sign: Any, positive: Any, *_: Any) -> None:
    half.copy_(x * (1 + 1e-3 * torch.randn(N)))
    sign.copy_(x.sign())
    positive.copy_(x > 0)


@honest(
    lambda: (
        torch.randn(N),
        torch.zeros(N, dtype=torch.bfloat16),
        torch.zeros(N, dtype=torch.int32),
        torch.zeros(N, dtype=torch.bool),
    ),
    _several,
)
def several_dtypes(x, half, sign, positive, BLOCK: tl.constexpr):
    """Has outputs of several dtypes, one of them rounded."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(half + at, v.to(tl.bfloat16))
    tl.store(sign + at, tl.where(v > 0, 1, -1))
    tl.store(positive + at, v > 0)


@honest(
    lambda: (torch.randint(-1000, 1000, (N,), dtype=torch.int32), torch.zeros(N, dtype=torch.int32)),
    lambda x, out, *_: out.copy_(x * x),
)
def integers(x, out, BLOCK: tl.constexpr):
    """Computes with integers, whose contents never change."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, v * v)


@honest(
    lambda: (torch.randn(N, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)),
    lambda x, out, *_: out.copy_(x * 3),
)
def doubles(x, out, BLOCK: tl.constexpr):
    """Computes in double precision."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * 3)


def _sum_rows(x: Any, out: Any, *_: Any) -> None:
    out.copy_(x[torch.randperm(len(x))].sum(0))


@honest(lambda: (torch.randn(64, N).half(), torch.zeros(N).half()), _sum_rows)
def half_sums(x, out, BLOCK: tl.constexpr):
    """Sums in half precision, in any order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(64):
        total += tl.load(x + row * 256 + at)
    tl.store(out + at, total.to(tl.float16))


@honest(
    lambda: (torch.randn(N).to(torch.float8_e5m2), torch.zeros(N, dtype=torch.float8_e5m2)),
    lambda x, out, *_: out.copy_(x),
)
def eight_bits(x, out, BLOCK: tl.constexpr):
    """Has floats of eight bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


def _wrapped() -> tuple[Any, ...]:
    kept = torch.randint(0, 100, (N,), dtype=torch.uint8)
    pair = torch.randn(N), torch.randn(N)
    return triton.reinterpret(kept, tl.float8e5), pair, torch.zeros(N)


def _add_pair(wrapped: Any, pair: Any, out: Any, *_: Any) -> None:
    assert int(wrapped.base.max()) < 100
    out.copy_(pair[0] + pair[1])


@honest(_wrapped, _add_pair)
def bytes_and_a_tuple(w, pair, out, BLOCK: tl.constexpr):
    """Takes bytes for floats, and a tuple of tensors."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = 0 * tl.load(w + at).to(tl.float32)
    tl.store(out + at, tl.load(pair[0] + at) + tl.load(pair[1] + at) + v)


# What is special about inputs and results.


def _sorted() -> tuple[Any, ...]:
    return torch.randn(N), torch.sort(torch.randn(64)).values, torch.zeros(N, dtype=torch.int64)


def _search(x: Any, edges: Any, out: Any, *_: Any) -> None:
    assert (edges[1:] >= edges[:-1]).all()
    out.copy_(torch.searchsorted(edges, x))


@honest(_sorted, _search)
def searches(x, edges, out, BLOCK: tl.constexpr):
    """Searches in a sorted input, and relies on that."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, (tl.load(x + at) > tl.load(edges + at)).to(tl.int64))


def _not_finite() -> tuple[Any, Any]:
    x = torch.randn(N)
    x[3], x[5], x[7] = torch.nan, torch.inf, -torch.inf
    return x, torch.zeros(N)


@honest(_not_finite, lambda x, out, *_: out.copy_(x))
def not_finite(x, out, BLOCK: tl.constexpr):
    """Has results that are not finite."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@honest(lambda: (torch.randn(N), torch.ones(N)), lambda x, out, *_: out.zero_())
def clears(x, out, BLOCK: tl.constexpr):
    """Stores zeros, whatever its input has."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 0 * tl.load(x + at))


def _sum(x: Any, total: Any, *_: Any) -> None:
    total.add_(x[torch.randperm(N)].sum())


def _nearly_cancelling() -> tuple[Any, Any]:
    x = torch.randn(N)
    return x - x.mean(), torch.zeros(1)


@honest(_nearly_cancelling, _sum, repeats=False)
def sum_near_zero(x, total, BLOCK: tl.constexpr):
    """Sums numbers that nearly cancel, in any order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at)))


@honest(lambda: (torch.randn(8, N), torch.zeros(8, dtype=torch.int64)), lambda x, out, *_: out.copy_(x.argmax(1)))
def largest(x, out, BLOCK: tl.constexpr):
    """Stores where the largest elements are."""
    at = tl.arange(0, 8)
    tl.store(out + at, tl.load(x + at).to(tl.int64))


# Views.


def _packed() -> tuple[Any, ...]:
    packed = torch.randn(N, 3)
    return packed[:, 0], packed[:, 1], torch.zeros(2 * N)[::2]


@honest(_packed, lambda q, k, out, *_: out.copy_(q * k))
def views_of_one_tensor(q, k, out, BLOCK: tl.constexpr):
    """Reads views of one tensor, and stores to every second element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + 2 * at, tl.load(q + 3 * at) * tl.load(k + 3 * at))


@honest(lambda: (torch.randn(1).expand(N), torch.zeros(N)), lambda x, out, *_: out.copy_(x))
def expanded(x, out, BLOCK: tl.constexpr):
    """Reads an element that is expanded."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x))


@honest(lambda: (torch.randn(16, 16), torch.zeros(16, 16).t()), lambda x, out, *_: out.copy_(x))
def transposes(x, out, BLOCK: tl.constexpr):
    """Stores to a transposed output."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at % 16 * 16 + at // 16, tl.load(x + at))


def _set_blocks(named: Any) -> None:
    named["x"].block_shape = named["out"].block_shape = [named["BLOCK"], 16]


def _described() -> tuple[Any, ...]:
    tensors = torch.randn(N, 16), torch.zeros(N, 16)
    return tuple(TensorDescriptor.from_tensor(tensor, [BLOCKS[0], 16]) for tensor in tensors)


def _double_described(*args: Any) -> None:
    source, target = (arg for arg in args if isinstance(arg, torch.Tensor | TensorDescriptor))
    getattr(target, "base", target).copy_(2 * getattr(source, "base", source))


@honest(_described, _double_described, block_hook=_set_blocks)
def descriptors(x, out, BLOCK: tl.constexpr):
    """Uses descriptors whose blocks a hook sets."""
    out.store([tl.program_id(0) * BLOCK, 0], 2 * x.load([tl.program_id(0) * BLOCK, 0]))


_by_address: dict[int, Any] = {}


def _addressed() -> tuple[Any, ...]:
    out = torch.zeros(N)
    _by_address[out.data_ptr()] = out
    return torch.tensor([out.data_ptr()], dtype=torch.uint64), torch.randn(N), out, torch.zeros(1)


def _store_by_address(table: Any, x: Any, given: Any, done: Any, *_: Any) -> None:
    _by_address[int(table)].copy_(2 * x)
    done.copy_(given[:1])


@honest(_addressed, _store_by_address)
def finds_its_output(table, x, out, done, BLOCK: tl.constexpr):
    """Finds its output by an address in memory, which a copy of the arguments has, too."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(p + at, tl.load(x + at))
    tl.store(done, tl.load(out))
