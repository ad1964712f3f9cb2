"""Verify: arguments that can be put back, outputs that start poisoned, results compared with a reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import BackendError
from tunewright.model.signature import Parameter

GUARD = 4096
POISON = 0xA5

TOLERANCES = {
    "float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9, "longdouble": 1e-9,
    "complex64": 1e-4, "complex128": 1e-9, "clongdouble": 1e-9,
}  # fmt: skip
"""Allowed error by dtype, relative to the element or to the median of those that are not 0, whichever is larger."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Arguments:
    """Private copies of a call's arguments: arrays between guard zones, restored or poisoned at will."""

    def __init__(self, parameters: Sequence[Parameter], args: Sequence[Any]) -> None:
        self.parameters = tuple(parameters)
        self.pristine: list[Any] = [arg if isinstance(arg, _PLAIN) else deepcopy(arg) for arg in args]
        self._guarded = [_guarded(arg) if isinstance(arg, np.ndarray) else None for arg in args]
        self.values: list[Any] = [
            g[0] if g else deepcopy(arg) for g, arg in zip(self._guarded, self.pristine, strict=True)
        ]
        self.reset()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(value.nbytes for value in self.values if isinstance(value, np.ndarray))

    def reset(self) -> None:
        """Arguments as they were, outputs poisoned, guards fresh."""
        for i, (parameter, guarded) in enumerate(zip(self.parameters, self._guarded, strict=True)):
            if guarded is not None:
                view, memory = guarded
                memory.fill(POISON)
                if parameter.role is None or parameter.role.reads:
                    view[...] = self.pristine[i]
                else:
                    _poison(view)
            elif not isinstance(self.pristine[i], _PLAIN):
                self.values[i] = deepcopy(self.pristine[i])

    def restorer(self) -> Callable[[], None] | None:
        """What puts back the arguments that a launch has just read and changed; None if it changed none.

        Call it after one launch on fresh arguments.
        """
        changed = [
            i
            for i, parameter in enumerate(self.parameters)
            if isinstance(self.values[i], np.ndarray)
            and (parameter.role is None or (parameter.role.reads and parameter.role.writes))
            and not _same_bytes(self.values[i], self.pristine[i])
        ]
        loose = [
            i
            for i, value in enumerate(self.values)
            if not isinstance(value, (np.ndarray, *_PLAIN)) and value != self.pristine[i]
        ]
        if not changed and not loose:
            return None

        # Of these very objects: a later reset may put others in their place.
        arrays = [(self.values[i], self.pristine[i]) for i in changed]
        others = [(self.values[i], self.pristine[i]) for i in loose]

        def restore() -> None:
            for array, before in arrays:
                array[...] = before
            for thing, before in others:
                thing.clear()
                (thing.extend if isinstance(thing, list) else thing.update)(deepcopy(before))

        return restore

    def damage(self) -> str | None:
        """What a launch wrote where it must not, in words."""
        for parameter, guarded, before in zip(self.parameters, self._guarded, self.pristine, strict=True):
            if guarded is None:
                continue
            view, memory = guarded
            if (memory[:GUARD] != POISON).any():
                return f"it wrote before the beginning of {parameter.name}"
            if (memory[GUARD + view.nbytes :] != POISON).any():
                return f"it wrote past the end of {parameter.name}"
            if parameter.role is None:
                continue
            if not parameter.role.writes and not _same_bytes(view, before):
                return f"it wrote to its input {parameter.name}"
            if not parameter.role.reads and (missed := _still_poisoned(view)):
                return f"it left {missed:,} of {view.size:,} elements of {parameter.name} unwritten"
        return None

    def results(self, returned: Any) -> dict[str, Any]:
        """What a launch is judged by: arrays declared as written, else what it returned, else any array."""
        written = {
            p.name: value for p, value in zip(self.parameters, self.values, strict=True) if p.role and p.role.writes
        }
        if written:
            return written
        if returned is not None:
            return {"the result": returned}
        loose = zip(self.parameters, self.values, strict=True)
        return {p.name: value for p, value in loose if p.role is None and not isinstance(value, _PLAIN)}


