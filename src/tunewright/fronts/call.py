"""Call: the `__call__` of a tuned kernel, written out for its parameters; a cached launch is nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tunewright.errors import SignatureError
from tunewright.model.signature import NO_DEFAULT, Parameter, Reading


def cached_call(
    parameters: Sequence[Parameter],
    reading: Reading,
    ready: Mapping[Hashable, Callable[..., Any]],
    prepare: Callable[[Hashable, tuple[Any, ...]], Callable[..., Any]],
) -> Callable[..., Any]:
    """A method that looks up what `reading` says in `ready`, else asks `prepare`, and launches.

    It is generated, as `namedtuple` generates its own: no loop, one branch, and arguments may come by name.
    """
    names = ", ".join(parameter.name for parameter in parameters)
    comma = f"{names}," if names else ""
    defaults = {f"_tunewright_{p.name}": p.default for p in parameters if p.default is not NO_DEFAULT}
    heads = [f"{p.name}=_tunewright_{p.name}" if p.default is not NO_DEFAULT else p.name for p in parameters]
    source = f"""
def __call__({", ".join(["_tunewright_self", *heads])}):
    try:
        _tunewright_mark = {reading.text}
        _tunewright_launch = _tunewright_get(_tunewright_mark)
    except (AttributeError, TypeError) as error:
        raise _tunewright_misfit(error) from None
    if _tunewright_launch is None:
        _tunewright_launch = _tunewright_prepare(_tunewright_mark, ({comma}))
    return _tunewright_launch({names})
"""
    scope: dict[str, Any] = {**reading.scope, **defaults, "__name__": __name__}
    scope |= {"_tunewright_misfit": _misfit, "_tunewright_get": ready.get, "_tunewright_prepare": prepare}
    exec(source, scope)
    made: Callable[..., Any] = scope["__call__"]
    return made


def _misfit(error: Exception) -> SignatureError:
    """What to say of an argument that is not what it was declared to be."""
    return SignatureError(f"an argument is not what the kernel declares (numpy arrays for In, Out, InOut): {error}")
