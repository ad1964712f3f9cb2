"""Generates the `__call__` of a tuned kernel for its parameters; a cached launch is nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tunewright.errors import SignatureError
from tunewright.model.signature import NO_DEFAULT, CallSignature, Parameter, foreign_dispatch_key

Pinned = Callable[[Hashable, tuple[Any, ...], Mapping[str, Any]], Callable[..., Any]]
"""Returns the launcher of a call that gives values for knobs."""


def generate_call(
    parameters: Sequence[Parameter],
    signature: CallSignature,
    ready: Mapping[Hashable, Callable[..., Any]],
    prepare: Callable[[Hashable, tuple[Any, ...]], Callable[..., Any]],
    pinned: Pinned | None = None,
) -> Callable[..., Any]:
    """Returns a method that looks up the dispatch key of a call in `ready`, or else calls `prepare`, and launches.

    It is generated, as `namedtuple` generates its methods: no loop, one branch, and arguments may be given by name.
    Other names are knobs, for which `pinned` returns the launcher.
    """
    names = ", ".join(parameter.name for parameter in parameters)
    comma = f"{names}," if names else ""
    defaults = {f"_tunewright_{p.name}": p.default for p in parameters if p.default is not NO_DEFAULT}
    declarations = [f"{p.name}=_tunewright_{p.name}" if p.default is not NO_DEFAULT else p.name for p in parameters]
    source = f"""
def __call__({", ".join(["_tunewright_self", *declarations, "**_tunewright_pins"])}):
    try:
        _tunewright_key = {signature.text}
        _tunewright_launch = _tunewright_ready[_tunewright_key]
    except KeyError:
        _tunewright_launch = None
    except (AttributeError, TypeError) as error:
        _tunewright_key = _tunewright_other_key(error, ({comma}))
        _tunewright_launch = _tunewright_ready.get(_tunewright_key)
    if _tunewright_launch is None or _tunewright_pins:
        if _tunewright_pins:
            _tunewright_launch = _tunewright_pinned(_tunewright_key, ({comma}), _tunewright_pins)
        else:
            _tunewright_launch = _tunewright_prepare(_tunewright_key, ({comma}))
    return _tunewright_launch({names})
"""

    def other_key(error: Exception, args: tuple[Any, ...]) -> Hashable:
        if not signature.foreign:
            raise _mismatch(error) from None
        try:
            return foreign_dispatch_key(parameters, args)
        except (AttributeError, TypeError, RuntimeError) as reason:  # a sparse tensor has no strides
            raise _mismatch(reason) from None

    scope: dict[str, Any] = {**signature.scope, **defaults, "__name__": __name__}
    scope |= {"_tunewright_ready": ready, "_tunewright_prepare": prepare, "_tunewright_pinned": pinned or _no_knobs}
    scope |= {"_tunewright_other_key": other_key}
    exec(source, scope)
    call: Callable[..., Any] = scope["__call__"]
    return call


def _no_knobs(key: Hashable, args: tuple[Any, ...], pins: Mapping[str, Any]) -> Callable[..., Any]:
    """Refuses names that are no parameters, as a plain function does."""
    raise TypeError(f"an unexpected argument {next(iter(pins))!r} was given")


def _mismatch(error: Exception) -> SignatureError:
    """Returns the error for an argument that does not match the declaration."""
    return SignatureError(f"an argument is not what the kernel declares (arrays for In, Out, InOut): {error}")
