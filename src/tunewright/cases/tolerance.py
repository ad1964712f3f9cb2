"""Verification: expected results from a reference, tolerances, and descriptions of mismatches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.cases.arguments import PLAIN, Arguments
from tunewright.cases.foreign_arrays import on_host, to_host
from tunewright.cases.inputs import BFLOAT16, NARROW_FLOATS
from tunewright.cases.sensitivity import NUMBERS, Nudge
from tunewright.errors import BackendError
from tunewright.model.signature import Parameter

MAX_ROUNDING_ERRORS = 16
"""How many typical rounding errors a result may be off."""

FEW_TERMS = 64
"""The smallest number of summed terms that is assumed."""

MANY_TERMS = 4096
"""The largest number that is assumed if the declaration does not show what is summed."""

STORAGE_DTYPES = {
    "float16": 2e-2,
    "bfloat16": 5e-2,
    **{name: 0.3 if "e5m2" in name else 0.15 for name in NARROW_FLOATS if name != BFLOAT16},
}
"""Allowed error of dtypes for storage only; sums use more bits."""

_WIDER = {**dict.fromkeys([*STORAGE_DTYPES, "float32"], np.float64), "complex64": np.complex128}


class Tolerance(msgspec.Struct, frozen=True):
    """The error a result may have: as declared, or by its dtype and the number of terms it sums.

    The rounding error of a sum of n terms grows like the square root of n, relative to the sum (Higham, 2002).
    """

    tolerance: float | None = None
    terms: int = FEW_TERMS
    over: str = ""
    coarsest: str = ""

    @classmethod
    def of(cls, tolerance: float | None, parameters: Sequence[Parameter], args: Sequence[Any]) -> Tolerance:
        """Counts terms over the named dimensions that no output has; without any, along the longest axis."""
        sizes: dict[str, int] = {}
        output_dims: set[str] = set()
        for parameter, arg in zip(parameters, args, strict=True):
            named = [dim for dim in parameter.role.dims if isinstance(dim, str)] if parameter.role else []
            if isinstance(arg, np.ndarray) and len(named) == arg.ndim:
                sizes |= dict(zip(named, arg.shape, strict=True))
                output_dims |= set(named) if parameter.role and parameter.role.writes else set()
        summed = {name: size for name, size in sizes.items() if output_dims and name not in output_dims}
        arrays = [arg.dtype for arg in args if isinstance(arg, np.ndarray)]
        floats = [dtype for dtype in arrays if dtype.kind == "f" and dtype.name not in NARROW_FLOATS]
        coarsest = max(floats, key=lambda dtype: float(np.finfo(dtype).eps), default=None)
        name = coarsest.name if coarsest is not None else ""
        if not summed:
            axes = [size for arg in args if isinstance(arg, np.ndarray) for size in arg.shape]
            return cls(tolerance, min(MANY_TERMS, max([FEW_TERMS, *axes])), "the longest axis", name)
        return cls(tolerance, max(FEW_TERMS, prod(summed.values())), ", ".join(summed), name)

    def allowed_error(self, dtype: np.dtype[Any]) -> tuple[float, str]:
        """Returns the allowed error, relative to the element or to the median of non-zero elements, and the reason."""
        if self.tolerance is not None:
            return self.tolerance, "as declared"
        if dtype.name in STORAGE_DTYPES:
            return STORAGE_DTYPES[dtype.name], f"a {dtype.name} holds no more"
        eps = max(float(np.finfo(dtype).eps), 1e-14)  # the reference itself, in double precision, is no better
        return MAX_ROUNDING_ERRORS * eps * sqrt(
            self.terms
        ), f"{dtype.name}, {self.terms:,} terms over {self.over or 'an axis'}"


def expected_from(
    reference: Callable[..., Any],
    parameters: Sequence[Parameter],
    args: Sequence[Any],
    *,
    precise: bool = True,
    nudge: Nudge | None = None,
) -> list[Any]:
    """Returns the expected results by the reference, computed in double precision if `precise`; `nudge` changes inputs.

    The reference gets the kernel's arguments that it names, or else the arrays the kernel reads, in order; it returns
    the results, or changes its arguments in place and returns None.
    """
    wide = [widen(arg) for arg in args] if precise else args
    arguments = Arguments(parameters, [on_host(nudge, arg) for arg in wide] if nudge else wide)
    named = {p.name: value for p, value in zip(parameters, arguments.values, strict=True)}
    names = _named_parameters(reference)
    if names and set(names) <= set(named):
        returned = reference(*(named[name] for name in names))
    else:
        reads = [p for p in parameters if (p.role.reads if p.role else not isinstance(named[p.name], PLAIN))]
        returned = reference(*(named[p.name] for p in reads))
    if returned is None:
        return list(arguments.results(None).values())
    returned = to_host(returned)
    return list(returned) if isinstance(returned, tuple) else [returned]


def _named_parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    except (ValueError, TypeError):  # a builtin or a ufunc
        return []


def widen(arg: Any) -> Any:
    """Returns an array in the precision that references compute in; other values as they are."""
    return on_host(lambda array: array.astype(_WIDER.get(array.dtype.name, array.dtype)), arg)


def find_mismatch(
    expected: Sequence[Any],
    results: dict[str, Any],
    tolerance: Tolerance,
    *,
    same_dtype: bool = False,
    scales: Sequence[Any] | None = None,
) -> str | None:
    """Returns why `results` differ from `expected`; None if they do not.

    With `same_dtype`, results must also have the expected dtype: a reference may use a higher precision, another config
    of the same kernel may not. Errors may also be relative to `scales`, if results are smaller.
    """
    if len(results) == 1 and len(expected) > 1:  # a kernel that returns a tuple
        results = {f"result {i}": part for i, part in enumerate(next(iter(results.values())))}
    if len(expected) != len(results):
        raise BackendError(
            f"the reference gives {len(expected)} results, the kernel writes {len(results)} ({', '.join(results)}); "
            "declare what the kernel writes with Out or InOut"
        )
    for value, least, (name, actual) in zip(expected, scales or [0.0] * len(expected), results.items(), strict=True):
        if same_dtype and getattr(value, "dtype", None) != getattr(actual, "dtype", None):
            return f"{name} is a {_dtype(actual)}, the default gives a {_dtype(value)}"
        if mismatch := _compare(name, value, actual, tolerance, least):
            return mismatch
    return None


def _compare(name: str, expected: Any, actual: Any, tolerance: Tolerance, least_scale: Any) -> str | None:
    if not isinstance(expected, NUMBERS):
        return None if expected == actual else f"{name} is {_short(actual)}, the reference gives {_short(expected)}"
    want, have = np.asarray(expected), np.asarray(actual)
    if want.shape != have.shape:
        return f"{name} has shape {have.shape}, the reference gives {want.shape}"
    if have.dtype.kind in "iu" and tolerance.tolerance is not None:
        wrong = np.abs(have.astype(np.float64) - want) > tolerance.tolerance * np.maximum(np.abs(want), 1)
        allowed = f"within {tolerance.tolerance:g}: as declared"
    elif have.dtype.kind not in "fc" and have.dtype.name not in STORAGE_DTYPES:
        wrong = want != have
        allowed = "exactly equal"
    else:
        is_python = not isinstance(actual, np.ndarray | np.generic)  # a float that may come from single precision
        error, reason = tolerance.allowed_error(
            np.dtype(tolerance.coarsest) if is_python and tolerance.coarsest else have.dtype
        )
        exact = _representable(want, have.dtype)
        have = have.astype(np.float64) if have.dtype.name in STORAGE_DTYPES else have
        sizes = np.abs(exact[np.isfinite(exact) & (exact != 0)])
        middle = (len(sizes) - 1) // 2
        scale = np.maximum(np.partition(sizes, middle)[middle] if len(sizes) else 0.0, least_scale)
        with np.errstate(invalid="ignore"):
            both_finite = np.isfinite(have) & np.isfinite(exact)
            close = both_finite & (np.abs(have - exact) <= error * np.maximum(np.abs(exact), scale))
        wrong = ~(close | (have == exact) | (np.isnan(have) & np.isnan(exact)))
        allowed = f"within {error:.2g}: {reason}"
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"[{', '.join(map(str, first))}]" if first else ""
    return (
        f"{name} is wrong in {int(wrong.sum()):,} of {wrong.size:,} elements: "
        f"{name}{where} is {have[first]!s}, the reference gives {want[first]!s} (must be {allowed})"
    )


def _representable(want: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns values as `dtype` can hold them: overflow becomes infinite, underflow zero."""
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
