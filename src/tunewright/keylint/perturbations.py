"""Perturbations of a call in a single respect: values, placement in memory, scalars, sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tunewright.kernel.tuned import Tuned
from tunewright.model.signature import Parameter, strides_of

PAGE = 4096
"""Page size in bytes."""

OFFSETS = (0, 8, 16, 32)
"""Page offsets of arrays that are tried, besides one element."""

ValueChange = Callable[[NDArray[Any], Generator], NDArray[Any] | None]
"""Returns the array with value values; None if its type does not allow it."""


class PerturbationKind(StrEnum):
    """What a perturbation changes."""

    VALUES = "values"
    PLACE = "place"  # placement and layout of arrays in memory
    SCALAR = "scalar"
    SIZE = "size"


class Perturbation(msgspec.Struct, frozen=True):
    """A call that differs in one respect: a short name, a description, and a function that makes its arguments.

    `about` is the changed argument or dimension; if empty, all arrays that the kernel reads.
    """

    name: str
    what: str
    sort: PerturbationKind
    make: Callable[[], list[Any]]
    about: str = ""


def perturbations(kernel: Tuned, sizes: Mapping[str, int], args: Sequence[Any]) -> Iterator[Perturbation]:
    """Yields all perturbations of a call with `args`, which were made from `sizes`."""
    yield from _values(kernel.parameters, args)
    yield from _places(kernel.parameters, args)
    yield from _scalars(kernel.parameters, args)
    yield from _sizes(kernel, sizes)


def _values(parameters: Sequence[Parameter], args: Sequence[Any]) -> Iterator[Perturbation]:
    read = [i for i, arg in enumerate(args) if isinstance(arg, np.ndarray) and arg.size and _is_read(parameters[i])]
    for name, (what, change) in VALUE_CHANGES.items():
        rng = np.random.default_rng(1)
        changed = {i: array for i in read if (array := change(args[i], rng)) is not None}
        if any(not np.array_equal(array, args[i]) for i, array in changed.items()):
            yield Perturbation(name, what, PerturbationKind.VALUES, partial(_copy_args, args, changed))


def _copy_args(args: Sequence[Any], changed: Mapping[int, Any]) -> list[Any]:
    """Returns copies of the arguments with some changed; arrays keep their page offset."""
    copies = [copy_at_offset(arg, arg.ctypes.data % PAGE)[0] if isinstance(arg, np.ndarray) else arg for arg in args]
    for i, value in changed.items():
        if isinstance(copies[i], np.ndarray):
            copies[i][...] = value
        else:
            copies[i] = value
    return copies


def _is_read(parameter: Parameter) -> bool:
    return parameter.role is None or parameter.role.reads


def _full_in_range(array: NDArray[Any], value: float) -> NDArray[Any]:
    """Returns an array of one value; integers stay in the original range, as they may be indices."""
    value = min(max(value, array.min()), array.max()) if array.dtype.kind in "iu" else value
    return np.full_like(array, value)


def _sort_values(array: NDArray[Any], rng: Generator) -> NDArray[Any]:
    return np.sort(array, axis=None).reshape(array.shape)


def _make_sparse(array: NDArray[Any], rng: Generator) -> NDArray[Any] | None:
    if array.dtype.kind in "iu" and not array.min() <= 0 <= array.max():
        return None
    return np.where(rng.random(array.shape) < 0.05, array, np.zeros_like(array))


def _draw_few(array: NDArray[Any], rng: Generator) -> NDArray[Any]:
    return rng.choice(rng.choice(array.ravel(), 4), array.shape)


def _make_denormal(array: NDArray[Any], rng: Generator) -> NDArray[Any] | None:
    if array.dtype.kind != "f":
        return None
    tiny = np.finfo(array.dtype).tiny
    return (rng.uniform(0.25, 0.75, array.shape) * float(tiny)).astype(array.dtype)


def _make_wide(array: NDArray[Any], rng: Generator) -> NDArray[Any] | None:
    # Positive, because with cancellation each order of summation gives another result, and all are right.
    if array.dtype.kind != "f":
        return None
    reach = 4 if array.dtype.itemsize == 2 else 20
    return np.exp2(rng.uniform(-reach, reach, array.shape)).astype(array.dtype)


VALUE_CHANGES: dict[str, tuple[str, ValueChange]] = {
    "shuffled": ("the same values in another order", lambda a, rng: rng.permutation(a.ravel()).reshape(a.shape)),
    "zeros": ("all values are 0", lambda a, rng: _full_in_range(a, 0)),
    "ones": ("all values are 1", lambda a, rng: _full_in_range(a, 1)),
    "constant": ("all values are one of them", lambda a, rng: np.full_like(a, a.flat[a.size // 2])),
    "ascending": ("values are sorted", _sort_values),
    "descending": (
        "values are sorted, largest first",
        lambda a, rng: _sort_values(a, rng).ravel()[::-1].reshape(a.shape),
    ),
    "sparse": ("19 of 20 values are 0", _make_sparse),
    "few": ("4 distinct values", _draw_few),
    "positive": ("no value is negative", lambda a, rng: np.abs(a) if a.dtype.kind in "fi" else None),
    "denormal": ("values are too small for full precision", _make_denormal),
    "wide": ("values span twelve powers of ten", _make_wide),
}


def _places(parameters: Sequence[Parameter], args: Sequence[Any]) -> Iterator[Perturbation]:
    arrays = [i for i, arg in enumerate(args) if isinstance(arg, np.ndarray) and arg.size]
    if not arrays:
        return
    for offset in dict.fromkeys([*OFFSETS, *(args[i].itemsize for i in arrays)]):
        if all(offset % args[i].itemsize == 0 for i in arrays):
            what = f"arrays begin {offset} bytes after a page" if offset else "arrays begin with a page"
            yield Perturbation(f"offset {offset}", what, PerturbationKind.PLACE, partial(_move_arrays, args, offset))
    inputs = [i for i in arrays if (role := parameters[i].role) and role.reads and not role.writes]
    if pair := _find_twins(args, inputs):
        names = " and ".join(parameters[i].name for i in pair)
        yield Perturbation(
            "aliased", f"{names} are one array", PerturbationKind.PLACE, partial(_alias_arrays, args, pair), names
        )
    if inputs:
        yield Perturbation(
            "read-only", "inputs are read-only", PerturbationKind.PLACE, partial(_make_read_only, args, inputs)
        )
    yield Perturbation(
        "gaps", "arrays have gaps", PerturbationKind.PLACE, partial(_change_arrays, args, arrays, _add_gaps)
    )
    if any(args[i].ndim > 1 for i in arrays):
        yield Perturbation(
            "order",
            "dimensions lie in another order",
            PerturbationKind.PLACE,
            partial(_change_arrays, args, arrays, _transpose_order),
        )


def _change_arrays(
    args: Sequence[Any], which: Sequence[int], change: Callable[[NDArray[Any]], NDArray[Any]]
) -> list[Any]:
    return [change(arg) if i in which else arg for i, arg in enumerate(_copy_args(args, {}))]


def _move_arrays(args: Sequence[Any], offset: int) -> list[Any]:
    arrays = [i for i, arg in enumerate(args) if isinstance(arg, np.ndarray)]
    return _change_arrays(args, arrays, lambda array: copy_at_offset(array, offset)[0])


def copy_at_offset(array: NDArray[Any], offset: int, guard: int = 0) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Returns a dense copy at a page offset, and its memory with `guard` bytes on both sides."""
    model = np.empty_like(array)
    memory = np.empty(model.nbytes + 2 * guard + PAGE, dtype=np.uint8)
    start = (offset - guard - memory.ctypes.data) % PAGE
    memory = memory[start : start + model.nbytes + 2 * guard]
    strides = model.strides if model.size else None
    view: NDArray[Any] = np.ndarray(model.shape, model.dtype, memory.data, guard, strides)
    view[...] = array
    return view, memory


