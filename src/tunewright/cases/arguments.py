"""Arguments: private copies that can be reset and changed; outputs start poisoned, arrays lie between guard zones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.cases.contents import Contents
from tunewright.cases.foreign_arrays import FOREIGN_ALIGNMENT, ForeignCopy, from_host, to_host
from tunewright.errors import SignatureError
from tunewright.model.foreign import device_of, is_foreign, library_of
from tunewright.model.signature import Parameter

GUARD = 4096
READ_GUARD, WRITE_GUARD = 0xFF, 0x3C
"""The bytes of guard zones. Inputs have NaN as floats, -1 as integers: who reads them gets another result. Outputs have
numbers: what is computed from NaN beyond an input is NaN, and would leave NaN beyond the output as it was. What is read
and written has one and the other by turns."""

ALIGNMENT = 16
"""Bytes by which the arrays of sets are shifted against each other: a multiple of the alignment that numpy promises."""

INTEGER_POISON = 0xA5
"""The bytes of integer outputs before a launch."""

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Immutable types, which no launch can change."""


class Outputs(Enum):
    """What a launch finds in its outputs, which it must overwrite."""

    POISONED = "poisoned"  # values that no kernel computes by chance
    NUMBERS = "numbers"  # numbers like any others
    KEPT = "kept"  # what an earlier launch left


class Arguments:
    """Private copies of a call's arguments; arrays lie between guard zones.

    `constants` are arguments with the same parameters, of which the constant inputs are shared.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        args: Sequence[Any],
        *,
        seed: int = 0,
        structured: bool = False,
        constants: Arguments | None = None,
    ) -> None:
        self.parameters = tuple(parameters)
        self.pristine: list[Any] = [_copy(arg) for arg in args]
        self._guarded = [_guarded(copy, arg, seed) for copy, arg in zip(self.pristine, args, strict=True)]
        self._foreign = {
            i: ForeignCopy(arg, guarded[0])
            for i, (arg, guarded) in enumerate(zip(args, self._guarded, strict=True))
            if guarded is not None and not isinstance(arg, np.ndarray)
        }
        if constants is not None:
            for i in _constant_places(parameters):
                self.pristine[i], self._guarded[i] = constants.pristine[i], constants._guarded[i]
                self._foreign |= {i: constants._foreign[i]} if i in constants._foreign else {}
        self._refuse_immutable_outputs()
        self.values: list[Any] = [
            self._foreign[i].array if i in self._foreign else g[0] if g else deepcopy(arg)
            for i, (g, arg) in enumerate(zip(self._guarded, self.pristine, strict=True))
        ]
        self.contents = Contents(self.parameters, self.pristine, seed, structured=structured or self._is_fixed)
        self.contents.attach([g[0] if g else value for g, value in zip(self._guarded, self.values, strict=True)])
        self._changed_by_launches: set[int] = set()
        self._resets, self._guard_bytes = 0, [READ_GUARD] * len(self._guarded)
        self.reset()

    def _refuse_immutable_outputs(self) -> None:
        for i, copy in self._foreign.items():
            role = self.parameters[i].role
            if role is not None and role.writes and copy.is_immutable:
                name = self.parameters[i].name
                raise SignatureError(
                    f"{name} is an array of JAX, which no kernel can write; declare it as In, return the result"
                )

    @property
    def _is_fixed(self) -> bool:
        """Whether contents cannot change: an array is neither shared with the host nor can it be written."""
        return any(copy.is_fixed for copy in self._foreign.values())

    @property
    def arrays(self) -> list[NDArray[Any] | None]:
        """The array arguments in the host's memory, at their places; None for other arguments."""
        return [guarded[0] if guarded else None for guarded in self._guarded]

    @property
    def originals(self) -> list[Any]:
        """The arguments as they were given: arrays are of the library they came from."""
        return [
            from_host(arg, library_of(self.values[i]), device_of(self.values[i]), self.values[i])
            if i in self._foreign
            else arg
            for i, arg in enumerate(self.pristine)
        ]

    def push(self) -> None:
        """Copies changes in the host's memory to arrays that do not share it."""
        for copy in self._foreign.values():
            copy.push()

    def _pull(self) -> None:
        for copy in self._foreign.values():
            copy.pull()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(array.nbytes for array in self.arrays if array is not None)

    @property
    def has_outputs(self) -> bool:
        """Whether the kernel declares what it writes; otherwise results may be what it returns."""
        return any(parameter.role is not None and parameter.role.writes for parameter in self.parameters)

    @property
    def has_arrays(self) -> bool:
        """Whether a launch can see or leave anything in memory that `refresh` changes."""
        return any(guarded is not None for guarded in self._guarded)

    def refresh(self, draw: int, *, outputs: Outputs = Outputs.POISONED) -> None:
        """Changes the inputs to other contents, restores what launches change, and fills the outputs.

        It is faster than `reset`, which renews everything.
        """
        views = self.arrays
        self.contents.draw(draw)
        for i in self._changed_by_launches:
            views[i][...] = self.pristine[i]  # type: ignore[index]
        for parameter, view in zip(self.parameters, views, strict=True):
            if view is not None and parameter.role is not None and not parameter.role.reads:
                _fill(view, outputs)
        self.push()

    def reset(self, draw: int = 0, *, outputs: Outputs = Outputs.POISONED) -> None:
        """Restores the arguments with the contents of a draw, fills outputs, and renews the guard zones."""
        if draw != self.contents.number:
            self.contents.draw(draw)
        self._resets += 1
        for i, (parameter, guarded) in enumerate(zip(self.parameters, self._guarded, strict=True)):
            if guarded is not None:
                view, memory = guarded
                reads = parameter.role is None or parameter.role.reads
                if reads or outputs is not Outputs.KEPT:
                    self._guard_bytes[i] = _guard_byte(parameter, self._resets)
                    memory.fill(self._guard_bytes[i])
                if reads:
                    view[...] = self.pristine[i]
                else:
                    _fill(view, outputs)
            elif not isinstance(self.pristine[i], PLAIN):
                self.values[i] = deepcopy(self.pristine[i])
        self.push()

    def restorer(self) -> Callable[[], None] | None:
        """Returns a function that restores the arguments a launch has read and changed; None if it changed none.

        Call it after one launch on fresh arguments.
        """
        self._pull()
        views = self.arrays
        changed = [
            i
            for i, (parameter, view) in enumerate(zip(self.parameters, views, strict=True))
            if view is not None
            and (parameter.role is None or (parameter.role.reads and parameter.role.writes))
            and not _same_bytes(view, self.pristine[i])
        ]
        self._changed_by_launches |= set(changed)
        changed_containers = [
            i
            for i, value in enumerate(self.values)
            if isinstance(value, list | dict) and _differs(value, self.pristine[i])
        ]
        if not changed and not changed_containers:
            return None

        # These objects, not the indices: a later reset may replace them.
        arrays = [(views[i], self.pristine[i]) for i in changed]
        containers = [(self.values[i], self.pristine[i]) for i in changed_containers]

        def restore() -> None:
            for array, before in arrays:
                array[...] = before  # type: ignore[index]
            self.push()
            for container, before in containers:
                container.clear()
                (container.extend if isinstance(container, list) else container.update)(deepcopy(before))

        return restore

    def damage(self) -> str | None:
        """Returns what a launch wrote where it must not; None if all is well."""
        self._pull()
        for i, (parameter, guarded, before) in enumerate(
            zip(self.parameters, self._guarded, self.pristine, strict=True)
        ):
            if guarded is None:
                continue
            (view, memory), byte = guarded, self._guard_bytes[i]
            if (memory[:GUARD] != byte).any():
                return f"it wrote before the beginning of {parameter.name}"
            if (memory[GUARD + view.nbytes :] != byte).any():
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
        """Returns the results of a launch: arrays declared as written, else the returned value, else any array.

        Arrays of other libraries are returned as numpy arrays.
        """
        self._pull()
        host = [value if view is None else view for value, view in zip(self.values, self._result_views(), strict=True)]
        written = {p.name: value for p, value in zip(self.parameters, host, strict=True) if p.role and p.role.writes}
        if written:
            return written
        if returned is not None:
            return {"the result": to_host(returned)}
        pairs = zip(self.parameters, host, strict=True)
        return {p.name: value for p, value in pairs if p.role is None and not isinstance(value, PLAIN)}

    def _result_views(self) -> list[NDArray[Any] | None]:
        """Returns the host's memory of arrays that are not numpy's; None for other arguments."""
        return [view if i in self._foreign else None for i, view in enumerate(self.arrays)]


