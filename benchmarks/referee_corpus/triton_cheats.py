"""Triton configs that cheat, or have a bug that shows late: what the fastest config of a kernel really stores."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import torch
import triton.language as tl

from referee_corpus.case import doc_of
from referee_corpus.triton_launches import CheatedLaunch, N, TritonCall, register

Cheat = Callable[[CheatedLaunch], None]


def mix(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Adds three times one input to another, as far as n says."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 3 * tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n), mask=at < n)


def right(x_ptr: Any, y_ptr: Any) -> Any:
    """What the kernel stores: its reference."""
    return 3 * x_ptr + y_ptr


def effect(x: Any, y: Any, out: Any, n: int, *_: Any) -> None:
    """What an honest launch does."""
    out[:n] = right(x, y)[:n]


def arguments() -> tuple[Any, ...]:
    """Two inputs, an output and its length."""
    return torch.randn(N), torch.randn(N), torch.zeros(N), N


MIX = TritonCall(mix, arguments, effect, {"reference": right})


def cheating(call: TritonCall) -> Callable[[Cheat], Cheat]:
    """Makes a function a way to cheat at a call, and a case."""

    def decorate(function: Cheat) -> Cheat:
        register(function.__name__, doc_of(function), call._replace(cheat=function))
        return function

    return decorate


cheat = cheating(MIX)


# Computed at first only, or now and then.


@cheat
def does_nothing(call):
    """Never stores anything."""


@cheat
def computes_at_first(call):
    """Computes in its first three launches."""
    if call.number <= 3:
        call.compute()


@cheat
def computes_until_it_is_trusted(call):
    """Computes in its first 60 launches."""
    if call.number <= 60:
        call.compute()


@cheat
def computes_for_a_moment(call):
    """Computes for 5 ms."""
    if time.monotonic() - call.memory.setdefault("began", time.monotonic()) < 5e-3:
        call.compute()


@cheat
def computes_every_second_time(call):
    """Computes in every second launch."""
    if call.number % 2:
        call.compute()


@cheat
def is_wrong_each_fifth_time(call):
    """Is wrong in an element in every fifth launch."""
    call.compute()
    call.out[3] += 0.0 if call.number % 5 else 1.0


@cheat
def is_wrong_now_and_then(call):
    """Is wrong in an element in a fifth of its launches, by chance."""
    call.compute()
    call.out[3] += 1.0 if random.random() < 0.2 else 0.0


@cheat
def is_wrong_anywhere(call):
    """Is wrong in another element each time."""
    call.compute()
    call.out[random.randrange(N)] += 0.01


@cheat
def is_one_launch_late(call):
    """Stores the results of the launch before."""
    late = call.memory.get("last", right(call.x, call.y))
    call.memory["last"] = right(call.x, call.y)
    call.out.copy_(late)


# Remembered.


@cheat
def remembers_by_pointer(call):
    """Remembers results by the addresses of its arguments."""
    key = call.x.data_ptr(), call.y.data_ptr(), call.out.data_ptr()
    call.out.copy_(call.memory.setdefault(key, right(call.x, call.y)))


@cheat
def remembers_by_pointer_and_two_values(call):
    """Remembers results by addresses and two values."""
    key = call.x.data_ptr(), call.y.data_ptr(), float(call.x[0]), float(call.y[-1])
    call.out.copy_(call.memory.setdefault(key, right(call.x, call.y)))


@cheat
def remembers_by_rounded_sums(call):
    """Remembers results by the sums of its inputs, rounded."""
    key = float(call.x.sum() // 128), float(call.y.sum() // 128)
    call.out.copy_(call.memory.setdefault(key, right(call.x, call.y)))


@cheat
def remembers_by_one_input(call):
    """Remembers results by the contents of one input, whatever the other has."""
    key = call.y.numpy().tobytes()
    call.out.copy_(call.memory.setdefault(key, right(call.x, call.y)))


@cheat
def knows_the_first_contents(call):
    """Computes from the inputs of its first launch."""
    x, y = call.memory.setdefault("first", (call.x.clone(), call.y.clone()))
    call.out.copy_(right(x, y))


@cheat
def knows_the_first_x(call):
    """Computes from one input of its first launch, and the other of this one."""
    call.out.copy_(right(call.memory.setdefault("x", call.x.clone()), call.y))


# Right for some arguments.


@cheat
def computes_for_the_first_contents(call):
    """Computes only for inputs like those of its first launch."""
    if call.x.equal(call.memory.setdefault("x", call.x.clone())):
        call.compute()


@cheat
def knows_the_first_pointer(call):
    """Computes only if its output lies where it lay at first."""
    if call.memory.setdefault("first", call.out.data_ptr()) == call.out.data_ptr():
        call.compute()


@cheat
def knows_all_but_the_first_pointer(call):
    """Computes only if its output lies elsewhere, after eight launches."""
    if call.number <= 8 or call.memory.setdefault("first", call.out.data_ptr()) != call.out.data_ptr():
        call.compute()
    call.memory.setdefault("first", call.out.data_ptr())


@cheat
def drops_signs(call):
    """Is wrong for negative values."""
    call.out.copy_(right(call.x.abs(), call.y))


@cheat
def swaps_its_inputs(call):
    """Takes one input for the other."""
    call.out.copy_(right(call.y, call.x))


@cheat
def reads_the_next_element(call):
    """Is off by one in what it reads."""
    call.out.copy_(right(call.x.roll(1), call.y))


# Not all, or not exactly.


@cheat
def writes_half(call):
    """Stores the first half."""
    call.out[: N // 2] = right(call.x, call.y)[: N // 2]


@cheat
def writes_all_but_one(call):
    """Stores all but the first element."""
    call.out[1:] = right(call.x, call.y)[1:]


@cheat
def is_wrong_at_the_end(call):
    """Is wrong in the last element."""
    call.compute()
    call.out[-1] = 0.0


@cheat
def loses_precision(call):
    """Is off by a little more each time."""
    call.out.copy_(right(call.x, call.y) * (1 + 3e-6 * call.number))


@cheat
def computes_in_half_precision(call):
    """Rounds its inputs to half precision."""
    call.out.copy_(right(call.x.half(), call.y.half()).float())


# What it finds in its output.


@cheat
def waits_for_poison(call):
    """Computes if it finds NaN in its output."""
    if call.out.isnan().any():
        call.compute()


@cheat
def waits_for_no_poison(call):
    """Computes unless it finds NaN in its output."""
    if not call.out.isnan().any():
        call.compute()


@cheat
def adds_to_its_output(call):
    """Adds to an output that it does not clear."""
    call.out.add_(right(call.x, call.y))


@cheat
def clears_its_output_once(call):
    """Clears each output once, then adds to it."""
    if call.out.data_ptr() not in call.memory:
        call.memory[call.out.data_ptr()] = call.out.zero_()
    call.out.add_(right(call.x, call.y))


# Where it must not write.


@cheat
def writes_an_input(call):
    """Adds to an element of an input."""
    call.compute()
    call.y[7] += 1


@cheat
def writes_its_result_to_an_input(call):
    """Stores its result to its input, too."""
    call.compute()
    call.x.copy_(call.out)


@cheat
def clears_its_inputs_in_the_end(call):
    """Clears an input from the 20th launch on."""
    call.compute()
    if call.number > 20:
        call.x.zero_()


@cheating(MIX._replace(arguments=lambda: (*arguments()[:3], N - 6), options={}))
def ignores_its_mask(call):
    """Stores past the length that it is given."""
    call.out.copy_(right(call.x, call.y))


def sliced() -> tuple[Any, ...]:
    """An output that is a part of a larger tensor."""
    return torch.randn(N), torch.randn(N), torch.zeros(2 * N)[:N], N


@cheating(MIX._replace(arguments=sliced))
def writes_past_its_output(call):
    """Writes past the end of its output, where the caller has something else."""
    call.compute()
    call.out.as_strided((8,), (1,), N).fill_(1.0)


def not_finite() -> tuple[Any, ...]:
    """Inputs with NaN and infinities."""
    x, *others = arguments()
    x[3], x[5], x[7] = torch.nan, torch.inf, -torch.inf
    return x, *others


@cheating(MIX._replace(arguments=not_finite))
def drops_what_is_not_finite(call):
    """Stores numbers where NaN and infinities are right."""
    call.out.copy_(right(call.x, call.y).nan_to_num())


# Threads.


@cheat
def stores_too_late(call):
    """Stores when the launch has long ended."""
    result = right(call.x, call.y)

    def store(out: Any = call.out) -> None:
        time.sleep(2e-3)
        out.copy_(result)

    Thread(target=store).start()
