"""Parts of a space: those in which some knobs have given values, and those of listed configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tunewright.errors import SpaceError
from tunewright.spaces.config import VARIANT, Config, plain
from tunewright.spaces.config_list import rule_from_rows
from tunewright.spaces.space import Knob, Rule, Space, Variant


def pin(space: Space, settings: Mapping[str, Any]) -> Space:
    """Returns a space with one value for each knob in `settings`, and with the variants that have all of them."""
    chosen = settings.get(VARIANT)
    variants = [
        Variant(variant.name, *_pin(variant.knobs, settings), rules=variant.rules)
        for variant in space.variants
        if chosen in (None, variant.name) and _names(space, variant) >= settings.keys() - {VARIANT}
    ]
    if space.variants and not variants:
        raise SpaceError(f"no variant has all of {', '.join(settings)}")
    return Space(*_pin(space.knobs, settings), rules=space.rules, variants=variants)


def only(space: Space, configs: Iterable[Config], reason: str) -> Space:
    """Returns the part of a space that has these configs; `reason` is what others are told."""
    listed = list(configs)

    def rule(knobs: tuple[Knob, ...], rows: Iterable[Config]) -> Rule:
        given = [{knob.name: knob.given(row[knob.name]) for knob in knobs} for row in rows]
        return rule_from_rows(knobs, given, reason)

    if not space.variants:
        return Space(*space.knobs, rules=(*space.rules, rule(space.knobs, listed)), features=space.features)
    variants = []
    for variant in space.variants:
        if rows := [config for config in listed if config[VARIANT] == variant.name]:
            knobs = (*space.knobs, *variant.knobs)
            rules = (*variant.rules, rule(knobs, rows)) if knobs else variant.rules
            variants.append(Variant(variant.name, *variant.knobs, rules=rules))
    return Space(*space.knobs, rules=space.rules, variants=variants, features=space.features)


def first_with(space: Space, settings: Mapping[str, Any], *models: Mapping[str, Any]) -> Config:
    """Returns a config with these settings: otherwise like the first of `models` with which that is possible.

    Raises SpaceError with the reasons if no config of the space has the settings.
    """
    for model in models:
        config = {**model, **settings}
        if config in space:
            return space.require(config)
    try:
        return pin(space, settings).first
    except SpaceError:
        space.require({**(models[0] if models else {}), **settings})
        raise


def knobs_named(space: Space, name: str) -> list[Knob]:
    """Returns the knobs of a name, of which each variant may have one; the variant itself counts as one."""
    if name == VARIANT:
        return [Knob("any", [variant.name for variant in space.variants])]
    knobs = [*space.knobs, *(knob for variant in space.variants for knob in variant.knobs)]
    return [knob for knob in knobs if knob.name == name]


def allows(space: Space, name: str, value: Any) -> bool:
    """Whether some config of a space may have this value, as far as its knobs say."""
    try:
        return any(plain(value) in knob.codes for knob in knobs_named(space, name))
    except TypeError:
        return False


def _names(space: Space, variant: Variant) -> set[str]:
    return {knob.name for knob in (*space.knobs, *variant.knobs)}


def _pin(knobs: Iterable[Knob], settings: Mapping[str, Any]) -> list[Knob]:
    return [
        Knob(knob.name, [knob.given(plain(settings[knob.name]))]) if knob.name in settings else knob for knob in knobs
    ]
