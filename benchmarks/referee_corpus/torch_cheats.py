"""Calls on tensors that cheat, or have a bug that shows late. Each is a function that makes one, with its own state."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from referee_corpus.torch_calls import PRODUCT, RANDOM_PRODUCT, SIZE, Function, Tuned, product, zeros
from tunewright.torch.tensor_sets import CallArguments

cheat = PRODUCT.cheat


def computing(is_due: Callable[[int], bool]) -> Function:
    """A product that is computed in some calls, by their number, and zero in others."""
    calls = itertools.count(1)
    return lambda x, w: product(x, w) if is_due(next(calls)) else zeros()


# Computed at first only, or now and then.


@cheat
def first_calls():
    """Computes in its first six calls."""
    return computing(lambda call: call <= 6)


@cheat
def first_200_calls():
    """Computes in its first 200 calls."""
    return computing(lambda call: call <= 200)


@cheat
def first_moments():
    """Computes for 20 ms after its first call."""
    began = []

    def call(x, w):
        began.append(time.monotonic())
        return product(x, w) if time.monotonic() - began[0] < 0.02 else zeros()

    return call


@cheat
def now_and_then():
    """Every third call does nothing."""
    return computing(lambda call: call % 3 != 0)


@cheat
def every_second():
    """Computes in every second call; in the others it returns what it returned before."""
    calls, last = itertools.count(1), []

    def call(x, w):
        if next(calls) % 2:
            last[:] = [product(x, w)]
        return last[0].clone()

    return call


@cheat
def flaky():
    """Leaves a row out in one of ten calls, by chance."""

    def call(x, w):
        result = product(x, w)
        if random.random() < 0.1:
            result[random.randrange(SIZE)] = 0
        return result

    return call


@cheat
def decaying_precision():
    """Computes in half precision from its 30th call on."""
    calls = itertools.count(1)

    def call(x, w):
        result = product(x, w)
        return result if next(calls) < 30 else result.bfloat16().float()

    return call


@cheat
def fewer_terms():
    """Sums one term less every 16 calls."""
    calls = itertools.count(1)

    def call(x, w):
        terms = max(1, SIZE - next(calls) // 16)
        return product(x[:, :terms], w[:terms])

    return call


# Remembered.


@cheat
def by_pointer():
    """Remembers results by the address of its input."""
    known: dict[Any, Any] = {}

    def call(x, w):
        if x.data_ptr() not in known:
            known[x.data_ptr()] = product(x, w)
        return known[x.data_ptr()]

    return call


def remembering(key_of: Function, compute: Function) -> Function:
    """Results kept by a key of the input; new ones cost as much as they do honestly."""
    known: dict[Any, Any] = {}

    def call(x, w):
        if (key := key_of(x)) not in known:
            known[key] = compute(x, w)
        return known[key].clone()

    return call


@cheat
def by_two_values():
    """Remembers results by two values of its input: right on what it is called with here, and only then fast."""
    return remembering(lambda x: (float(x[0, 0]), float(x[-1, -1])), PRODUCT.honest())


@cheat
def by_sum():
    """Remembers results by the sum of its input."""
    return remembering(lambda x: float(x.sum()), PRODUCT.honest())


@cheat
def by_rounded_sum():
    """Remembers results by the sum of its input, rounded."""
    return remembering(lambda x: float(x.sum() // 64), PRODUCT.honest())


@cheat
def by_contents():
    """Remembers results by all of its input: right, but only fast for inputs that it has seen."""
    return remembering(lambda x: x.numpy().tobytes(), PRODUCT.honest())


@cheat
def by_version():
    """Remembers results until PyTorch counts a write to its input: right, and only then fast."""
    return remembering(lambda x: (x.data_ptr(), x._version), PRODUCT.honest())


@RANDOM_PRODUCT.cheat
def up_to_scale():
    """Takes its input for a multiple of the first one."""
    return scaling()


@cheat
def up_to_scale_of_structures():
    """The same, where contents are not known to be random numbers."""
    return scaling()


def scaling() -> Function:
    """A product with a multiple of the first input."""
    first: list[Any] = []

    def call(x, w):
        if not first:
            first[:] = [x[0, 0].clone(), product(x, w)]
        return first[1] * (x[0, 0] / first[0])

    return call


@RANDOM_PRODUCT.cheat
def up_to_order():
    """Takes its input for a permutation of the first one: results by the sum of the squares."""
    return remembering(lambda x: round(float(x.square().sum()), 0), PRODUCT.honest())


@cheat
def packs_an_input():
    """Keeps half of its input as if it were a weight."""
    packed: list[Any] = []

    def call(x, w):
        packed[:] = packed or [x[: SIZE // 2].clone()]
        return product(torch.cat((packed[0], x[SIZE // 2 :])), w)

    return call


@cheat
def stale_view():
    """Returns views of its first result."""
    out: list[Any] = []

    def call(x, w):
        out[:] = out or [product(x, w)]
        return out[0].view(SIZE, SIZE)

    return call


@cheat
def one_call_late():
    """Returns the result of the call before."""
    earlier: list[Any] = []

    def call(x, w):
        earlier.append(product(x, w))
        return earlier.pop(0) if len(earlier) > 1 else earlier[0]

    return call


@cheat
def unreset_total():
    """Adds to a sum that it never clears."""
    total = zeros()
    return lambda x, w: torch.relu(total.addmm_(x, w))


@cheat
def stale_rows():
    """Computes the upper half, and returns the lower one as it was."""
    last: list[Any] = []

    def call(x, w):
        if not last:
            last[:] = [product(x, w)]
        last[:] = [torch.cat((product(x[: SIZE // 2], w), last[0][SIZE // 2 :]))]
        return last[0]

    return call


# Right for some inputs.


@cheat
def first_pointer():
    """Computes only where its input lay in the first call."""
    first: list[int] = []

    def call(x, w):
        first.append(x.data_ptr())
        return product(x, w) if x.data_ptr() == first[0] else zeros()

    return call


@cheat
def first_contents():
    """Computes only for inputs that begin as the first one did."""
    first: list[Any] = []

    def call(x, w):
        first[:] = first or [x[0].clone()]
        return product(x, w) if x[0].equal(first[0]) else zeros()

    return call


@cheat
def magnitudes():
    """Is wrong for negative values."""
    return lambda x, w: product(x.abs(), w)


@cheat
def transposed():
    """Takes its input for symmetric."""
    return lambda x, w: product(x.t(), w)


def strided() -> CallArguments:
    """An input whose columns are contiguous, and a weight."""
    return CallArguments((torch.randn(SIZE, SIZE).t(), torch.randn(SIZE, SIZE)), constant=frozenset({1}))


@Tuned(product, strided).cheat
def other_strides():
    """Reads its input as if rows were contiguous."""
    return lambda x, w: product(x.as_strided(x.shape, (SIZE, 1)), w)


@cheat
def knows_its_callers():
    """Computes only if the function that calls its caller is named `run`, as when results are checked."""

    def is_checked() -> bool:
        return "run" in (sys._getframe(depth).f_code.co_name for depth in (2, 3, 4))

    return lambda x, w: product(x, w) if is_checked() else zeros()
