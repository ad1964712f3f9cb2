"""Signature: what the arguments of a call look like, as text; and the roles In, Out, InOut."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec

from tunewright.errors import SignatureError

Dim = str | int


class Role(msgspec.Struct, frozen=True):
    """What a kernel does with an array, and the names of its dimensions: `a: In("M", "K")`."""

    dims: tuple[Dim, ...] = ()
    reads: bool = True
    writes: bool = True

    def __call__(self, *dims: Dim) -> Role:
        """The same role for an array whose dimensions have names, or fixed sizes."""
        return msgspec.structs.replace(self, dims=dims)


In = Role(writes=False)
"""An array the kernel only reads."""

Out = Role(reads=False)
"""An array the kernel only writes, all of it."""

InOut = Role()
"""An array the kernel reads and writes; what is assumed of an array without a role."""


class Parameter(msgspec.Struct, frozen=True):
    """One argument of a kernel: its name, and its role if it is declared to be an array."""

    name: str
    role: Role | None = None
    kind: type | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], knobs: Sequence[str]) -> tuple[Parameter, ...]:
        """The arguments of `function`, without the knobs it also takes."""
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError as error:
            raise SignatureError(f"cannot read the annotations of {function.__qualname__}: {error}") from error
        found = []
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise SignatureError(f"{function.__qualname__} takes *args or **kwargs; name each argument instead")
            if parameter.name not in knobs and parameter.kind != parameter.KEYWORD_ONLY:
                found.append(cls(parameter.name, _role(parameter.annotation), _kind(parameter.annotation)))
        return tuple(found)


def _role(annotation: Any) -> Role | None:
    parts = (annotation, *getattr(annotation, "__metadata__", ()))
    return next((part for part in parts if isinstance(part, Role)), None)


def _kind(annotation: Any) -> type | None:
    return annotation if annotation in (int, float, bool, str) else None


class Signature(msgspec.Struct, frozen=True):
    """Each argument as text (`float32[M,K]`, or `float32[512,512]`), and the named dimensions as numbers."""

    args: tuple[str, ...] = ()
    dims: dict[str, int] = {}

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={size}" for name, size in self.dims.items())
        kinds = ", ".join(self.args)
        return f"{sizes} ({kinds})" if sizes else kinds

    @classmethod
    def of(cls, parameters: Sequence[Parameter], args: Sequence[Any], buckets: Buckets | None = None) -> Signature:
        """The signature of a call, with declared buckets applied to the named dimensions."""
        if len(args) != len(parameters):
            names = ", ".join(parameter.name for parameter in parameters)
            raise SignatureError(f"the kernel takes {len(parameters)} arguments ({names}); {len(args)} were given")
        dims: dict[str, int] = {}
        for parameter, arg in zip(parameters, args, strict=True):
            _note_dims(parameter, arg, dims)
        for parameter, arg in zip(parameters, args, strict=True):
            if isinstance(arg, int) and dims.get(parameter.name, arg) != arg:
                raise SignatureError(f"{parameter.name} is {dims[parameter.name]} in the arrays, but {arg} was given")
        if buckets:
            dims = {name: buckets.round(name, size) for name, size in dims.items()}
        return cls(tuple(_describe(p, arg, dims) for p, arg in zip(parameters, args, strict=True)), dims)


def _note_dims(parameter: Parameter, arg: Any, dims: dict[str, int]) -> None:
    """Add the dimensions that `parameter` names to `dims`; a size that contradicts is the caller's mistake."""
    role = parameter.role
    if role is None or not role.dims:
        return
    shape = getattr(arg, "shape", None)
    if shape is None or len(shape) != len(role.dims):
        found = "no shape" if shape is None else f"{len(shape)} dimensions"
        raise SignatureError(f"{parameter.name} is declared as [{', '.join(map(str, role.dims))}] but has {found}")
    for dim, size in zip(role.dims, shape, strict=True):
        wanted = dim if isinstance(dim, int) else dims.setdefault(dim, int(size))
        if wanted != size:
            raise SignatureError(f"{dim} is {wanted} elsewhere but {size} in {parameter.name}{tuple(shape)}")


def _describe(parameter: Parameter, arg: Any, dims: Mapping[str, int]) -> str:
    """One argument as text; an array by dtype, shape and class of layout, an int by value, a float by type."""
    shape, dtype = getattr(arg, "shape", None), getattr(arg, "dtype", None)
    if shape is None or dtype is None:
        if isinstance(arg, bool | int | str) or arg is None:
            # An int that repeats a named dimension follows its bucket.
            return f"{type(arg).__name__}={dims.get(parameter.name, arg)}"
        return f"{type(arg).__name__}[{len(arg)}]" if hasattr(arg, "__len__") else type(arg).__name__
    # A named dimension stands by its name: its size is in `dims`, where a difference is said once.
    sizes = parameter.role.dims if parameter.role and parameter.role.dims else shape
    text = f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, sizes))}]"
    layout = layout_of(shape, strides_of(arg))
    return text if layout == "C" else f"{text}:{layout}"


