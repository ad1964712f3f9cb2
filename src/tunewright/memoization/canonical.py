"""Canonical JSON trees of values: arguments become keys, results are stored and decoded again."""

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

from tunewright.backends.host import digest, function_digest
from tunewright.errors import MemoError
from tunewright.stores import serialization

Tree = Any
Encoder = Callable[[Any, Callable[[Any], Tree]], Tree]

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What decoding untrusted data may raise."""

_INT64_LIMIT = 1 << 63


def _identity(value: Any, inner: Callable[[Any], Tree]) -> Tree:
    return value


def _int(value: int, inner: Callable[[Any], Tree]) -> Tree:
    return value if -_INT64_LIMIT <= value < _INT64_LIMIT else {"int": hex(value)}


def _float(value: float, inner: Callable[[Any], Tree]) -> Tree:
    return value if isfinite(value) else {"float": str(value)}


def _str(value: str, inner: Callable[[Any], Tree]) -> Tree:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, as in file names that are not UTF-8
        return {"str": value.encode("utf-8", "surrogatepass").hex()}
    return value


def _bytes(value: bytes, inner: Callable[[Any], Tree]) -> Tree:
    return {"bytes": value.hex()}


def _list(value: list[Any], inner: Callable[[Any], Tree]) -> Tree:
    return [inner(item) for item in value]


def _tuple(value: tuple[Any, ...], inner: Callable[[Any], Tree]) -> Tree:
    return {"tuple": [inner(item) for item in value]}


def _set(value: set[Any] | frozenset[Any], inner: Callable[[Any], Tree]) -> Tree:
    return {type(value).__name__: sorted(map(inner, value), key=serialization.encode)}


def _dict(value: dict[Any, Any], inner: Callable[[Any], Tree]) -> Tree:
    """Encodes the pairs in order, which a result keeps."""
    return {"dict": [[inner(key), inner(item)] for key, item in value.items()]}


def _unordered(value: dict[Any, Any], inner: Callable[[Any], Tree]) -> Tree:
    """Encodes a dictionary argument without its order: dictionaries that differ only in order are equal."""
    if all(type(key) is str for key in value):
        trees = {inner(key): inner(item) for key, item in value.items() if key.isascii()}
        if len(trees) == len(value):
            return {"dict": trees}
    return {"dict": sorted(([inner(key), inner(item)] for key, item in value.items()), key=serialization.encode)}


def _scalar(value: np.generic, inner: Callable[[Any], Tree]) -> Tree:
    if value.dtype.hasobject:
        raise MemoError(f"a numpy {type(value).__name__} that holds objects is not a plain value; pass plain values")
    return {"scalar": [_dtype(value.dtype), value.tobytes().hex()]}


def _dtype(dtype: np.dtype[Any]) -> Tree:
    """Encodes name and layout: the layout alone is the same for all types that packages add to numpy."""
    if dtype.fields is not None and dtype.names is not None:
        fields = [[name, _dtype(dtype.fields[name][0]), dtype.fields[name][1]] for name in dtype.names]
        return {"fields": fields, "bytes": dtype.itemsize}
    if dtype.subdtype is not None:
        return [_dtype(dtype.subdtype[0]), list(dtype.subdtype[1])]
    return f"{dtype.name} {dtype.str}"


_ENCODERS: dict[type, Encoder] = {
    NoneType: _identity,
    bool: _identity,
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


class ArgumentEncoder:
    """Encodes arguments: equal values give equal text, unequal values never do, and 1, 1.0 and True are unequal.

    `encoders` map a type to a function that returns the part of its values that counts; subclasses inherit it.
    """

    def __init__(self, encoders: Mapping[type, Callable[[Any], Any]]) -> None:
        self._encoders = dict(encoders)
        own = [kind for kind in {**_ENCODERS, dict: _unordered} if self._custom_encoder(kind) is None]
        self._tree_encoders: dict[type, Encoder] = {kind: {**_ENCODERS, dict: _unordered}[kind] for kind in own}
        self.atoms = _ATOMS & self._tree_encoders.keys()

    def tree(self, value: Any) -> Tree:
        """Returns the tree of one value; raises MemoError if its type has no encoder."""
        kind = type(value)
        encode = self._tree_encoders.get(kind)
        if encode is None:
            encode = self._tree_encoders[kind] = self._encoder_for(kind)
        return encode(value, self.tree)

    def text(self, arguments: Mapping[str, Any]) -> bytes:
        """Returns the arguments of a call, by name, as canonical JSON."""
        try:
            return serialization.encode({name: self.tree(value) for name, value in arguments.items()})
        except RecursionError as error:
            raise MemoError("an argument contains itself; give `encoders={its type: function}`") from error

    def _custom_encoder(self, kind: type) -> Callable[[Any], Any] | None:
        return next((self._encoders[base] for base in kind.__mro__ if base in self._encoders), None)

    def _encode_custom(self, encoder: Callable[[Any], Any], value: Any, inner: Callable[[Any], Tree]) -> Tree:
        encoded = encoder(value)
        if self._custom_encoder(type(encoded)) is encoder:  # for example, text encoded as other text
            inner = ArgumentEncoder({}).tree
        return {f"encoded {_name(type(value))}": inner(encoded)}

    def _encoder_for(self, kind: type) -> Encoder:
        """Returns the encoder of a type that has none in the table."""
        if (encoder := self._custom_encoder(kind)) is not None:
            return partial(self._encode_custom, encoder)
        for family, encode in _BASE_ENCODERS.items():
            if issubclass(kind, family):
                return encode
        if dataclasses.is_dataclass(kind):
            return partial(_fields, names=[field.name for field in dataclasses.fields(kind)])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return partial(_fields, names=kind._fields)
        raise MemoError(
            f"a {_name(kind)} cannot be part of a key; give `encoders={{{kind.__name__}: function}}`, "
            f"where the function returns plain values that identify it"
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
        raise MemoError(f"a {what} cannot be part of a key; give `encoders={{numpy.ndarray: function}}`")
    return {"array": [_dtype(value.dtype), list(value.shape), digest(value.tobytes())]}


def _type(value: type, inner: Callable[[Any], Tree]) -> Tree:
    if value.__module__ not in ("builtins", "numpy"):
        raise MemoError(f"the class {_name(value)} may change; give `encoders={{type: function}}`")
    return {"type": _name(value)}


def _function(value: FunctionType, inner: Callable[[Any], Tree]) -> Tree:
    return {"function": [_name(value), source_digest(value, inner)]}


def _builtin(value: BuiltinFunctionType, inner: Callable[[Any], Tree]) -> Tree:
    bound = value.__self__
    owner = None if bound is None or isinstance(bound, ModuleType) else inner(bound)
    return {"built-in": [value.__module__, value.__qualname__, owner]}


def _method(value: MethodType, inner: Callable[[Any], Tree]) -> Tree:
    return {"method": [inner(value.__func__), inner(value.__self__)]}


def _partial(value: partial[Any], inner: Callable[[Any], Tree]) -> Tree:
    return {"partial": [inner(value.func), inner(value.args), inner(value.keywords)]}


_BASE_ENCODERS: dict[type, Encoder] = {
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
    """Returns module and qualified name; the module of a script is its file name, whether it is run or imported."""
    module = str(thing.__module__)
    if module.startswith("__"):
        loaded = sys.modules.get(module)
        spec, file = getattr(loaded, "__spec__", None), getattr(loaded, "__file__", None)
        if spec is not None and not spec.name.startswith("__"):
            module = spec.name
        elif file:
            module = Path(file).stem
    return f"{module}:{thing.__qualname__}"


def function_name(function: Callable[..., Any]) -> str:
    """Returns the name under which results of a function are stored."""
    return _name(function)


def source_digest(function: Callable[..., Any], tree: Callable[[Any], Tree]) -> str:
    """Returns a digest of a function: its source, its defaults and the values of its closure."""
    inside = inspect.unwrap(function)
    if not isinstance(inside, FunctionType):
        raise MemoError(f"{_name(function)} has no source; give `version=` and raise it with each change")
    held: dict[str, Any] = {f"default {i}": value for i, value in enumerate(inside.__defaults__ or ())}
    held |= {f"default {name}": value for name, value in (inside.__kwdefaults__ or {}).items()}
    for name, cell in zip(inside.__code__.co_freevars, inside.__closure__ or (), strict=True):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    trees = {name: _captured_value(value, inside, tree) for name, value in held.items() if name != "__class__"}
    return digest(function_digest(function), serialization.encode(trees))


def _captured_value(value: Any, holder: FunctionType, tree: Callable[[Any], Tree]) -> Tree:
    """Returns the tree of a default or closure value of `holder`, which may be the function itself."""
    if callable(value) and inspect.unwrap(value) is holder:
        return {"function": "itself"}
    try:
        return tree(value)
    except MemoError as error:
        raise MemoError(f"{_name(holder)} uses an enclosing or default value: {error}; or give `version=`") from error


def _array(value: np.ndarray[Any, Any], inner: Callable[[Any], Tree]) -> Tree:
    from base64 import b64encode  # noqa: PLC0415 - only needed for arrays

    if value.dtype.hasobject or np.dtype(value.dtype.str) != value.dtype:
        raise _not_storable(f"a numpy array of {value.dtype}")
    order: Literal["C", "F"] = "F" if value.flags.fnc else "C"
    return {"array": [value.dtype.str, list(value.shape), order, b64encode(value.tobytes(order)).decode()]}


def _stored_scalar(value: np.generic, inner: Callable[[Any], Tree]) -> Tree:
    if value.dtype.hasobject or np.dtype(value.dtype.str) != value.dtype or not value.nbytes:
        raise _not_storable(f"a numpy scalar of {value.dtype}")
    return {"scalar": [value.dtype.str, value.tobytes().hex()]}


_RESULT_ENCODERS: dict[type, Encoder] = {
    **_ENCODERS,
    dict: _dict,
    np.ndarray: _array,
    type(Path()): _path,
}


def encode_result(value: Any) -> Tree:
    """Returns a tree from which `decode_result` makes an equal value of the same type; raises MemoError if none can."""
    encode = _RESULT_ENCODERS.get(type(value))
    if encode is None and isinstance(value, np.generic):
        encode = _stored_scalar
    if encode is None:
        raise _not_storable(f"a {_name(type(value))}")
    try:
        return encode(value, encode_result)
    except RecursionError as error:
        raise _not_storable("a value that contains itself") from error


def _not_storable(what: str) -> MemoError:
    return MemoError(
        f"{what} cannot be restored from JSON; give `write=`, a function that turns a result into plain values "
        f"(numbers, text, lists, tuples, dictionaries, arrays), and `read=`, which turns them into the result"
    )


def _decode_array(body: Any) -> Any:
    from base64 import b64decode  # noqa: PLC0415 - only needed for arrays

    dtype, shape, order, data = body
    return np.frombuffer(b64decode(data), np.dtype(dtype)).copy().reshape(shape, order=order)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda body: int(body, 16),
    "float": float,
    "str": lambda body: bytes.fromhex(body).decode("utf-8", "surrogatepass"),
    "bytes": bytes.fromhex,
    "tuple": lambda body: tuple(decode_result(item) for item in body),
    "set": lambda body: {decode_result(item) for item in body},
    "frozenset": lambda body: frozenset(decode_result(item) for item in body),
    "dict": lambda body: {
        decode_result(k): decode_result(v) for k, v in (body.items() if type(body) is dict else body)
    },
    "path": lambda body: Path(decode_result(body)),
    "scalar": lambda body: np.frombuffer(bytes.fromhex(body[1]), np.dtype(body[0]))[0],
    "array": _decode_array,
}


def decode_result(tree: Tree) -> Any:
    """Returns the value of a tree; raises one of UNREADABLE if it is not one of ours."""
    if type(tree) is list:
        return [decode_result(item) for item in tree]
    if type(tree) is dict:
        ((tag, body),) = tree.items()
        return _DECODERS[tag](body)
    return tree
