"""Perturbations: calls that differ from a given one in a single respect, whether or not the key tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tunewright.fronts.tuned import Tuned
from tunewright.model.signature import Parameter, strides_of

PAGE = 4096
"""Bytes after which addresses are alike to a processor."""

OFFSETS = (0, 8, 16, 32)
"""Bytes that an array begins after a page; one element more is tried, too."""

Spread = Callable[[NDArray[Any], Generator], NDArray[Any] | None]
"""The same array with other values; None if that makes no sense for its type."""


class Sort(StrEnum):
    """What a perturbation changes."""

    VALUES = "values"
    PLACE = "place"  # where arrays lie in memory, and how
    SCALAR = "scalar"
    SIZE = "size"


class Perturbation(msgspec.Struct, frozen=True):
    """A call that differs in one respect: a short name, what is different in words, and its arguments, made anew.

    `about` is the argument or dimension changed; without one, it is all arrays that the kernel reads.
    """

    name: str
    what: str
    sort: Sort
    make: Callable[[], list[Any]]
    about: str = ""


def perturbations(kernel: Tuned, sizes: Mapping[str, int], args: Sequence[Any]) -> Iterator[Perturbation]:
    """Every way we know to change a call with `args`, which were made from `sizes`."""
    yield from _values(kernel.parameters, args)
    yield from _places(kernel.parameters, args)
    yield from _scalars(kernel.parameters, args)
    yield from _sizes(kernel, sizes)


def _values(parameters: Sequence[Parameter], args: Sequence[Any]) -> Iterator[Perturbation]:
    read = [i for i, arg in enumerate(args) if isinstance(arg, np.ndarray) and arg.size and _reads(parameters[i])]
    for name, (what, spread) in SPREADS.items():
        rng = np.random.default_rng(1)
        made = {i: other for i in read if (other := spread(args[i], rng)) is not None}
        if any(not np.array_equal(other, args[i]) for i, other in made.items()):
            yield Perturbation(name, what, Sort.VALUES, partial(_with, args, made))


def _with(args: Sequence[Any], made: Mapping[int, Any]) -> list[Any]:
    """Copies of the arguments, some of them others; each array lies as far after a page as it did."""
    copies = [at(arg, arg.ctypes.data % PAGE)[0] if isinstance(arg, np.ndarray) else arg for arg in args]
    for i, other in made.items():
        if isinstance(copies[i], np.ndarray):
            copies[i][...] = other
        else:
            copies[i] = other
    return copies


def _reads(parameter: Parameter) -> bool:
    return parameter.role is None or parameter.role.reads


def _within(array: NDArray[Any], value: float) -> NDArray[Any]:
    """An array of one value; integers stay within what was there, since they may be places in another array."""
    value = min(max(value, array.min()), array.max()) if array.dtype.kind in "iu" else value
    return np.full_like(array, value)


def _ordered(array: NDArray[Any], rng: Generator) -> NDArray[Any]:
    return np.sort(array, axis=None).reshape(array.shape)


def _sparse(array: NDArray[Any], rng: Generator) -> NDArray[Any] | None:
    if array.dtype.kind in "iu" and not array.min() <= 0 <= array.max():
        return None
    return np.where(rng.random(array.shape) < 0.05, array, np.zeros_like(array))


def _few(array: NDArray[Any], rng: Generator) -> NDArray[Any]:
    return rng.choice(rng.choice(array.ravel(), 4), array.shape)


def _tiny(array: NDArray[Any], rng: Generator) -> NDArray[Any] | None:
    if array.dtype.kind != "f":
        return None
    least = np.finfo(array.dtype).tiny
    return (rng.uniform(0.25, 0.75, array.shape) * float(least)).astype(array.dtype)


def _wide(array: NDArray[Any], rng: Generator) -> NDArray[Any] | None:
    # Positive: where large terms cancel, every order of summing gives another result, and all are right.
    if array.dtype.kind != "f":
        return None
    reach = 4 if array.dtype.itemsize == 2 else 20
    return np.exp2(rng.uniform(-reach, reach, array.shape)).astype(array.dtype)


SPREADS: dict[str, tuple[str, Spread]] = {
    "shuffled": ("the same values in another order", lambda a, rng: rng.permutation(a.ravel()).reshape(a.shape)),
    "zeros": ("all values are 0", lambda a, rng: _within(a, 0)),
    "ones": ("all values are 1", lambda a, rng: _within(a, 1)),
    "constant": ("all values are one of them", lambda a, rng: np.full_like(a, a.flat[a.size // 2])),
    "ascending": ("values are sorted", _ordered),
    "descending": ("values are sorted, largest first", lambda a, rng: _ordered(a, rng).ravel()[::-1].reshape(a.shape)),
    "sparse": ("19 of 20 values are 0", _sparse),
    "few": ("4 distinct values", _few),
    "positive": ("no value is negative", lambda a, rng: np.abs(a) if a.dtype.kind in "fi" else None),
    "denormal": ("values are too small for full precision", _tiny),
    "wide": ("values span twelve powers of ten", _wide),
}


def _places(parameters: Sequence[Parameter], args: Sequence[Any]) -> Iterator[Perturbation]:
    arrays = [i for i, arg in enumerate(args) if isinstance(arg, np.ndarray) and arg.size]
    if not arrays:
        return
    for offset in dict.fromkeys([*OFFSETS, *(args[i].itemsize for i in arrays)]):
        if all(offset % args[i].itemsize == 0 for i in arrays):
            what = f"arrays begin {offset} bytes after a page" if offset else "arrays begin with a page"
            yield Perturbation(f"offset {offset}", what, Sort.PLACE, partial(_moved, args, offset))
    inputs = [i for i in arrays if (role := parameters[i].role) and role.reads and not role.writes]
    if pair := _twins(args, inputs):
        names = " and ".join(parameters[i].name for i in pair)
        yield Perturbation("aliased", f"{names} are one array", Sort.PLACE, partial(_aliased, args, pair), names)
    if inputs:
        yield Perturbation("read-only", "inputs are read-only", Sort.PLACE, partial(_frozen, args, inputs))
    yield Perturbation("gaps", "arrays have gaps", Sort.PLACE, partial(_each, args, arrays, _gapped))
    if any(args[i].ndim > 1 for i in arrays):
        yield Perturbation(
            "order", "dimensions lie in another order", Sort.PLACE, partial(_each, args, arrays, _turned)
        )


def _each(args: Sequence[Any], which: Sequence[int], change: Callable[[NDArray[Any]], NDArray[Any]]) -> list[Any]:
    return [change(arg) if i in which else arg for i, arg in enumerate(_with(args, {}))]


def _moved(args: Sequence[Any], offset: int) -> list[Any]:
    arrays = [i for i, arg in enumerate(args) if isinstance(arg, np.ndarray)]
    return _each(args, arrays, lambda array: at(array, offset)[0])


def at(array: NDArray[Any], offset: int, guard: int = 0) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """A dense copy that begins so many bytes after a page, and the memory it lies in, which has room on both sides."""
    model = np.empty_like(array)
    memory = np.empty(model.nbytes + 2 * guard + PAGE, dtype=np.uint8)
    start = (offset - guard - memory.ctypes.data) % PAGE
    memory = memory[start : start + model.nbytes + 2 * guard]
    strides = model.strides if model.size else None
    view: NDArray[Any] = np.ndarray(model.shape, model.dtype, memory.data, guard, strides)
    view[...] = array
    return view, memory


def _twins(args: Sequence[Any], inputs: Sequence[int]) -> tuple[int, int] | None:
    """Two inputs that could be the same array."""
    for place, one in enumerate(inputs):
        for other in inputs[place + 1 :]:
            a, b = args[one], args[other]
            if (a.shape, a.dtype, strides_of(a)) == (b.shape, b.dtype, strides_of(b)):
                return one, other
    return None


def _aliased(args: Sequence[Any], pair: tuple[int, int]) -> list[Any]:
    copies = _with(args, {})
    copies[pair[1]] = copies[pair[0]]
    return copies


def _frozen(args: Sequence[Any], which: Sequence[int]) -> list[Any]:
    copies = _with(args, {})
    for i in which:
        copies[i].setflags(write=False)
    return copies


def _gapped(array: NDArray[Any]) -> NDArray[Any]:
    wide = np.zeros((*array.shape, 2), array.dtype)[..., 0]
    wide[...] = array
    return wide


def _turned(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, order="C" if array.flags.f_contiguous else "F")


def _scalars(parameters: Sequence[Parameter], args: Sequence[Any]) -> Iterator[Perturbation]:
    for i, (parameter, arg) in enumerate(zip(parameters, args, strict=True)):
        if isinstance(arg, float) or parameter.kind is float:
            others = dict.fromkeys([0.0, 1.0, -arg, arg / 10, arg / 2, 2 * arg, 10 * arg])
        elif isinstance(arg, bool):
            others = {not arg: None}
        elif isinstance(arg, int):
            others = {arg + 1: None}
        else:
            continue
        for other in others:
            if other != arg:
                name = f"{parameter.name}={other:g}" if isinstance(other, float) else f"{parameter.name}={other}"
                what = f"{parameter.name} is {other:g}, not {arg:g}"
                yield Perturbation(name, what, Sort.SCALAR, partial(_with, args, {i: other}), parameter.name)


def _sizes(kernel: Tuned, sizes: Mapping[str, int]) -> Iterator[Perturbation]:
    for name in kernel.buckets:
        edge = kernel.buckets(name, sizes[name])
        least = _smallest(partial(kernel.buckets, name), edge)
        for size in dict.fromkeys([least, (least + edge) // 2, 4 * edge]):
            if size != sizes[name] and kernel.buckets(name, size) == edge:
                what = f"{name} is {size}, in the bucket of {edge}"
                make = partial(kernel.example, {**sizes, name: size})
                yield Perturbation(f"{name}={size}", what, Sort.SIZE, make, name)


def _smallest(bucket: Callable[[int], int], edge: int) -> int:
    """The smallest size in the bucket of `edge`."""
    low, high = 1, edge
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bucket(middle) == edge else (middle + 1, high)
    return low
