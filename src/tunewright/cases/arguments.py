"""Arguments: private copies that can be reset; outputs start poisoned, and arrays lie between guard zones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.model.signature import Parameter

GUARD = 4096
POISON = 0xA5

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Immutable types, which no launch can change."""


class Arguments:
    """Private copies of a call's arguments; arrays lie between guard zones."""

    def __init__(self, parameters: Sequence[Parameter], args: Sequence[Any]) -> None:
        self.parameters = tuple(parameters)
        self.pristine: list[Any] = [arg if isinstance(arg, PLAIN) else deepcopy(arg) for arg in args]
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
        """Restores arguments, poisons outputs and renews the guard zones."""
        for i, (parameter, guarded) in enumerate(zip(self.parameters, self._guarded, strict=True)):
            if guarded is not None:
                view, memory = guarded
                memory.fill(POISON)
                if parameter.role is None or parameter.role.reads:
                    view[...] = self.pristine[i]
                else:
                    _poison(view)
            elif not isinstance(self.pristine[i], PLAIN):
                self.values[i] = deepcopy(self.pristine[i])

    def restorer(self) -> Callable[[], None] | None:
        """Returns a function that restores the arguments a launch has read and changed; None if it changed none.

        Call it after one launch on fresh arguments.
        """
        changed = [
            i
            for i, parameter in enumerate(self.parameters)
            if isinstance(self.values[i], np.ndarray)
            and (parameter.role is None or (parameter.role.reads and parameter.role.writes))
            and not _same_bytes(self.values[i], self.pristine[i])
        ]
        changed_containers = [
            i
            for i, value in enumerate(self.values)
            if isinstance(value, list | dict) and _differs(value, self.pristine[i])
        ]
        if not changed and not changed_containers:
            return None

        # These objects, not the indices: a later reset may replace them.
        arrays = [(self.values[i], self.pristine[i]) for i in changed]
        containers = [(self.values[i], self.pristine[i]) for i in changed_containers]

        def restore() -> None:
            for array, before in arrays:
                array[...] = before
            for container, before in containers:
                container.clear()
                (container.extend if isinstance(container, list) else container.update)(deepcopy(before))

        return restore

    def damage(self) -> str | None:
        """Returns what a launch wrote where it must not; None if all is well."""
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
            if not parameter.role.reads and (unwritten := _still_poisoned(view)):
                where = f"{unwritten:,} of {view.size:,} elements of {parameter.name}"
                return f"it left {where} unwritten (if that is right, declare {parameter.name} as InOut, not Out)"
        return None

    def results(self, returned: Any) -> dict[str, Any]:
        """Returns the results of a launch: arrays declared as written, else the returned value, else any array."""
        written = {
            p.name: value for p, value in zip(self.parameters, self.values, strict=True) if p.role and p.role.writes
        }
        if written:
            return written
        if returned is not None:
            return {"the result": returned}
        pairs = zip(self.parameters, self.values, strict=True)
        return {p.name: value for p, value in pairs if p.role is None and not isinstance(value, PLAIN)}


def _guarded(array: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Returns a dense array of the same shape and order of strides, with guard zones before and after it."""
    model = np.empty_like(array)
    memory = np.empty(model.nbytes + 2 * GUARD, dtype=np.uint8)
    # Aligned no better than numpy's own arrays, so that candidates are timed as they will be used.
    return np.ndarray(model.shape, model.dtype, memory.data, GUARD, model.strides if model.size else None), memory


def _poison(view: NDArray[Any]) -> None:
    """Fills an output with a value that no kernel computes by chance, to detect unwritten elements.

    For floats that is the NaN whose bits are all ones; integers keep the pattern of the guard zones.
    """
    if view.dtype.kind in "fc":
        view[...] = np.frombuffer(b"\xff" * view.itemsize, view.dtype)[0]


def _still_poisoned(view: NDArray[Any]) -> int:
    """Returns how many elements of an output were never written, as far as the dtype can show it."""
    if view.dtype.kind not in "fc" or not view.size:
        return 0
    raw = np.ascontiguousarray(view).view(np.uint8).reshape(view.size, view.itemsize)
    return int((raw == 0xFF).all(axis=1).sum())


def _differs(value: Any, before: Any) -> bool:
    """Whether a list or dictionary differs from before; True if they cannot be compared."""
    try:
        return bool(value != before)
    except ValueError:  # arrays in it
        return True


def _same_bytes(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays are equal bit for bit: distinguishes NaNs, and 0 from -0."""
    if a.dtype.hasobject:
        return bool(np.array_equal(a, b))
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