def _constant_places(parameters: Sequence[Parameter]) -> list[int]:
    """Returns the places of the parameters that are constant inputs."""
    return [i for i, parameter in enumerate(parameters) if parameter.role is not None and parameter.role.constant]


def _copy(arg: Any) -> Any:
    """Returns a private copy of an argument; an array of another library as a numpy array."""
    if isinstance(arg, PLAIN):
        return arg
    return np.array(to_host(arg), order="K") if is_foreign(arg) else deepcopy(arg)


def _guarded(array: Any, arg: Any, seed: int = 0) -> tuple[NDArray[Any], NDArray[np.uint8]] | None:
    """Returns a dense array of the same shape and order of strides, with guard zones before and after it.

    Arrays of numpy are aligned no better than its own, those of other libraries as theirs: candidates are timed as they
    will be used. None for what is no array.
    """
    if not isinstance(array, np.ndarray):
        return None
    model, own = np.empty_like(array), isinstance(arg, np.ndarray)
    shift = (ALIGNMENT if own else FOREIGN_ALIGNMENT) * (seed % 4)
    memory = np.empty(model.nbytes + 2 * GUARD + shift + (0 if own else FOREIGN_ALIGNMENT), dtype=np.uint8)
    shift += 0 if own else -memory.ctypes.data % FOREIGN_ALIGNMENT
    memory = memory[shift : shift + model.nbytes + 2 * GUARD]
    return np.ndarray(model.shape, model.dtype, memory.data, GUARD, model.strides if model.size else None), memory


def _guard_byte(parameter: Parameter, turn: int) -> int:
    """Returns the bytes around an argument in this turn."""
    role = parameter.role
    if role is not None and not role.writes:
        return READ_GUARD
    if role is not None and not role.reads:
        return WRITE_GUARD
    return READ_GUARD if turn % 2 else WRITE_GUARD


def _fill(view: NDArray[Any], outputs: Outputs) -> None:
    """Fills an output. Poison shows which elements were not written: for floats, the NaN whose bits are all ones."""
    if view.dtype.hasobject or outputs is Outputs.KEPT:
        return
    if outputs is Outputs.NUMBERS:
        view[...] = 1
    else:
        byte = 0xFF if _shows_poison(view.dtype) else INTEGER_POISON
        view[...] = np.frombuffer(bytes([byte]) * view.itemsize, view.dtype)[0]


def _shows_poison(dtype: np.dtype[Any]) -> bool:
    """Whether the NaN of the poison is one of many: floats of 8 bits have few."""
    return dtype.kind in "fc" and dtype.itemsize > 1


def _still_poisoned(view: NDArray[Any]) -> int:
    """Returns how many elements of an output were never written, as far as the dtype can show it."""
    if not _shows_poison(view.dtype) or not view.size:
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
