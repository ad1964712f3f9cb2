"""Trees: values as JSON holds them, canonical and readable. Arguments become keys by them, results turn back."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from math import isfinite
from pathlib import Path, PurePath, PureWindowsPath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, Literal

import msgspec
import numpy as np

from tunewright.backends.host import digest, source_of
from tunewright.errors import MemoError
from tunewright.sharing import wire

Tree = Any
Form = Callable[[Any, Callable[[Any], Tree]], Tree]

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What turning foreign data into a value may raise."""

_WIDE = 1 << 63


def _as_it_is(value: Any, inner: Callable[[Any], Tree]) -> Tree:
    return value


def _int(value: int, inner: Callable[[Any], Tree]) -> Tree:
    return value if -_WIDE <= value < _WIDE else {"int": hex(value)}


def _float(value: float, inner: Callable[[Any], Tree]) -> Tree:
    return value if isfinite(value) else {"float": str(value)}


def _str(value: str, inner: Callable[[Any], Tree]) -> Tree:
    try:
        value.encode()
    except UnicodeEncodeError:  # half a character, as in names of files that are no text
        return {"str": value.encode("utf-8", "surrogatepass").hex()}
    return value


def _bytes(value: bytes, inner: Callable[[Any], Tree]) -> Tree:
    return {"bytes": value.hex()}


def _list(value: list[Any], inner: Callable[[Any], Tree]) -> Tree:
    return [inner(item) for item in value]


def _tuple(value: tuple[Any, ...], inner: Callable[[Any], Tree]) -> Tree:
    return {"tuple": [inner(item) for item in value]}


def _set(value: set[Any] | frozenset[Any], inner: Callable[[Any], Tree]) -> Tree:
    return {type(value).__name__: sorted(map(inner, value), key=wire.encode)}


def _dict(value: dict[Any, Any], inner: Callable[[Any], Tree]) -> Tree:
    """Pairs in their order, which a result keeps."""
    return {"dict": [[inner(key), inner(item)] for key, item in value.items()]}


def _unordered(value: dict[Any, Any], inner: Callable[[Any], Tree]) -> Tree:
    """Dictionaries are equal whatever their order, so as arguments they are the same."""
    if all(type(key) is str for key in value):
        named = {inner(key): inner(item) for key, item in value.items() if key.isascii()}
        if len(named) == len(value):
            return {"dict": named}
    return {"dict": sorted(([inner(key), inner(item)] for key, item in value.items()), key=wire.encode)}


def _scalar(value: np.generic, inner: Callable[[Any], Tree]) -> Tree:
    if value.dtype.hasobject:
        raise MemoError(f"a numpy {type(value).__name__} that holds objects is no plain value; take them out of it")
    return {"scalar": [_dtype(value.dtype), value.tobytes().hex()]}


def _dtype(dtype: np.dtype[Any]) -> Tree:
    """Name and layout: the layout alone is the same for all types that packages add to numpy."""
    if dtype.fields is not None and dtype.names is not None:
        fields = [[name, _dtype(dtype.fields[name][0]), dtype.fields[name][1]] for name in dtype.names]
        return {"fields": fields, "bytes": dtype.itemsize}
    if dtype.subdtype is not None:
        return [_dtype(dtype.subdtype[0]), list(dtype.subdtype[1])]
    return f"{dtype.name} {dtype.str}"


_FORMS: dict[type, Form] = {
    NoneType: _as_it_is,
    bool: _as_it_is,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
}
_ATOMS = frozenset({NoneType, bool, int, float, str, bytes})


