"""Generates the `__call__` of a tuned kernel for its parameters; a cached launch is nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tunewright.errors import SignatureError
from tunewright.model.signature import NO_DEFAULT, CallSignature, Parameter


def generate_call(
    parameters: Sequence[Parameter],
    signature: CallSignature,
    ready: Mapping[Hashable, Callable[..., Any]],
    prepare: Callable[[Hashable, tuple[Any, ...]], Callable[..., Any]],
) -> Callable[..., Any]:
    """Returns a method that looks up the dispatch key of a call in `ready`, or else calls `prepare`, and launches.

    It is generated, as `namedtuple` generates its methods: no loop, one branch, and arguments may be given by name.
    """
    names = ", ".join(parameter.name for parameter in parameters)
    comma = f"{names}," if names else ""
    defaults = {f"_tunewright_{p.name}": p.default for p in parameters if p.default is not NO_DEFAULT}
    declarations = [f"{p.name}=_tunewright_{p.name}" if p.default is not NO_DEFAULT else p.name for p in parameters]
    source = f"""
def __call__({", ".join(["_tunewright_self", *declarations])}):
    try:
        _tunewright_key = {signature.text}
        _tunewright_launch = _tunewright_get(_tunewright_key)
    except (AttributeError, TypeError) as error:
        raise _tunewright_mismatch(error) from None
    if _tunewright_launch is None:
        _tunewright_launch = _tunewright_prepare(_tunewright_key, ({comma}))
    return _tunewright_launch({names})
"""
    scope: dict[str, Any] = {**signature.scope, **defaults, "__name__": __name__}
    scope |= {"_tunewright_mismatch": _mismatch, "_tunewright_get": ready.get, "_tunewright_prepare": prepare}
    exec(source, scope)
    call: Callable[..., Any] = scope["__call__"]
    return call


def _mismatch(error: Exception) -> SignatureError:
    """Returns the error for an argument that does not match the declaration."""
    return SignatureError(f"an argument is not what the kernel declares (numpy arrays for In, Out, InOut): {error}")
