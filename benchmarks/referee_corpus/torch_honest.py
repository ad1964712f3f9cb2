"""Honest calls on tensors that do what may look suspicious: in place, with views, with kept scratch memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from referee_corpus.torch_calls import SIZE, honest, product, square
from tunewright.torch.tensor_sets import CallArguments


def given(make: Callable[[], Any], **roles: Any) -> Callable[[], CallArguments]:
    """How a call gets its arguments; roles are numbers of arguments."""

    def arguments() -> CallArguments:
        values = make()
        values = values if isinstance(values, tuple) else (values,)
        structured = roles.get("structured", True)
        sets = {name: frozenset(numbers) for name, numbers in roles.items() if name != "structured"}
        return CallArguments(values, structured=structured, **sets)

    return arguments


matrix = given(lambda: torch.randn(8, 8))


# In place.


@honest(given(lambda: (torch.ones(8, 8), torch.zeros(8, 8)), written=[1]))
def in_place(x, held):
    """Adds to what it is given."""
    held.add_(x)
    return held


@honest(given(lambda: (torch.ones(8, 8), torch.randn(8, 8)), written=[1]))
def in_place_as_view(x, held):
    """Adds to what it is given, and returns a view of it."""
    return held.add_(x).view(-1, 4).t()


@honest(given(lambda: (torch.randn(8, 8), torch.zeros(16, 8)), written=[1]))
def writes_a_part(x, held):
    """Writes half of what it is given, and returns nothing."""
    held[::2] = x


@honest(given(lambda: (torch.randn(SIZE, SIZE), torch.zeros(SIZE, SIZE)), outputs=[1], structured=False))
def into_an_output(x, out):
    """Stores to an output, and returns it."""
    return torch.mm(x, x, out=out)


@honest(given(lambda: (torch.randn(64), torch.randint(0, 16, (64,)), torch.zeros(16)), written=[2]))
def scatters(x, index, total):
    """Adds where an input says."""
    total.index_add_(0, index, x)


# Views and strides.


@honest(matrix)
def views_of_an_input(x):
    """Returns views of its input, and the input itself."""
    return x.t(), x[1:], x


@honest(given(lambda: (torch.randn(8), torch.randn(8)), constant=[1]))
def a_weight_returned(x, w):
    """Returns a weight beside a result."""
    return x + w, w


@honest(given(lambda: torch.randn(8, 1).expand(8, 8)))
def expanded(x):
    """Its input has elements that are the same memory."""
    return x * 2


@honest(given(lambda: torch.randn(8, 64)[:, 3:11]))
def a_slice(x):
    """Its input is a part of a larger tensor."""
    return x * 2


@honest(given(lambda: torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)))
def channels_last(x):
    """Its input and its result have their channels last."""
    return torch.nn.functional.avg_pool2d(x, 2)


# What it returns.


@honest(matrix)
def several_results(x):
    """Returns a mapping with a list in it."""
    return {"sum": x.sum(), "parts": [x * 2, x.exp()]}


@honest(given(lambda: torch.randn(64)))
def several_dtypes(x):
    """Returns halves, integers, bits and doubles."""
    return x.half(), x.sign().int(), x > 0, x.double().exp()


@honest(given(lambda: (torch.randn(8, 8), 3)))
def a_number(x, size):
    """Takes a number."""
    return x[:size]


@honest(given(lambda: (3,)))
def no_tensors(size):
    """Takes no tensor, and returns nothing."""


@honest(given(lambda: torch.randn(8, 8)))
def empty_result(x):
    """Returns a tensor without elements."""
    return x[:0], x.sum()


@honest(given(lambda: torch.randn(0, 8)))
def empty_input(x):
    """Takes a tensor without elements."""
    return x.sum(0), x * 2


@honest(given(lambda: (torch.randn(64), torch.tensor(0.5, dtype=torch.float64))), lambda: lambda x, eps: x + 0.5)
def compiled_for_a_number(x, eps):
    """Is compiled for the value of a single number, as Dynamo does."""
    return x + eps


# Dtypes.


@honest(matrix)
def integers(x):
    """Returns indices."""
    return x.argsort(-1)


@honest(given(lambda: torch.arange(64)))
def integers_in(x):
    """Takes integers, which never change."""
    return x.cumsum(0)


@honest(given(lambda: (torch.randint(-128, 127, (SIZE, SIZE), dtype=torch.int8), torch.rand(SIZE))))
def quantized(x, scales):
    """Multiplies bytes by scales."""
    return x.float() * scales


@honest(matrix)
def bits(x):
    """Returns bits."""
    return x > 0


@honest(given(lambda: torch.randn(64)))
def complex_result(x):
    """Returns complex numbers."""
    return torch.fft.fft(x)


@honest(given(lambda: torch.randn(64, dtype=torch.complex64)))
def complex_input(x):
    """Takes complex numbers."""
    return x.conj() * x, x.abs()


@honest(given(lambda: torch.randn(64, 64).bfloat16()))
def half_precision(x):
    """Computes in half precision."""
    return torch.nn.functional.gelu(x)


def half_sums():
    """Sums in single precision, and rounds once."""
    return lambda x: (x.float() @ x.float().t()).bfloat16()


@honest(given(lambda: torch.randn(64, 64).bfloat16()), half_sums)
def half_product(x):
    """Multiplies in half precision; sums are rounded as an implementation likes."""
    return x @ x.t()


# What is special about inputs.


@honest(given(lambda: torch.zeros(8, 8)))
def nothing_to_change(x):
    """Its input is zero, however it is scaled or moved."""
    return x + 1


@honest(given(lambda: (torch.randn(8, 8), torch.full((8, 8), -torch.inf).triu(1))))
def a_mask(x, mask):
    """Takes a mask of infinities."""
    return torch.softmax(x + mask, -1)


@honest(matrix)
def infinities(x):
    """Returns infinities."""
    return x.masked_fill(x > 0, -torch.inf)


@honest(given(lambda: torch.tensor([1.0, torch.nan, torch.inf, -torch.inf, 0.0])))
def not_numbers(x):
    """Takes and returns NaN."""
    return x * 2, x - x


@honest(given(lambda: torch.eye(8) * 4 + 1))
def positive_definite(x):
    """Needs a positive definite input."""
    return torch.linalg.cholesky(x)


@honest(given(lambda: (torch.arange(8.0), torch.rand(5) * 8)))
def sorted_input(edges, x):
    """Needs a sorted input."""
    return torch.searchsorted(edges, x)


@honest(given(lambda: torch.randn(8, 64)))
def normalized(x):
    """Does not depend on the scale of its input."""
    return torch.nn.functional.layer_norm(x, (64,))


def backward_sum():
    """Sums from the end."""
    return lambda x: x.flip(0).sum()


@honest(given(lambda: torch.randn(2048)), backward_sum)
def sums(x):
    """Sums in any order."""
    return x.sum()


def cancelling() -> Any:
    """Numbers whose sum is near zero."""
    x = torch.randn(2048)
    return x - x.mean()


@honest(given(cancelling), backward_sum)
def sum_near_zero(x):
    """Sums numbers that nearly cancel."""
    return x.sum()


# What it keeps.


def packing():
    """Keeps its weight as columns."""
    packed: list[Any] = []

    def call(x, w):
        packed[:] = packed or [w.t().contiguous()]
        return product(x, packed[0].t())

    return call


@honest(square, packing)
def packs_a_weight(x, w):
    """Keeps what it computed from a weight, which is constant."""
    return product(x, w)


def with_scratch():
    """Computes in the same scratch memory each time."""
    scratch = torch.empty(SIZE, SIZE)
    return lambda x, w: torch.relu(torch.mm(x, w, out=scratch))


@honest(square, with_scratch)
def scratch_memory(x, w):
    """Keeps scratch memory from call to call, and returns other memory."""
    return product(x, w)


def counting():
    """Counts its calls."""
    calls: list[int] = []

    def call(x, w):
        calls.append(1)
        return product(x, w)

    return call


@honest(square, counting)
def counts_its_calls(x, w):
    """Has a state that does not matter."""
    return product(x, w)


# What varies.


def any_order():
    """Sums the terms in another order each time."""

    def call(x, w):
        order = torch.randperm(SIZE)
        return product(x[:, order], w[order])

    return call


@honest(square, any_order)
def varies(x, w):
    """Is not the same from call to call, within what rounding allows."""
    return product(x, w)


# How long it takes.


@honest(matrix)
def takes_50_ms(x):
    """Takes 50 ms, most of which it waits."""
    time.sleep(0.05)
    return x * 2


@honest(matrix)
def takes_nothing(x):
    """Returns its input."""
    return x