class Arguments:
    """Arguments as trees: equal values give equal text, unequal ones never do, and 1, 1.0 and True are not equal.

    `encoders` say for a type, and for those derived from it, what of a value counts.
    """

    def __init__(self, encoders: Mapping[type, Callable[[Any], Any]]) -> None:
        self._encoders = dict(encoders)
        own = [kind for kind in {**_FORMS, dict: _unordered} if self._encoder(kind) is None]
        self._forms: dict[type, Form] = {kind: {**_FORMS, dict: _unordered}[kind] for kind in own}
        self.atoms = _ATOMS & self._forms.keys()

    def tree(self, value: Any) -> Tree:
        """The tree of one value; a MemoError if nothing says what of it counts."""
        kind = type(value)
        form = self._forms.get(kind)
        if form is None:
            form = self._forms[kind] = self._found(kind)
        return form(value, self.tree)

    def text(self, named: Mapping[str, Any]) -> bytes:
        """The arguments of a call, by name, as canonical JSON."""
        try:
            return wire.encode({name: self.tree(value) for name, value in named.items()})
        except RecursionError as error:
            raise MemoError("an argument contains itself; give `encoders={its type: what of it counts}`") from error

    def _encoder(self, kind: type) -> Callable[[Any], Any] | None:
        return next((self._encoders[each] for each in kind.__mro__ if each in self._encoders), None)

    def _encoded(self, encoder: Callable[[Any], Any], value: Any, inner: Callable[[Any], Tree]) -> Tree:
        told = encoder(value)
        if self._encoder(type(told)) is encoder:  # as where text is encoded as other text
            inner = Arguments({}).tree
        return {f"encoded {_name(type(value))}": inner(told)}

    def _found(self, kind: type) -> Form:
        """How a type is told that has no form of its own."""
        if (encoder := self._encoder(kind)) is not None:
            return partial(self._encoded, encoder)
        for family, form in _FAMILIES.items():
            if issubclass(kind, family):
                return form
        if dataclasses.is_dataclass(kind):
            return partial(_fields, names=[field.name for field in dataclasses.fields(kind)])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return partial(_fields, names=kind._fields)
        raise MemoError(
            f"nothing says what of a {_name(kind)} counts in a key; give `encoders={{{kind.__name__}: function}}`, "
            f"where the function returns plain values that tell two of them apart"
        )


def _fields(value: Any, inner: Callable[[Any], Tree], names: Any) -> Tree:
    return {_name(type(value)): {name: inner(getattr(value, name)) for name in names}}


def _struct(value: msgspec.Struct, inner: Callable[[Any], Tree]) -> Tree:
    return _fields(value, inner, value.__struct_fields__)


def _enum(value: Enum, inner: Callable[[Any], Tree]) -> Tree:
    return {_name(type(value)): [value.name, inner(value.value)]}


def _path(value: PurePath, inner: Callable[[Any], Tree]) -> Tree:
    return {"windows path" if isinstance(value, PureWindowsPath) else "path": inner(str(value))}


def _array_digest(value: np.ndarray[Any, Any], inner: Callable[[Any], Tree]) -> Tree:
    if type(value) is not np.ndarray or value.dtype.hasobject:
        what = _name(type(value)) if type(value) is not np.ndarray else "numpy array of objects"
        raise MemoError(f"nothing says what of a {what} counts in a key; give `encoders={{numpy.ndarray: function}}`")
    return {"array": [_dtype(value.dtype), list(value.shape), digest(value.tobytes())]}


def _type(value: type, inner: Callable[[Any], Tree]) -> Tree:
    if value.__module__ not in ("builtins", "numpy"):
        raise MemoError(f"the class {_name(value)} may change; give `encoders={{type: function}}` to say what counts")
    return {"type": _name(value)}


def _function(value: FunctionType, inner: Callable[[Any], Tree]) -> Tree:
    return {"function": [_name(value), source(value, inner)]}


def _builtin(value: BuiltinFunctionType, inner: Callable[[Any], Tree]) -> Tree:
    bound = value.__self__
    whose = None if bound is None or isinstance(bound, ModuleType) else inner(bound)
    return {"built-in": [value.__module__, value.__qualname__, whose]}


def _method(value: MethodType, inner: Callable[[Any], Tree]) -> Tree:
    return {"method": [inner(value.__func__), inner(value.__self__)]}


def _partial(value: partial[Any], inner: Callable[[Any], Tree]) -> Tree:
    return {"partial": [inner(value.func), inner(value.args), inner(value.keywords)]}


_FAMILIES: dict[type, Form] = {
    Enum: _enum,
    np.generic: _scalar,
    np.ndarray: _array_digest,
    np.dtype: lambda value, inner: {"dtype": _dtype(value)},
    PurePath: _path,
    msgspec.Struct: _struct,
    FunctionType: _function,
    BuiltinFunctionType: _builtin,
    MethodType: _method,
    partial: _partial,
    ModuleType: lambda value, inner: {"module": value.__name__},
    type: _type,
}


def _name(thing: Any) -> str:
    """Module and qualified name; a script has the name of its file, whether it is run or loaded by a worker."""
    module = str(thing.__module__)
    if module.startswith("__"):
        found = sys.modules.get(module)
        spec, file = getattr(found, "__spec__", None), getattr(found, "__file__", None)
        if spec is not None and not spec.name.startswith("__"):
            module = spec.name
        elif file:
            module = Path(file).stem
    return f"{module}:{thing.__qualname__}"


