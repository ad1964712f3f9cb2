"""This CPU as a `Device`, and digests of Python functions."""

from __future__ import annotations

import ast
import inspect
import os
import platform
import sys
import textwrap
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tunewright.backends import cpu_info
from tunewright.model.device import Device

_CPUINFO = Path("/proc/cpuinfo")
_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def cpu() -> Device:
    """Returns this machine's CPU: model, instruction sets, cores and caches, without the host's name."""
    processors = _processors()
    return Device(
        kind="cpu",
        model=cpu_info.model_name(processors, platform.processor() or platform.machine()),
        architecture=platform.machine(),
        features=cpu_info.instruction_sets(processors),
        limits={"cores": os.cpu_count() or 1, **_caches()},
    )


def _processors() -> list[cpu_info.Entries]:
    """Returns what the system says of each processor; nothing if it has no such file."""
    try:
        return cpu_info.parse(_CPUINFO.read_text())
    except OSError:
        return []


def _caches() -> dict[str, int]:
    """Returns the bytes of each data cache by level: `l1`, `l2`."""
    sizes: dict[str, int] = {}
    for entry in sorted(_CACHE_FOLDER.glob("index*")):
        try:
            kind, level, size = (entry.joinpath(name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size[:-1].isdigit():
            sizes[f"l{level}"] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1)
    return sizes


def digest(*parts: str | bytes) -> str:
    """Returns a digest of content: 32 hexadecimal digits."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a cached launch never needs

    hasher = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()[:32]


def function_digest(function: Callable[..., Any]) -> str:
    """Returns a digest of `function`: its syntax, defaults and closure, and the same of the functions and constants of
    its own module that it uses. Values that can change while the program runs are not constants.

    Comments, line numbers, file names and docstrings do not count; nor does what other modules define.
    """
    parts: dict[str, str] = {}
    _collect(getattr(function, "__qualname__", ""), function, parts, set())
    return digest(*(f"{name}\n{text}" for name, text in sorted(parts.items())))


def _collect(name: str, value: Any, parts: dict[str, str], seen: set[int]) -> None:
    """Adds the parts of `value`, known as `name`; each object once."""
    if (plain := _constant_text(value)) is not None:
        parts[name] = plain
        return
    if id(value) in seen or isinstance(value, list | dict | set | bytearray):
        return
    seen.add(id(value))
    if isinstance(value, partial):
        for i, part in enumerate([value.func, *value.args, *(x for item in value.keywords.items() for x in item)]):
            _collect(f"{name} part {i}", part, parts, seen)
        return
    function = inspect.unwrap(value) if callable(value) else value
    if not isinstance(function, FunctionType):
        parts[name] = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        return
    seen.add(id(function))
    parts[name] = _syntax_text(function)
    for label, captured in _captured_values(function).items():
        _collect(f"{name} {label}", captured, parts, seen)
    for used in sorted(_global_names(function.__code__)):
        value_of_name = function.__globals__.get(used)
        inner = inspect.unwrap(value_of_name) if callable(value_of_name) else value_of_name
        same_module = isinstance(inner, FunctionType) and inner.__module__ == function.__module__
        if same_module or _constant_text(value_of_name) is not None:
            _collect(f"global {used}", value_of_name, parts, seen)


def _captured_values(function: FunctionType) -> dict[str, Any]:
    """Returns the defaults and closure values of a function."""
    captured: dict[str, Any] = {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
    captured |= {f"default {name}": value for name, value in (function.__kwdefaults__ or {}).items()}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            captured[f"closure {name}"] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return captured


def _constant_text(value: Any) -> str | None:
    """Returns constants, and tuples and frozen sets of them, as text; None for other values."""
    if isinstance(value, bool | int | float | str | bytes | complex) or value is None or value is Ellipsis:
        return repr(value)
    if isinstance(value, tuple | frozenset):
        inner = [_constant_text(item) for item in value]
        texts = sorted(map(str, inner)) if isinstance(value, frozenset) else map(str, inner)
        return None if None in inner else f"{type(value).__name__}({', '.join(texts)})"
    return None


def _syntax_text(function: FunctionType) -> str:
    """Returns the syntax tree without positions, decorators and docstrings; the bytecode if there is no source."""
    if function.__name__ == "<lambda>":  # its source is that of the whole statement
        return _code_digest(function.__code__)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return _code_digest(function.__code__)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = []
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _code_digest(code: CodeType) -> str:
    consts = [
        _code_digest(c) if isinstance(c, CodeType) else _constant_text(c) or type(c).__name__ for c in code.co_consts
    ]
    return digest(code.co_code, *consts, *code.co_names, *code.co_varnames)


def _global_names(code: CodeType) -> set[str]:
    """Returns the global names that a function and its inner functions mention, without `__name__` and the like."""
    inner = [_global_names(const) for const in code.co_consts if isinstance(const, CodeType)]
    return {name for name in set(code.co_names).union(*inner) if not name.startswith("__")}


def python_toolchain() -> dict[str, str]:
    """Returns the versions of Python and numpy, which decide the speed of Python kernels."""
    numpy = sys.modules["numpy"]
    return {"python": platform.python_version(), "numpy": str(numpy.__version__)}