def strides_of(array: Any) -> tuple[int, ...]:
    """Strides in elements, for numpy and for whatever has a `stride()` like torch."""
    strides = getattr(array, "strides", None)
    if strides is None:
        return tuple(array.stride())
    return tuple(step // array.itemsize for step in strides)


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> str:
    """The class of a layout: C, or the order of dimensions from slowest to fastest, and whether it has gaps."""
    order = sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i))
    order = [i for i in order if shape[i] != 1]
    dense, step = True, 1
    for i in reversed(order):
        dense, step = dense and strides[i] == step, step * shape[i]
    if dense and order == sorted(order):
        return "C"
    extra = "" if dense else "+repeats" if any(strides[i] == 0 for i in order) else "+gaps"
    return f"order({','.join(map(str, order))}){extra}"


class Buckets:
    """Declared sizes: a dimension is rounded up to the next of its edges, so that tunings stay few."""

    def __init__(self, edges: Mapping[str, Sequence[int] | str]) -> None:
        self._edges = {name: None if spec == "pow2" else self._sorted(name, spec) for name, spec in edges.items()}

    @staticmethod
    def _sorted(name: str, spec: Sequence[int] | str) -> tuple[int, ...]:
        if isinstance(spec, str) or not spec or not all(isinstance(edge, int) and edge > 0 for edge in spec):
            raise SignatureError(f'buckets of {name!r} are "pow2" or a list of positive sizes, not {spec!r}')
        return tuple(sorted(spec))

    def __bool__(self) -> bool:
        return bool(self._edges)

    def __iter__(self) -> Any:
        return iter(self._edges)

    def round(self, name: str, size: int) -> int:
        """The bucket of `size`: the smallest edge that holds it; sizes beyond the last edge share it."""
        if name not in self._edges:
            return size
        edges = self._edges[name]
        if edges is None:
            return 1 << max(0, (size - 1).bit_length())
        return edges[min(bisect_left(edges, size), len(edges) - 1)]


class Reading(msgspec.Struct, frozen=True):
    """How to tell calls apart: an expression over the parameters' names, and what else it mentions.

    It is compiled into the kernel's `__call__`, where it is the larger part of a cached launch: no loop, and no
    branch for what the declaration already says. Calls it makes equal may share a launcher.
    """

    text: str
    scope: Mapping[str, Any]

    @classmethod
    def of(cls, parameters: Sequence[Parameter]) -> Reading:
        """An array by shape, strides and dtype, an int by value, a float by its type, the rest by a closer look."""
        parts: list[str] = []
        for parameter in parameters:
            name = parameter.name
            if parameter.role is not None:
                parts += [f"{name}.shape", f"{name}.strides", f"{name}.dtype"]
            elif parameter.kind is float:
                parts.append(f"{name}.__class__")
            elif parameter.kind is not None:
                parts.append(name)
            else:
                parts.append(f"_tunewright_look({name})")
        return cls(f"({', '.join(parts)},)" if parts else "()", {"_tunewright_look": _look})


def cached_call(
    parameters: Sequence[Parameter],
    reading: Reading,
    ready: Mapping[Hashable, Callable[..., Any]],
    prepare: Callable[[Hashable, tuple[Any, ...]], Callable[..., Any]],
) -> Callable[..., Any]:
    """A `__call__` written out for these parameters, as `namedtuple` writes its own.

    It looks up what `reading` says in `ready`, else asks `prepare`, and launches with the arguments as they came.
    """
    names = ", ".join(parameter.name for parameter in parameters)
    comma = f"{names}," if names else ""
    source = f"""
def __call__(_tunewright_self, {names}):
    _tunewright_mark = {reading.text}
    _tunewright_launch = _tunewright_get(_tunewright_mark)
    if _tunewright_launch is None:
        _tunewright_launch = _tunewright_prepare(_tunewright_mark, ({comma}))
    return _tunewright_launch({names})
"""
    scope: dict[str, Any] = {**reading.scope, "__name__": __name__}
    scope |= {"_tunewright_get": ready.get, "_tunewright_prepare": prepare}
    exec(source, scope)
    made: Callable[..., Any] = scope["__call__"]
    return made


def _look(arg: Any) -> Hashable:
    """What distinguishes an argument whose kind was not declared."""
    cls = arg.__class__
    if cls in _BY_VALUE:
        return cls, arg
    shape = getattr(arg, "shape", None)
    if shape is not None:
        strides = getattr(arg, "strides", None)
        return cls, shape, arg.stride() if strides is None else strides, arg.dtype
    return (cls, len(arg)) if hasattr(arg, "__len__") else cls


_BY_VALUE = frozenset({int, bool, str, type(None)})