def _find_twins(args: Sequence[Any], inputs: Sequence[int]) -> tuple[int, int] | None:
    """Returns two inputs that could be the same array."""
    for first, second in combinations(inputs, 2):
        a, b = args[first], args[second]
        if (a.shape, a.dtype, strides_of(a)) == (b.shape, b.dtype, strides_of(b)):
            return first, second
    return None


def _alias_arrays(args: Sequence[Any], pair: tuple[int, int]) -> list[Any]:
    copies = _copy_args(args, {})
    copies[pair[1]] = copies[pair[0]]
    return copies


def _make_read_only(args: Sequence[Any], which: Sequence[int]) -> list[Any]:
    copies = _copy_args(args, {})
    for i in which:
        copies[i].setflags(write=False)
    return copies


def _add_gaps(array: NDArray[Any]) -> NDArray[Any]:
    wide = np.zeros((*array.shape, 2), array.dtype)[..., 0]
    wide[...] = array
    return wide


def _transpose_order(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, order="C" if array.flags.f_contiguous else "F")


def _scalars(parameters: Sequence[Parameter], args: Sequence[Any]) -> Iterator[Perturbation]:
    for i, (parameter, arg) in enumerate(zip(parameters, args, strict=True)):
        if isinstance(arg, float) or parameter.kind is float:
            values = dict.fromkeys([0.0, 1.0, -arg, arg / 10, arg / 2, 2 * arg, 10 * arg])
        elif isinstance(arg, bool):
            values = {not arg: None}
        elif isinstance(arg, int):
            values = {arg + 1: None}
        else:
            continue
        for value in values:
            if value != arg:
                name = f"{parameter.name}={value:g}" if isinstance(value, float) else f"{parameter.name}={value}"
                what = f"{parameter.name} is {value:g}, not {arg:g}"
                yield Perturbation(
                    name, what, PerturbationKind.SCALAR, partial(_copy_args, args, {i: value}), parameter.name
                )


def _sizes(kernel: Tuned, sizes: Mapping[str, int]) -> Iterator[Perturbation]:
    for name in kernel.buckets:
        edge = kernel.buckets(name, sizes[name])
        smallest = _smallest_in_bucket(partial(kernel.buckets, name), edge)
        for size in dict.fromkeys([smallest, (smallest + edge) // 2, 4 * edge]):
            if size != sizes[name] and kernel.buckets(name, size) == edge:
                what = f"{name} is {size}, in the bucket of {edge}"
                make = partial(kernel.example, {**sizes, name: size})
                yield Perturbation(f"{name}={size}", what, PerturbationKind.SIZE, make, name)


def _smallest_in_bucket(bucket: Callable[[int], int], edge: int) -> int:
    """Returns the smallest size in the bucket of `edge`."""
    low, high = 1, edge
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bucket(middle) == edge else (middle + 1, high)
    return low
