"""What a case of the corpus is, and how kernels become cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import tunewright as tw
from tunewright.kernel.tuned import Tuned
from tunewright.model.decision import Decision
from tunewright.model.trial import Trial

HONEST = "honest"
TRIALS = 16
"""More than any space has configs: all are tried."""

PRODUCT = {"N": 192}
"""The size of products in Python; one takes a few tenths of a millisecond."""


class Tuning(NamedTuple):
    """How a case was tuned: the decision, all trials, and the configs that should have been tried."""

    decision: Decision
    trials: Sequence[Trial]
    configs: Iterable[tw.Config]


def tune_in_worker(case: Case, seed: int) -> Tuning:
    """Tunes a kernel with all else as it is by default: its trials run in a worker process."""
    session = tw.Session(
        cache=os.getcwd(), mode="tune", pool="process:1", trials=TRIALS, min_expected_gain=0, seed=seed
    )
    case.kernel.using(session)
    decision = case.kernel.decide(*case.arguments())
    return Tuning(decision, list(session.store.trials(decision.key)), case.kernel.space)


@dataclass(frozen=True)
class Case:
    """A kernel to be tuned for one call. If it has a `cheat`, that value of its knob must not be chosen.

    `tune` tunes it in this process, given a seed. `doc` says what it does. `kernel` is what a front end tunes.
    """

    name: str
    language: str
    kernel: Any
    arguments: Callable[[], Sequence[Any]]
    cheat: str | int = ""
    doc: str = ""
    tune: Callable[[Case, int], Tuning] = tune_in_worker


CASES: list[Case] = []


def plain(kernel: Tuned, sizes: Mapping[str, int]) -> Callable[[], Sequence[Any]]:
    """How a call with arrays of these sizes gets its arguments."""
    return partial(kernel.example, sizes)


def register(function: Any, space: tw.Space, case: Mapping[str, Any], options: Mapping[str, Any]) -> Tuned:
    """Make a function a tuned kernel, under its own name in its own module, and a case of the corpus."""
    language = "c" if "backend" in options else "python"
    kernel = tw.tune(space, **{"name": f"{language}_{function.__name__}", **options})(function)
    arguments = case.get("arguments") or plain(kernel, case["sizes"])
    CASES.append(Case(function.__name__, language, kernel, arguments, case.get("cheat", ""), doc_of(function)))
    return kernel


def doc_of(function: Any) -> str:
    """The first line of what a function says about itself."""
    return (function.__doc__ or "").strip().partition("\n")[0]


def address(array: Any) -> int:
    """Where an array lies."""
    return int(array.__array_interface__["data"][0])


def named(function: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    """A function as if it had been written in place of another: workers find kernels by name."""
    function.__name__ = function.__qualname__ = like.__name__
    function.__module__, function.__doc__ = like.__module__, like.__doc__
    return function


def honest(
    *ways: Any,
    sizes: Mapping[str, int] | None = None,
    arguments: Callable[[], Sequence[Any]] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], Tuned]:
    """An honest kernel in Python with these ways to compute, the first of which is the default."""
    space = tw.Space(tw.Knob("way", list(ways)))
    return lambda function: register(function, space, {"sizes": sizes, "arguments": arguments}, options)


# What cheats are measured against. In double precision: anything done in single precision is faster.


def product(a: Any, b: Any) -> Any:
    """The reference of products. It looks `np.matmul` up when called, as most references do."""
    return np.matmul(a, b)


def exact_product(a: Any, b: Any, c: Any) -> None:
    """The honest way to multiply."""
    c[...] = np.matmul(a.astype(np.float64), b.astype(np.float64))


def fast_product(a: Any, b: Any, c: Any) -> None:
    """A faster way that is right, too; most bugs are in it."""
    np.matmul(a, b, out=c)


def cheat(way: Callable[..., Any]) -> Tuned:
    """A product with the honest way and this one."""

    def kernel(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N"), *, how=HONEST):
        (exact_product if how == HONEST else way)(a, b, c)

    return cheating(named(kernel, way), PRODUCT, reference=product)


def cheating(function: Callable[..., Any], sizes: Mapping[str, int], **options: Any) -> Tuned:
    """A kernel whose knob `how` is honest, or named like the kernel."""
    space = tw.Space(tw.Knob("how", [HONEST, function.__name__]))
    return register(function, space, {"sizes": sizes, "cheat": function.__name__}, options)
