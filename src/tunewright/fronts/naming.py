"""Naming: whether a kernel, its arguments and its space agree on names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tunewright.backends.python import Python
from tunewright.errors import SignatureError, SpaceError
from tunewright.fronts.buckets import Buckets
from tunewright.fronts.declaration import Declaration
from tunewright.model.signature import Parameter
from tunewright.ports.backend import Backend
from tunewright.spaces.space import Space


class Named(Protocol):
    """What a tuned kernel has that bears names."""

    function: Callable[..., Any]
    space: Space
    backend: Backend
    buckets: Buckets
    declared: Declaration
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        """Of the kernel."""
        ...

    @property
    def dims(self) -> Sequence[str]:
        """Of sizes."""
        ...


def check_names(kernel: Named) -> None:
    """Refuse at the declaration what could only fail at a call."""
    taken = list(inspect.signature(kernel.function).parameters)
    own = [parameter.name for parameter in kernel.parameters]
    if inspect.iscoroutinefunction(kernel.function) or own[:1] == ["self"]:
        raise SignatureError(f"{kernel.name}: a kernel is a plain function, no coroutine and no method")
    if isinstance(kernel.backend, Python) and not kernel.space.variants:
        if strangers := [name for name in kernel.space.names if name not in taken]:
            raise SpaceError(f"{kernel.name} takes no argument {strangers[0]!r}; a Python kernel takes knobs by name")
        if taken[: len(own)] != own:
            raise SpaceError(f"{kernel.name}: knobs come after the other arguments, best after a *")
    strange = [n for case in kernel.declared.cases for n in case.sizes if n not in kernel.dims]
    if strange:
        raise SignatureError(f"a case sizes {strange[0]!r}; {kernel.name} has {', '.join(kernel.dims) or 'no names'}")
    if shared := set(kernel.dims) & set(kernel.space.names):
        raise SpaceError(f"{', '.join(sorted(shared))} names both a knob and a dimension; rename one")
    if unknown := [name for name in kernel.buckets if name not in kernel.dims]:
        raise SignatureError(
            f"buckets name {', '.join(unknown)}, but no argument has such a dimension; "
            f'declare it, as in `a: In("{unknown[0]}")`'
        )
