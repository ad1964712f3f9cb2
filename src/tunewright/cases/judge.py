"""Judge: the right results by a reference, how near is near enough and why, and what is wrong in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.cases.arguments import PLAIN, Arguments
from tunewright.errors import BackendError
from tunewright.model.signature import Parameter

ERRORS = 16
"""How many typical rounding errors a result may be off."""

FEW_TERMS = 64
"""The least number of terms assumed: a kernel that sums little still computes."""

MANY_TERMS = 4096
"""The most that are assumed where nobody says what is summed: it may be nothing at all."""

HALVES = {"float16": 2e-2, "bfloat16": 5e-2}
"""Allowed error of types that only store: sums are kept in more bits, or nothing would be left of them."""

_WIDER = {"bfloat16": np.float64, "float16": np.float64, "float32": np.float64, "complex64": np.complex128}


class Nearness(msgspec.Struct, frozen=True):
    """How near a result must be: what the user said, else by its dtype and by how many terms it sums.

    The rounding errors of a sum of n terms grow like the root of n, relative to the sum (Higham, 2002).
    """

    tolerance: float | None = None
    terms: int = FEW_TERMS
    over: str = ""
    coarsest: str = ""

    @classmethod
    def of(cls, tolerance: float | None, parameters: Sequence[Parameter], args: Sequence[Any]) -> Nearness:
        """Terms are counted over the named dimensions that no output has; without any, along the longest axis."""
        sizes: dict[str, int] = {}
        kept: set[str] = set()
        for parameter, arg in zip(parameters, args, strict=True):
            named = [dim for dim in parameter.role.dims if isinstance(dim, str)] if parameter.role else []
            if isinstance(arg, np.ndarray) and len(named) == arg.ndim:
                sizes |= dict(zip(named, arg.shape, strict=True))
                kept |= set(named) if parameter.role and parameter.role.writes else set()
        summed = {name: size for name, size in sizes.items() if kept and name not in kept}
        floats = [arg.dtype for arg in args if isinstance(arg, np.ndarray) and arg.dtype.kind == "f"]
        coarsest = max(floats, key=lambda dtype: float(np.finfo(dtype).eps), default=None)
        name = coarsest.name if coarsest is not None else ""
        if not summed:
            axes = [size for arg in args if isinstance(arg, np.ndarray) for size in arg.shape]
            return cls(tolerance, min(MANY_TERMS, max([FEW_TERMS, *axes])), "the longest axis", name)
        return cls(tolerance, max(FEW_TERMS, prod(summed.values())), ", ".join(summed), name)

    def share(self, dtype: np.dtype[Any]) -> tuple[float, str]:
        """The error allowed, relative to the element or to the median of those that are not 0, and why so much."""
        if self.tolerance is not None:
            return self.tolerance, "as declared"
        if dtype.name in HALVES:
            return HALVES[dtype.name], f"a {dtype.name} holds no more"
        eps = max(float(np.finfo(dtype).eps), 1e-14)  # the reference itself, in double precision, is no better
        return ERRORS * eps * sqrt(self.terms), f"{dtype.name}, {self.terms:,} terms over {self.over or 'an axis'}"


def expected_from(
    reference: Callable[..., Any], parameters: Sequence[Parameter], args: Sequence[Any], *, precise: bool = True
) -> list[Any]:
    """What the results should be, by the reference, computed in double precision if it is to be `precise`.

    It is called with those of the kernel's arguments that it names, or else with the arrays the kernel reads, in
    order; it returns the results, or changes its arguments in place and returns None.
    """
    arguments = Arguments(parameters, [_wider(arg) for arg in args] if precise else args)
    named = {p.name: value for p, value in zip(parameters, arguments.values, strict=True)}
    wanted = _named_parameters(reference)
    if wanted and set(wanted) <= set(named):
        returned = reference(*(named[name] for name in wanted))
    else:
        reads = [p for p in parameters if (p.role.reads if p.role else not isinstance(named[p.name], PLAIN))]
        returned = reference(*(named[p.name] for p in reads))
    if returned is None:
        return list(arguments.results(None).values())
    return list(returned) if isinstance(returned, tuple) else [returned]


def _named_parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    except (ValueError, TypeError):  # a builtin or a ufunc
        return []


def _wider(arg: Any) -> Any:
    return arg.astype(_WIDER.get(arg.dtype.name, arg.dtype)) if isinstance(arg, np.ndarray) else arg


def objection(
    expected: Sequence[Any], results: dict[str, Any], near: Nearness, *, same_dtype: bool = False
) -> str | None:
    """Why `results` are not `expected`, in words.

    A reference may compute in a higher precision; another config of the same kernel may not return another dtype.
    """
    if len(results) == 1 and len(expected) > 1:  # a kernel that returns a tuple
        results = {f"result {i}": part for i, part in enumerate(next(iter(results.values())))}
    if len(expected) != len(results):
        raise BackendError(
            f"the reference gives {len(expected)} results, the kernel writes {len(results)} ({', '.join(results)}); "
            "declare what the kernel writes with Out or InOut"
        )
    for wanted, (name, got) in zip(expected, results.items(), strict=True):
        if same_dtype and getattr(wanted, "dtype", None) != getattr(got, "dtype", None):
            return f"{name} is a {_dtype(got)}, the default gives a {_dtype(wanted)}"
        if said := _difference(name, wanted, got, near):
            return said
    return None


def _difference(name: str, wanted: Any, got: Any, near: Nearness) -> str | None:
    if not isinstance(wanted, np.ndarray | np.generic | float | int | complex):
        return None if wanted == got else f"{name} is {_short(got)}, the reference gives {_short(wanted)}"
    want, have = np.asarray(wanted), np.asarray(got)
    if want.shape != have.shape:
        return f"{name} has shape {have.shape}, the reference gives {want.shape}"
    if have.dtype.kind in "iu" and near.tolerance is not None:
        wrong = np.abs(have.astype(np.float64) - want) > near.tolerance * np.maximum(np.abs(want), 1)
        allowed = f"within {near.tolerance:g}: as declared"
    elif have.dtype.kind not in "fc" and have.dtype.name not in HALVES:
        wrong = want != have
        allowed = "exactly equal"
    else:
        plain = not isinstance(got, np.ndarray | np.generic)  # a Python float holds what single precision gave it
        share, why = near.share(np.dtype(near.coarsest) if plain and near.coarsest else have.dtype)
        exact = _as_held(want, have.dtype)
        have = have.astype(np.float64) if have.dtype.name in HALVES else have
        sizes = np.sort(np.abs(exact[np.isfinite(exact) & (exact != 0)]))
        scale = sizes[(len(sizes) - 1) // 2] if len(sizes) else 0.0
        with np.errstate(invalid="ignore"):
            close = np.isfinite(have) & (np.abs(have - exact) <= share * np.maximum(np.abs(exact), scale))
        wrong = ~(close | (have == exact) | (np.isnan(have) & np.isnan(exact)))
        allowed = f"within {share:.2g}: {why}"
    if not wrong.any():
        return None
    worst = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"[{', '.join(map(str, worst))}]" if worst else ""
    return (
        f"{name} is wrong in {int(wrong.sum()):,} of {wrong.size:,} elements: "
        f"{name}{where} is {have[worst]!s}, the reference gives {want[worst]!s} (must be {allowed})"
    )


def _as_held(want: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The right values as `dtype` can hold them: too large is infinite there, too small is nothing."""
    wide = np.complex128 if "c" in (want.dtype.kind, dtype.kind) else np.float64
    with np.errstate(over="ignore", under="ignore"):
        held = want.astype(dtype).astype(wide) if dtype.kind == "c" or want.dtype.kind != "c" else want.astype(wide)
    exact: NDArray[Any] = want.astype(wide)
    return np.where(np.isfinite(held) & (held != 0), exact, held)


def _dtype(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
