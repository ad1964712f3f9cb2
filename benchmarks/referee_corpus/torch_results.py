"""Calls on tensors that cheat by what they return, by where they write, or by when."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from referee_corpus.torch_calls import PRODUCT, SIZE, Function, Tuned, product, zeros
from tunewright.torch.tensor_sets import CallArguments

cheat = PRODUCT.cheat


# What it returns.


@cheat
def same_memory():
    """Returns the same memory each time."""
    out = zeros()
    return lambda x, w: out.copy_(product(x, w)).view(SIZE, SIZE)


@cheat
def two_buffers():
    """Returns two buffers in turn."""
    buffers = itertools.cycle([zeros(), zeros()])
    return lambda x, w: next(buffers).copy_(product(x, w))


@cheat
def aliases_an_input():
    """Returns its input, to which it wrote the result."""
    return lambda x, w: x.copy_(product(x, w))


@cheat
def one_wrong_element():
    """Is wrong in the last element."""

    def call(x, w):
        result = product(x, w)
        result[-1, -1] += 0.01
        return result

    return call


@cheat
def noisy():
    """Is off by a random part in a thousand."""
    return lambda x, w: product(x, w).mul_(1 + 1e-3 * float(torch.randn(())))


@cheat
def half():
    """Rounds its result to half precision."""
    return lambda x, w: product(x, w).bfloat16().float()


@cheat
def other_dtype():
    """Returns another dtype."""
    return lambda x, w: product(x, w).double()


@cheat
def other_shape():
    """Returns fewer rows."""
    return lambda x, w: product(x[1:], w)


# Where it must not write.


@cheat
def writes_an_input():
    """Adds to an element of its input."""

    def call(x, w):
        result = product(x, w)
        x[0, 0] += 1
        return result

    return call


@cheat
def writes_an_input_later():
    """The same, from the 20th call on."""
    calls = itertools.count(1)

    def call(x, w):
        result = product(x, w)
        x[0, 0] += next(calls) >= 20
        return result

    return call


@cheat
def writes_a_weight():
    """Writes to its weight, if only what is there."""

    def call(x, w):
        result = product(x, w)
        w[0, 0] *= 1
        return result

    return call


def sliced() -> CallArguments:
    """An input that is a part of the rows of a larger tensor, and a weight."""
    return CallArguments((torch.randn(SIZE, SIZE + 8)[:, :SIZE], torch.randn(SIZE, SIZE)), constant=frozenset({1}))


@Tuned(product, sliced).cheat
def writes_between_rows():
    """Writes to elements between the rows of its input, which are the caller's."""

    def call(x, w):
        result = product(x, w)
        x.as_strided((SIZE - 1, 8), x.stride(), x.storage_offset() + SIZE).zero_()
        return result

    return call


# In place.


def update(x, w, held):
    """Adds a product to what is held."""
    return held.add_(product(x, w))


def updated() -> CallArguments:
    """Arguments of an update."""
    values = *square_values(), torch.randn(SIZE, SIZE)
    return CallArguments(values, constant=frozenset({1}), written=frozenset({2}))


def square_values() -> tuple[Any, Any]:
    """An input and a weight."""
    return torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)


UPDATE = Tuned(update, updated)


@UPDATE.cheat
def updates_a_few_times():
    """Updates in its first 50 calls."""
    calls = itertools.count(1)
    return lambda x, w, held: update(x, w, held) if next(calls) <= 50 else held


@UPDATE.cheat
def leaves_what_is_held():
    """Returns the sum, and does not write it."""
    return lambda x, w, held: held + product(x, w)


def store(x, w, out):
    """Stores a product."""
    return torch.relu_(torch.mm(x, w, out=out))


def stored() -> CallArguments:
    """Arguments of a product with an output."""
    values = *square_values(), torch.zeros(SIZE, SIZE)
    return CallArguments(values, constant=frozenset({1}), outputs=frozenset({2}), structured=False)


STORE = Tuned(store, stored)


@STORE.cheat
def waits_for_poison():
    """Computes if it finds NaN in its output, as when it is filled before a check."""
    compute = STORE.honest()
    return lambda x, w, out: compute(x, w, out) if bool(out[0, 0].isnan()) else out


@STORE.cheat
def waits_for_a_change():
    """Computes if its output is not what it left there, as when it is filled before a check."""
    compute, left = STORE.honest(), list[float]()

    def call(x, w, out):
        if left != [float(out[0, 0]), float(out[-1, -1])]:
            compute(x, w, out)
            left[:] = [float(out[0, 0]), float(out[-1, -1])]
        return out

    return call


@STORE.cheat
def first_outputs():
    """Stores to the outputs of its first four calls."""
    calls = itertools.count(1)
    return lambda x, w, out: store(x, w, out) if next(calls) <= 4 else out


# Threads.


def deferred(first: int) -> Function:
    """A product that a thread computes from a call on, while that call returns; not at all if the thread is busy."""
    helper, last, calls = ThreadPoolExecutor(1), list[Any](), itertools.count(1)

    def call(x, w):
        if next(calls) < first:
            return product(x, w)
        out = zeros()
        if not last or last[0].done():
            last[:] = [helper.submit(lambda: out.copy_(product(x, w)))]
        return out

    return call


@cheat
def late_thread():
    """Returns while a thread still computes."""
    return deferred(1)


@cheat
def late_thread_later():
    """The same, from the 20th call on."""
    return deferred(20)
