"""Shared options, and loading of kernels that are named on the command line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import click
import msgspec

from tunewright.cases.inputs import BFLOAT16, parse_dtype
from tunewright.errors import SignatureError, TunewrightError
from tunewright.kernel.tuned import Tuned
from tunewright.model.signature import NO_DEFAULT
from tunewright.pools.kernel_loader import load_target
from tunewright.session import Session

if TYPE_CHECKING:
    from tunewright.operators.dispatch import DispatchedOperator

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Adds the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON value instead of text.")(function)


def store_option(function: F) -> F:
    """Adds the option `--store`."""
    return click.option("--store", help="Where decisions are kept (default: the settings).")(function)


def shape_option(function: F) -> F:
    """Adds the option `--shape`."""
    text = "Sizes, as M=512,N=512,K=512, or as 512,512,512 in the order of the kernel's dimensions."
    return click.option("--shape", "shapes", multiple=True, help=text)(function)


def dtype_option(function: F) -> F:
    """Adds the option `--dtype`."""
    text = "Dtype of the arrays made from sizes, as float64 (default: the kernel's, or float32)."
    return click.option("--dtype", help=text)(function)


def use_dtype(kernel: Tuned | DispatchedOperator, dtype: str | None) -> None:
    """Makes the kernel's example arguments have this dtype; None leaves them as declared."""
    if dtype is None:
        return
    if kernel.declaration.inputs is not None:
        raise click.UsageError(f"{kernel.name} makes its own arguments with `inputs=`, so --dtype changes nothing")
    try:
        name = dtype if dtype == BFLOAT16 else parse_dtype(dtype).name
    except TypeError as error:
        raise click.UsageError(f"no dtype {dtype!r}; numpy's names are meant: float64, float16, int32, ...") from error
    kernel.declaration = msgspec.structs.replace(kernel.declaration, dtype=name)


def import_place(place: str, hint: str) -> str:
    """Returns the absolute path of a file, or a module's name as it is; puts its folder on the import path."""
    if not place.endswith(".py"):
        sys.path.insert(0, "")
        return place
    path = Path(place).resolve()
    if not path.is_file():
        raise click.UsageError(f"no file {place}; {hint}")
    sys.path.insert(0, str(path.parent))
    return str(path)


def _load(target: str) -> Any:
    """Returns the object at a target; of a file without a name, its only kernel."""
    place, _, name = target.rpartition(":")
    if target.endswith(".py") or not place:
        place, name = target, ""
    place = import_place(place, "a kernel is named as FILE.py:NAME or module:NAME")
    with _loading(place):
        return load_target(f"{place}:{name}") if name else _only_kernel(place)


@contextlib.contextmanager
def _loading(place: str) -> Iterator[None]:
    """Says what a module raised; what it prints goes to standard error, since standard output is for the answer."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (TunewrightError, click.ClickException):
        raise
    except Exception as error:
        raise click.UsageError(f"loading {place} raised {type(error).__name__}: {error}") from error


def load_kernel(target: str) -> Tuned:
    """Returns the tuned kernel at FILE.py:NAME or module:NAME; NAME may be omitted if the file has only one."""
    kernel = _load(target)
    if not isinstance(kernel, Tuned):
        raise click.UsageError(f"{target} is a {type(kernel).__name__}, not a kernel made with @tunewright.tune")
    return kernel


def load_tunable(target: str) -> Tuned | DispatchedOperator:
    """Returns the tuned kernel at a target, or the operator: `tunewright.operators:gemm`."""
    value = _load(target)
    return value if is_operator(value) else load_kernel(target)


def load_tunables(target: str) -> list[Tuned | DispatchedOperator]:
    """Returns the kernel or operator at a target, or all of a file or module that is named without one."""
    if ":" in target:
        return [load_tunable(target)]
    place = import_place(target, "kernels are named as FILE.py, FILE.py:NAME or module")
    with _loading(place):
        values = list(load_target(f"{place}:__dict__").values())
    return [value for value in values if isinstance(value, Tuned) or is_operator(value)]


def is_operator(value: Any) -> TypeGuard[DispatchedOperator]:
    """Returns whether a value is a dispatched operator; none is if nothing imported that extension."""
    module = sys.modules.get("tunewright.operators.dispatch")
    return module is not None and isinstance(value, module.DispatchedOperator)


def _only_kernel(place: str) -> Tuned:
    """Returns the one tuned kernel of a module."""
    module = load_target(f"{place}:__dict__")
    kernels = {name: value for name, value in module.items() if isinstance(value, Tuned)}
    if len(kernels) != 1:
        names = ", ".join(kernels) or "none"
        raise click.UsageError(f"{place} has {len(kernels)} tuned kernels ({names}); say which: FILE.py:NAME")
    return next(iter(kernels.values()))


def resolve_sizes(kernel: Tuned | DispatchedOperator, shapes: tuple[str, ...]) -> list[dict[str, int]]:
    """Returns the sizes to work on: those typed, else those the kernel declares."""
    if shapes:
        return [parse_sizes(text, kernel.dims, kernel.name) for text in shapes]
    if kernel.declaration.shapes:
        return [dict(shape) for shape in kernel.declaration.shapes]
    if all(p.default is not NO_DEFAULT for p in kernel.parameters) or kernel.declaration.has_default_inputs():
        return [{}]
    example = ",".join(f"{name}=512" for name in kernel.dims) or "M=512"
    raise SignatureError(f"say for which sizes: --shape {example}, or declare `shapes=[...]` in @tune")


def parse_sizes(text: str, dims: Sequence[str], name: str) -> dict[str, int]:
    """Returns sizes by dimension from `M=512,N=512` or `512,512`, for the kernel of this name."""
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
    if len(numbers) != len(dims):
        known = f"{name} has {', '.join(dims)}" if dims else "name them, as in M=512,N=64"
        raise click.UsageError(f"{text!r} has {len(numbers)} sizes; {known}")
    return dict(zip(dims, numbers, strict=True))


def make_session(
    kernel: Tuned | DispatchedOperator | None, options: Mapping[str, Any], listeners: tuple[Any, ...] = ()
) -> Session:
    """Returns a session whose settings are the options typed, then the kernel's own, then those of the environment."""
    typed = {name: value for name, value in options.items() if value is not None}
    own = kernel.declaration.session if kernel is not None else None
    if own is None:
        session = Session(listeners=listeners, **typed)
    else:
        settings = msgspec.structs.replace(own.settings, **typed)
        session = Session(settings, store=None if "store" in typed else own.store, listeners=listeners)
    if kernel is not None:
        kernel.using(session)
    return session


def session_to_read(store: str | None) -> Session:
    """Returns a session for a command that only reads; a file that is not there is an error, and is not made."""
    if store and ":" not in store and "," not in store and not Path(store).exists():
        raise click.UsageError(f"there is no store {store}; leave out --store to read the one of the settings")
    return make_session(None, {"store": store})
