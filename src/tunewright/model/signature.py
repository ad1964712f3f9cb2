"""Signatures: the arguments of a call as text, the roles In, Out and InOut, and the dispatch key of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from tunewright.errors import SignatureError
from tunewright.model.foreign import device_of, dtype_name, element_strides, foreign_key, is_foreign, library_of

Dim = str | int

Bucket = Callable[[str, int], int]
"""Rounds the size of a named dimension to its bucket."""


class Role(msgspec.Struct, frozen=True):
    """Whether a kernel reads or writes an array, and the names of its dimensions: `a: In("M", "K")`."""

    dims: tuple[Dim, ...] = ()
    reads: bool = True
    writes: bool = True
    constant: bool = False

    def __call__(self, *dims: Dim, constant: bool = False) -> Role:
        """Returns this role for an array with named dimensions or fixed sizes.

        A `constant` input, such as weights, has the same contents at the same address in every call: a kernel may keep
        what it computed from it. Other inputs change between launches while a kernel is tuned.
        """
        if constant and self.writes:
            raise SignatureError("only an In can be constant: what a kernel writes changes")
        return msgspec.structs.replace(self, dims=dims, constant=constant)


In = Role(writes=False)
"""An array that the kernel only reads."""

Out = Role(reads=False)
"""An array that the kernel overwrites completely."""

InOut = Role()
"""An array that the kernel reads and writes; the default for arrays without a role."""


NO_DEFAULT: Any = inspect.Parameter.empty


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a kernel: its name, and its role if it is declared as an array, or else its type if declared."""

    name: str
    role: Role | None = None
    kind: type | None = None
    default: Any = NO_DEFAULT

    @classmethod
    def of(cls, function: Callable[..., Any], knobs: Sequence[str]) -> tuple[Parameter, ...]:
        """Returns the parameters of `function` without the knobs."""
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError as error:
            raise SignatureError(f"cannot read the annotations of {function.__qualname__}: {error}") from error
        parameters = []
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise SignatureError(f"{function.__qualname__} takes *args or **kwargs; name each argument instead")
            if parameter.name in knobs:
                continue
            if parameter.kind == parameter.KEYWORD_ONLY:
                raise SignatureError(_no_knob(function.__qualname__, parameter.name, knobs))
            annotation = parameter.annotation
            parameters.append(cls(parameter.name, _role(annotation), _kind(annotation), parameter.default))
        return tuple(parameters)


