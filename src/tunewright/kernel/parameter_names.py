"""Checks that a kernel, its arguments and its space agree on names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tunewright.backends.python import Python
from tunewright.errors import SignatureError, SpaceError
from tunewright.kernel.buckets import Buckets
from tunewright.kernel.declaration import Declaration
from tunewright.model.signature import NO_DEFAULT, Parameter
from tunewright.ports.backend import Backend
from tunewright.spaces.space import Space


class DeclaredKernel(Protocol):
    """The parts of a tuned kernel that have names."""

    function: Callable[..., Any]
    space: Space
    backend: Backend
    buckets: Buckets
    declaration: Declaration
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        """The name of the kernel."""
        ...

    @property
    def dims(self) -> Sequence[str]:
        """The names of sizes."""
        ...


def with_defaults(parameters: Sequence[Parameter], args: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the arguments of a call, with defaults for the last parameters that it omits."""
    omitted = parameters[len(args) :]
    return (*args, *(parameter.default for parameter in omitted if parameter.default is not NO_DEFAULT))


def check_names(kernel: DeclaredKernel) -> None:
    """Raises SpaceError or SignatureError for a declaration whose calls could only fail."""
    parameters = list(inspect.signature(kernel.function).parameters)
    own = [parameter.name for parameter in kernel.parameters]
    if inspect.iscoroutinefunction(kernel.function) or own[:1] == ["self"]:
        raise SignatureError(f"{kernel.name}: a kernel is a plain function, no coroutine and no method")
    if isinstance(kernel.backend, Python) and kernel.backend.takes_knobs and not kernel.space.variants:
        known = {*parameters, *kernel.backend.own_knobs}
        if unknown := [name for name in kernel.space.names if name not in known]:
            raise SpaceError(_not_taken(kernel.name, unknown[0], parameters))
        if parameters[: len(own)] != own:
            raise SpaceError(f"{kernel.name}: knobs come after the other arguments, best after a *")
    if strange := [name for name in kernel.declaration.invariant if name not in kernel.dims]:
        known_dims = ", ".join(kernel.dims) or "no named dimensions"
        raise SignatureError(f"invariant names {strange[0]!r}; {kernel.name} has {known_dims}")
    unknown_sizes = [n for case in kernel.declaration.cases for n in case.sizes if n not in kernel.dims]
    if unknown_sizes:
        raise SignatureError(
            f"a case sizes {unknown_sizes[0]!r}; {kernel.name} has {', '.join(kernel.dims) or 'no names'}"
        )
    if shared := set(kernel.dims) & set(kernel.space.names):
        raise SpaceError(f"{', '.join(sorted(shared))} names both a knob and a dimension; rename one")
    if unknown := [name for name in kernel.buckets if name not in kernel.dims]:
        raise SignatureError(
            f"buckets name {', '.join(unknown)}, but no argument has such a dimension; "
            f'declare it, as in `a: In("{unknown[0]}")`'
        )


def _not_taken(kernel: str, knob: str, parameters: Sequence[str]) -> str:
    """Returns the message for a knob that the function of a kernel does not take."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    close = get_close_matches(knob, parameters, 1)
    hint = f"is {close[0]!r} misspelled?" if close else f"it takes {', '.join(parameters) or 'none'}"
    return f"{kernel} takes no argument {knob!r}, but a Python kernel takes its knobs by name; {hint}"
