"""Pins: calls that give values for knobs, which are used for that call and never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tunewright.errors import SpaceError
from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.pinning import allows, first_with, knobs_named
from tunewright.spaces.space import Space


class UnknownArgument(SpaceError, TypeError):
    """A call names neither an argument nor a knob."""


def pinned_config(
    name: str, space: Space, pins: Mapping[str, Any], decided: Callable[[], Config], default: Config
) -> Config:
    """Returns a config with the given values: the others are those that were decided, or else those of the default.

    Nothing is decided if values for all knobs are given. Raises SpaceError for values that are not in the space.
    """
    for pin, value in pins.items():
        if pin not in space.names:
            raise UnknownArgument(f"{name}() got an unexpected keyword argument {pin!r}{_hint(pin, space)}")
        if not allows(space, pin, value):
            values = "; ".join(map(str, knobs_named(space, pin)))
            raise SpaceError(f"{name} cannot be called with {pin}={value!r}, which is not among its values ({values})")
    if pins in space:
        return space.require(pins)
    is_complete = pins.keys() >= default.keys()  # then no decision can help
    models = [default] if is_complete else [decided(), default]
    if VARIANT in pins:  # of which the decision may know nothing
        models.append(first_with(space, pins))
    for model in models:
        if (config := {**model, **pins}) in space:
            return space.require(config)
    raise SpaceError(
        f"{name} cannot be called with {_text(pins)}: with the other values of the decision or the default, "
        f"{'; '.join(space.objections(config))}; give values for more knobs"
    )


def _text(pins: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in pins.items())


def _hint(name: str, space: Space) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    close = get_close_matches(name, [n for n in space.names if n != VARIANT], 1)
    return f"; did you mean {close[0]!r}?" if close else f"; knobs: {', '.join(space.names)}"