def _no_knob(function: str, name: str, knobs: Sequence[str]) -> str:
    """Returns the message for an argument after * that the space does not have."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    close = get_close_matches(name, knobs, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"knobs: {', '.join(knobs)}"
    return f"{function}: {name!r} comes after *, but the space has no such knob; {hint}"


def _role(annotation: Any) -> Role | None:
    parts = (annotation, *getattr(annotation, "__metadata__", ()))
    return next((part for part in parts if isinstance(part, Role)), None)


def _kind(annotation: Any) -> type | None:
    return annotation if annotation in (int, float, bool, str) else None


class Signature(msgspec.Struct, frozen=True):
    """Each argument as text (`float32[M,K]`, or `float32[512,512]`), and the sizes of named dimensions."""

    args: tuple[str, ...] = ()
    dims: dict[str, int] = {}

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={size}" for name, size in self.dims.items())
        kinds = ", ".join(self.args)
        return f"{sizes} ({kinds})" if sizes else kinds

    @classmethod
    def of(cls, parameters: Sequence[Parameter], args: Sequence[Any], bucket: Bucket | None = None) -> Signature:
        """Returns the signature of a call, with named dimensions rounded to buckets."""
        if len(args) != len(parameters):
            names = ", ".join(parameter.name for parameter in parameters)
            raise SignatureError(f"the kernel takes {len(parameters)} arguments ({names}); {len(args)} were given")
        dims: dict[str, int] = {}
        for parameter, arg in zip(parameters, args, strict=True):
            _add_dims(parameter, arg, dims)
        for parameter, arg in zip(parameters, args, strict=True):
            if isinstance(arg, int) and dims.get(parameter.name, arg) != arg:
                raise SignatureError(f"{parameter.name} is {dims[parameter.name]} in the arrays, but {arg} was given")
        if bucket:
            dims = {name: bucket(name, size) for name, size in dims.items()}
        return cls(tuple(_describe(p, arg, dims) for p, arg in zip(parameters, args, strict=True)), dims)


def _add_dims(parameter: Parameter, arg: Any, dims: dict[str, int]) -> None:
    """Adds the dimensions that `parameter` names to `dims`; raises SignatureError if sizes contradict each other."""
    role = parameter.role
    if role is None or not role.dims:
        return
    shape = getattr(arg, "shape", None)
    if shape is None or len(shape) != len(role.dims):
        actual = "no shape" if shape is None else f"{len(shape)} dimensions"
        raise SignatureError(f"{parameter.name} is declared as [{', '.join(map(str, role.dims))}] but has {actual}")
    for dim, size in zip(role.dims, shape, strict=True):
        expected = dim if isinstance(dim, int) else dims.setdefault(dim, int(size))
        if expected != size:
            raise SignatureError(f"{dim} is {expected} elsewhere but {size} in {parameter.name}{tuple(shape)}")


def _describe(parameter: Parameter, arg: Any, dims: Mapping[str, int]) -> str:
    """Returns an argument as text: an array by dtype, shape and layout, an int by value, a float by type."""
    if parameter.kind is float:
        return "float"
    if isinstance(arg, np.generic):
        arg = arg.item()
    shape, dtype = getattr(arg, "shape", None), getattr(arg, "dtype", None)
    if shape is None or dtype is None:
        if isinstance(arg, bool | int | str) or arg is None:
            # An int that repeats a named dimension is rounded like it.
            return f"{type(arg).__name__}={dims.get(parameter.name, arg)}"
        return f"{type(arg).__name__}[{len(arg)}]" if hasattr(arg, "__len__") else type(arg).__name__
    # A named dimension appears by name: its size is in `dims`, so that a difference is reported once.
    sizes = parameter.role.dims if parameter.role and parameter.role.dims else shape
    text = f"{dtype_name(arg)}[{','.join(map(str, sizes))}]"
    layout = layout_of(shape, strides_of(arg))
    text = text if layout == "C" else f"{text}:{layout}"
    return f"{text}@{library_of(arg)}:{device_of(arg)}" if is_foreign(arg) else text


def strides_of(array: Any) -> tuple[int, ...]:
    """Returns strides in elements, for numpy arrays and for those of other libraries."""
    return element_strides(array)


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> str:
    """Returns the class of a layout: C, or the order of dimensions from slowest to fastest, and whether it has gaps."""
    order = sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i))
    order = [i for i in order if shape[i] != 1]
    dense, step = True, 1
    for i in reversed(order):
        dense, step = dense and strides[i] == step, step * shape[i]
    if 0 in shape or (dense and order == sorted(order)):
        return "C"
    extra = "" if dense else "+repeats" if any(strides[i] == 0 for i in order) else "+gaps"
    return f"order({','.join(map(str, order))}){extra}"


class CallSignature(msgspec.Struct, frozen=True):
    """The dispatch key of a call: an expression over the parameters' names, and the other names it uses.

    It is compiled into the kernel's `__call__`, where it is the larger part of a cached launch: no loop, and no
    branch for what the declaration already says. Calls with equal dispatch keys may share a launcher.
    """

    text: str
    scope: Mapping[str, Any]
    foreign: bool = False
    """Whether arrays of other libraries than numpy are arguments, too."""

    @classmethod
    def of(cls, parameters: Sequence[Parameter], *, foreign: bool = False) -> CallSignature:
        """Uses shape, strides and dtype of arrays, the value of ints, the type of floats, and inspects the rest."""
        parts: list[str] = []
        for parameter in parameters:
            name = parameter.name
            if parameter.role is not None:
                # A contiguous array needs no strides, which are the slowest to read and to hash. Only the flags of
                # numpy have `contiguous`: arrays of other libraries are told apart, at no cost.
                parts += [f"{name}.shape", f"{name}.flags.contiguous or {name}.strides", f"{name}.dtype"]
            elif parameter.kind is float:
                parts.append(f"{name}.__class__")
            elif parameter.kind is not None:
                parts.append(name)
            else:
                parts.append(f"_tunewright_inspect({name})")
        return cls(f"({', '.join(parts)},)" if parts else "()", {"_tunewright_inspect": _inspect}, foreign)


def _inspect(arg: Any) -> Hashable:
    """Returns what distinguishes an argument whose type was not declared."""
    cls = arg.__class__
    if cls is np.ndarray:
        return arg.shape, arg.flags.c_contiguous or arg.strides, arg.dtype
    if cls in _BY_VALUE:
        return cls, arg
    if is_foreign(arg):
        return foreign_key(arg)
    if isinstance(arg, _NUMPY_INTEGERS):
        return cls, arg
    if (shape := getattr(arg, "shape", None)) is not None:
        return cls, shape, element_strides(arg), arg.dtype
    return (cls, len(arg)) if hasattr(arg, "__len__") else cls


def foreign_dispatch_key(parameters: Sequence[Parameter], args: Sequence[Any]) -> Hashable:
    """Returns the dispatch key of a call with arrays of other libraries. Raises TypeError for what is no array."""
    parts: list[Hashable] = ["foreign"]
    for parameter, arg in zip(parameters, args, strict=True):
        if is_foreign(arg):
            parts.append(foreign_key(arg))
        elif parameter.role is not None and not isinstance(arg, np.ndarray):
            raise TypeError(f"{parameter.name} is a {type(arg).__name__}")
        else:
            parts.append(arg.__class__ if parameter.kind is float else _inspect(arg))
    return tuple(parts)


_NUMPY_INTEGERS = (np.integer, np.bool_)

_BY_VALUE = frozenset({int, bool, str, type(None)})
