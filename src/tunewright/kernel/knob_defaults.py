"""The default config of a kernel: as declared, or by the defaults in the signature of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tunewright.errors import SpaceError
from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.pinning import allows, first_with, knobs_named
from tunewright.spaces.space import Knob, Space


def default_config(
    name: str, function: Callable[..., Any], spaces: tuple[Space, Space], declared: Mapping[str, Any] | None
) -> Config | None:
    """Returns the declared default, else the config with the defaults of the signature, else None.

    `spaces` are that of the kernel, and the one with values that are left out since they change numerics. Knobs
    without a default get the values of the first config that goes with the others. Raises SpaceError for a default
    that is not in the space.
    """
    space, full_space = spaces
    if declared is not None:
        if declared not in space and declared in full_space:
            raise _changes_numerics(name)
        return space.require(declared)
    settings = _signature_defaults(function, space)
    for knob_name, value in settings.items():
        if not allows(space, knob_name, value):
            if allows(full_space, knob_name, value):
                raise _changes_numerics(name)
            raise SpaceError(_not_among(name, knob_name, value, space))
    if not settings:
        return None
    variant = settings.get(VARIANT, space.variants[0].name if space.variants else None)
    own = {knob.name for knob in _variant_knobs(space, variant)} | {VARIANT}
    settings = {knob_name: value for knob_name, value in settings.items() if knob_name in own}
    try:
        return first_with(space, {**settings, **({VARIANT: variant} if space.variants else {})})
    except SpaceError as error:
        raise SpaceError(f"the defaults in the signature of {name} are no config of its space: {error}") from error


def _signature_defaults(function: Callable[..., Any], space: Space) -> dict[str, Any]:
    """Returns the defaults of knobs; None and ... are none."""
    parameters = inspect.signature(function).parameters.values()
    none = (inspect.Parameter.empty, None, ...)
    return {p.name: p.default for p in parameters if p.name in space.names and not any(p.default is n for n in none)}


def _variant_knobs(space: Space, variant: Any) -> list[Knob]:
    return [*space.knobs, *(knob for v in space.variants if v.name == variant for knob in v.knobs)]


def _not_among(name: str, knob_name: str, value: Any, space: Space) -> str:
    allowed = "; ".join(str(knob) for knob in knobs_named(space, knob_name))
    return (
        f"{knob_name}={value!r}, the default in the signature of {name}, is not among the knob's values ({allowed}); "
        "change one of them, or declare another default with @tune(..., default={...})"
    )


def _changes_numerics(name: str) -> SpaceError:
    return SpaceError(f"the default of {name} changes numerics: allow it by name with numerics=[...]")