def expected_from(reference: Callable[..., Any], parameters: Sequence[Parameter], args: Sequence[Any]) -> list[Any]:
    """What the results should be, by the reference.

    It is called with those of the kernel's arguments that it names, or else with the arrays the kernel reads, in
    order; it returns the results, or changes its arguments in place and returns None.
    """
    arguments = Arguments(parameters, args)
    named = {p.name: value for p, value in zip(parameters, arguments.values, strict=True)}
    wanted = _named_parameters(reference)
    if wanted and set(wanted) <= set(named):
        returned = reference(*(named[name] for name in wanted))
    else:
        reads = [p for p in parameters if (p.role.reads if p.role else not isinstance(named[p.name], _PLAIN))]
        returned = reference(*(named[p.name] for p in reads))
    if returned is None:
        return list(arguments.results(None).values())
    return list(returned) if isinstance(returned, tuple) else [returned]


def _named_parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    except (ValueError, TypeError):  # a builtin or a ufunc
        return []


def objection(
    expected: Sequence[Any], results: dict[str, Any], tolerance: float | None, *, same_dtype: bool = False
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
        if said := _difference(name, wanted, got, tolerance):
            return said
    return None


def _difference(name: str, wanted: Any, got: Any, tolerance: float | None) -> str | None:
    if not isinstance(wanted, np.ndarray | np.generic | float | int | complex):
        return None if wanted == got else f"{name} is {_short(got)}, the reference gives {_short(wanted)}"
    want, have = np.asarray(wanted), np.asarray(got)
    if want.shape != have.shape:
        return f"{name} has shape {have.shape}, the reference gives {want.shape}"
    if have.dtype.kind not in "fc":
        wrong = want != have
        allowed = "exactly equal"
    else:
        share = TOLERANCES.get(have.dtype.name, 1e-9) if tolerance is None else tolerance
        exact = want.astype(np.complex128 if "c" in (want.dtype.kind, have.dtype.kind) else np.float64)
        sizes = np.sort(np.abs(exact[np.isfinite(exact) & (exact != 0)]))
        scale = sizes[(len(sizes) - 1) // 2] if len(sizes) else 0.0
        with np.errstate(invalid="ignore"):
            close = np.isfinite(have) & (np.abs(have - exact) <= share * np.maximum(np.abs(exact), scale))
        wrong = ~(close | (have == exact) | (np.isnan(have) & np.isnan(exact)))
        allowed = f"within {share:g}"
    if not wrong.any():
        return None
    worst = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"[{', '.join(map(str, worst))}]" if worst else ""
    return (
        f"{name} is wrong in {int(wrong.sum()):,} of {wrong.size:,} elements: "
        f"{name}{where} is {have[worst]!s}, the reference gives {want[worst]!s} (must be {allowed})"
    )


def _dtype(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _guarded(array: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """An array of the same shape and order of strides, dense, with guard zones before and after it."""
    model = np.empty_like(array)
    memory = np.empty(model.nbytes + 2 * GUARD, dtype=np.uint8)
    # No better aligned than numpy's own arrays are: candidates shall be timed as they will be used.
    return np.ndarray(model.shape, model.dtype, memory.data, GUARD, model.strides if model.size else None), memory


def _poison(view: NDArray[Any]) -> None:
    """Fill an output with what no kernel computes by chance, so that leaving it unwritten shows.

    For floats that is the NaN whose bits are all ones; integers keep the pattern of the guards.
    """
    if view.dtype.kind in "fc":
        view[...] = np.frombuffer(b"\xff" * view.itemsize, view.dtype)[0]


def _still_poisoned(view: NDArray[Any]) -> int:
    """How many elements of an output were never written, as far as their dtype can show it."""
    if view.dtype.kind not in "fc" or not view.size:
        return 0
    raw = np.ascontiguousarray(view).view(np.uint8).reshape(view.size, view.itemsize)
    return int((raw == 0xFF).all(axis=1).sum())


def _same_bytes(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Equality that tells NaN from NaN and 0 from -0."""
    if a.dtype.hasobject:
        return bool(np.array_equal(a, b))
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