def name_of(function: Callable[..., Any]) -> str:
    """What a function is known by."""
    return _name(function)


def source(function: Callable[..., Any], tree: Callable[[Any], Tree]) -> str:
    """A digest of what a function does: its source, and all that it holds, even what may change."""
    inside = inspect.unwrap(function)
    if not isinstance(inside, FunctionType):
        raise MemoError(f"{_name(function)} has no source to know it by; give `version=` and raise it with each change")
    held: dict[str, Any] = {f"default {i}": value for i, value in enumerate(inside.__defaults__ or ())}
    held |= {f"default {name}": value for name, value in (inside.__kwdefaults__ or {}).items()}
    for name, cell in zip(inside.__code__.co_freevars, inside.__closure__ or (), strict=True):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    trees = {name: _held(value, inside, tree) for name, value in held.items() if name != "__class__"}
    return digest(source_of(function), wire.encode(trees))


def _held(value: Any, holder: FunctionType, tree: Callable[[Any], Tree]) -> Tree:
    """The tree of something a function holds, which may be itself."""
    if callable(value) and inspect.unwrap(value) is holder:
        return {"function": "itself"}
    try:
        return tree(value)
    except MemoError as error:
        raise MemoError(f"{_name(holder)} holds a value of its surroundings: {error}; or give `version=`") from error


def _whole_array(value: np.ndarray[Any, Any], inner: Callable[[Any], Tree]) -> Tree:
    from base64 import b64encode  # noqa: PLC0415 - only where there are arrays

    if value.dtype.hasobject or np.dtype(value.dtype.str) != value.dtype:
        raise _unkeepable(f"a numpy array of {value.dtype}")
    order: Literal["C", "F"] = "F" if value.flags.fnc else "C"
    return {"array": [value.dtype.str, list(value.shape), order, b64encode(value.tobytes(order)).decode()]}


def _whole_scalar(value: np.generic, inner: Callable[[Any], Tree]) -> Tree:
    if value.dtype.hasobject or np.dtype(value.dtype.str) != value.dtype or not value.nbytes:
        raise _unkeepable(f"a numpy scalar of {value.dtype}")
    return {"scalar": [value.dtype.str, value.tobytes().hex()]}


_RESULT_FORMS: dict[type, Form] = {
    **_FORMS,
    dict: _dict,
    np.ndarray: _whole_array,
    type(Path()): _path,
}


def written(value: Any) -> Tree:
    """A result as a tree from which `restored` makes an equal one of the same type; else a MemoError."""
    form = _RESULT_FORMS.get(type(value))
    if form is None and isinstance(value, np.generic):
        form = _whole_scalar
    if form is None:
        raise _unkeepable(f"a {_name(type(value))}")
    try:
        return form(value, written)
    except RecursionError as error:
        raise _unkeepable("a value that contains itself") from error


def _unkeepable(what: str) -> MemoError:
    return MemoError(
        f"{what} does not come back from JSON as it was; give `write=`, a function that makes plain values of a result "
        f"(numbers, text, lists, tuples, dictionaries, arrays), and `read=`, which makes the result of them"
    )


def _restored_array(body: Any) -> Any:
    from base64 import b64decode  # noqa: PLC0415 - only where there are arrays

    dtype, shape, order, data = body
    return np.frombuffer(b64decode(data), np.dtype(dtype)).copy().reshape(shape, order=order)


_BACK: dict[str, Callable[[Any], Any]] = {
    "int": lambda body: int(body, 16),
    "float": float,
    "str": lambda body: bytes.fromhex(body).decode("utf-8", "surrogatepass"),
    "bytes": bytes.fromhex,
    "tuple": lambda body: tuple(restored(item) for item in body),
    "set": lambda body: {restored(item) for item in body},
    "frozenset": lambda body: frozenset(restored(item) for item in body),
    "dict": lambda body: {restored(k): restored(v) for k, v in (body.items() if type(body) is dict else body)},
    "path": lambda body: Path(restored(body)),
    "scalar": lambda body: np.frombuffer(bytes.fromhex(body[1]), np.dtype(body[0]))[0],
    "array": _restored_array,
}


def restored(tree: Tree) -> Any:
    """The value that was written; of a foreign tree one of UNREADABLE."""
    if type(tree) is list:
        return [restored(item) for item in tree]
    if type(tree) is dict:
        ((tag, body),) = tree.items()
        return _BACK[tag](body)
    return tree
