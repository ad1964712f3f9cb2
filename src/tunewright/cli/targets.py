"""Targets: from what a person types to a tuned kernel and its arguments."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from tunewright.errors import SignatureError, TunewrightError
from tunewright.fronts.tuned import Tuned
from tunewright.operators.dispatching import Dispatched
from tunewright.pools.loading import find
from tunewright.session import Session

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON value instead of text.")(function)


def store_option(function: F) -> F:
    """`--store`."""
    return click.option("--store", help="Where decisions are kept (default: the settings).")(function)


def shape_option(function: F) -> F:
    """`--shape`."""
    text = "Sizes, as M=512,N=512,K=512, or as 512,512,512 in the order of the kernel's dimensions."
    return click.option("--shape", "shapes", multiple=True, help=text)(function)


def placed(place: str, said: str) -> str:
    """A file by its whole path, a module by its name; either may import what it stands beside."""
    if not place.endswith(".py"):
        sys.path.insert(0, "")
        return place
    path = Path(place).resolve()
    if not path.is_file():
        raise click.UsageError(f"no file {place}; {said}")
    sys.path.insert(0, str(path.parent))
    return str(path)


def _found(target: str) -> Any:
    """What is at a target; a file that has only one kernel needs no name."""
    place, _, name = target.rpartition(":")
    if target.endswith(".py") or not place:
        place, name = target, ""
    place = placed(place, "a kernel is named as FILE.py:NAME or module:NAME")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the program prints is not our answer
            found = find(f"{place}:{name}") if name else _only_kernel(place)
    except TunewrightError:
        raise
    except Exception as error:
        raise click.UsageError(f"loading {place} raised {type(error).__name__}: {error}") from error
    return found


def kernel_at(target: str) -> Tuned:
    """The tuned kernel at FILE.py:NAME or module:NAME; NAME may be left out where the file has only one."""
    found = _found(target)
    if not isinstance(found, Tuned):
        raise click.UsageError(f"{target} is a {type(found).__name__}, not a kernel made with @tunewright.tune")
    return found


def callable_at(target: str) -> Tuned | Dispatched:
    """The tuned kernel at a target, or the operator: `tunewright.operators:gemm`."""
    found = _found(target)
    return found if isinstance(found, Dispatched) else kernel_at(target)


def _only_kernel(place: str) -> Tuned:
    """The one tuned kernel of a module."""
    module = find(f"{place}:__dict__")
    kernels = {name: value for name, value in module.items() if isinstance(value, Tuned)}
    if len(kernels) != 1:
        listed = ", ".join(kernels) or "none"
        raise click.UsageError(f"{place} has {len(kernels)} tuned kernels ({listed}); say which: FILE.py:NAME")
    return next(iter(kernels.values()))


def sizes_of(kernel: Tuned | Dispatched, shapes: tuple[str, ...]) -> list[dict[str, int]]:
    """The sizes to work on: those typed, else those the kernel declares."""
    if shapes:
        return [_sizes(kernel, text) for text in shapes]
    if kernel.declared.shapes:
        return [dict(shape) for shape in kernel.declared.shapes]
    if not kernel.parameters or kernel.declared.has_default_inputs():
        return [{}]
    example = ",".join(f"{name}=512" for name in kernel.dims) or "M=512"
    raise SignatureError(f"say for which sizes: --shape {example}, or declare `shapes=[...]` in @tune")


def _sizes(kernel: Tuned | Dispatched, text: str) -> dict[str, int]:
    parts = text.replace("x", ",").split(",") if "=" not in text else text.split(",")
    try:
        if "=" in text:
            named = {name.strip(): int(size) for name, _, size in (part.partition("=") for part in parts)}
            if any(size < 0 for size in named.values()):
                raise ValueError("a size cannot be negative")
            return named
        numbers = [int(part) for part in parts]
    except ValueError as error:
        raise click.UsageError(f"cannot read the shape {text!r}: {error}") from error
    if len(numbers) != len(kernel.dims):
        raise click.UsageError(f"{text!r} has {len(numbers)} sizes; {kernel.name} has {', '.join(kernel.dims)}")
    return dict(zip(kernel.dims, numbers, strict=True))


def session_for(
    kernel: Tuned | Dispatched | None, given: Mapping[str, Any], listeners: tuple[Any, ...] = ()
) -> Session:
    """A session with what was typed over what the kernel and the settings say; a command that tunes, tunes."""
    typed = {name: value for name, value in given.items() if value is not None}
    own = kernel.declared.session if kernel is not None else None
    if own is None:
        made = Session(listeners=listeners, **typed)
    else:
        settings = msgspec.structs.replace(own.settings, **typed)
        made = Session(settings, store=None if "store" in typed else own.store, listeners=listeners)
    if kernel is not None:
        kernel.using(made)
    return made
