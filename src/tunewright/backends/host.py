"""Host: this CPU as a Device, and digests of Python functions."""

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

from tunewright.model.device import Device

_ISA = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "bmi2", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl",
    "avx512cd", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "asimdhp", "asimddp", "sve", "sve2", "i8mm", "bf16",
)  # fmt: skip
_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def cpu() -> Device:
    """This machine's processor: model, instruction sets, cores and caches; nothing of the host's name."""
    info = _cpuinfo()
    flags = set(info.get("flags", info.get("Features", "")).split())
    steps = [f"{word} {info[field]}" for word, field in _STEPS if field in info]
    model = info.get("model name") or platform.processor() or platform.machine()
    return Device(
        kind="cpu",
        model=" ".join([" ".join(model.split()), *steps]),
        architecture=platform.machine(),
        features=tuple(flag for flag in _ISA if flag in flags),
        limits={"cores": os.cpu_count() or 1, **_caches()},
    )


_STEPS = (("family", "cpu family"), ("model", "model"), ("stepping", "stepping"))


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries; empty where the system has no such file."""
    try:
        text = _CPUINFO.read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _caches() -> dict[str, int]:
    """Bytes of each data cache, such as `l1`, `l2`."""
    sizes: dict[str, int] = {}
    for entry in sorted(_CACHES.glob("index*")):
        try:
            kind, level, size = (entry.joinpath(name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size[:-1].isdigit():
            sizes[f"l{level}"] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1)
    return sizes


def digest(*parts: str | bytes) -> str:
    """A short name for content: 32 hexadecimal digits."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a cached launch never needs

    whole = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:32]


def source_of(function: Callable[..., Any]) -> str:
    """A digest of what `function` does: its syntax, its defaults and what it closes over, and the same of the
    functions and constants of its own module that it uses. What can change while the program runs is no constant.

    Comments, line numbers, names of files and docstrings do not count; nor does what other modules define.
    """
    parts: dict[str, str] = {}
    _gather(getattr(function, "__qualname__", ""), function, parts, set())
    return digest(*(f"{name}\n{text}" for name, text in sorted(parts.items())))


def _gather(name: str, value: Any, parts: dict[str, str], seen: set[int]) -> None:
    """Add what `value`, known as `name`, contributes; each object once."""
    if (plain := _plain(value)) is not None:
        parts[name] = plain
        return
    if id(value) in seen or isinstance(value, list | dict | set | bytearray):
        return
    seen.add(id(value))
    if isinstance(value, partial):
        for i, part in enumerate([value.func, *value.args, *(x for item in value.keywords.items() for x in item)]):
            _gather(f"{name} part {i}", part, parts, seen)
        return
    function = inspect.unwrap(value) if callable(value) else value
    if not isinstance(function, FunctionType):
        parts[name] = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        return
    seen.add(id(function))
    parts[name] = _syntax(function)
    for label, held in _held(function).items():
        _gather(f"{name} {label}", held, parts, seen)
    for used in sorted(_names(function.__code__)):
        found = function.__globals__.get(used)
        inner = inspect.unwrap(found) if callable(found) else found
        same_module = isinstance(inner, FunctionType) and inner.__module__ == function.__module__
        if same_module or _plain(found) is not None:
            _gather(f"global {used}", found, parts, seen)


def _held(function: FunctionType) -> dict[str, Any]:
    """What a function carries with it: defaults, and what it closes over."""
    held: dict[str, Any] = {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
    held |= {f"default {name}": value for name, value in (function.__kwdefaults__ or {}).items()}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held[f"closure {name}"] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return held


def _plain(value: Any) -> str | None:
    """Constants, and tuples and frozen sets of them, as text; None for anything that may change or say nothing."""
    if isinstance(value, bool | int | float | str | bytes | complex) or value is None or value is Ellipsis:
        return repr(value)
    if isinstance(value, tuple | frozenset):
        inner = [_plain(item) for item in value]
        said = sorted(map(str, inner)) if isinstance(value, frozenset) else map(str, inner)
        return None if None in inner else f"{type(value).__name__}({', '.join(said)})"
    return None


def _syntax(function: FunctionType) -> str:
    """The function's syntax tree without positions, decorators and docstrings; its code where no source is."""
    if function.__name__ == "<lambda>":  # its source is that of the whole statement it stands in
        return _code(function.__code__)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return _code(function.__code__)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = []
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _code(code: CodeType) -> str:
    consts = [_code(c) if isinstance(c, CodeType) else _plain(c) or type(c).__name__ for c in code.co_consts]
    return digest(code.co_code, *consts, *code.co_names, *code.co_varnames)


def _names(code: CodeType) -> set[str]:
    """Every global name a function or a function inside it mentions; `__name__` and its like depend on the caller."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, CodeType)]
    return {name for name in set(code.co_names).union(*inner) if not name.startswith("__")}


def python_toolchain() -> dict[str, str]:
    """The interpreter and numpy, on which a Python kernel's speed rests."""
    numpy = sys.modules["numpy"]
    return {"python": platform.python_version(), "numpy": str(numpy.__version__)}
