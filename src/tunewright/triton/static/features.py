"""Features of configs from their compiles, for strategies to learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from math import nan
from typing import Any

from tunewright.spaces.feature import Feature
from tunewright.triton.static.artifacts import CompileRecord

COMPILED_FEATURES = ("registers", "stack", "shared", "matrix", "code_bytes", "occupancy")


class KnobFunction:
    """Wraps a function of a config as a function of named knobs, by giving it a signature."""

    def __init__(self, names: Sequence[str], function: Callable[[Mapping[str, Any]], Any]) -> None:
        self._names, self._function = tuple(names), function
        self.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def __call__(self, *values: Any) -> Any:
        return self._function(dict(zip(self._names, values, strict=True)))


def compiled_features(records: Iterable[CompileRecord], knobs: Sequence[str]) -> list[Feature]:
    """Returns the compiled resources as features of a space with these knobs; NaN for configs that were not compiled.

    The records are those of one kernel, one target and one call.
    """
    resources_by_config = {
        tuple(record.config.get(name) for name in knobs): record.resources for record in records if record.resources
    }

    def lookup(feature: str) -> Callable[[Mapping[str, Any]], float]:
        def value(config: Mapping[str, Any]) -> float:
            resources = resources_by_config.get(tuple(config[name] for name in knobs))
            return nan if resources is None else float(getattr(resources, feature))

        return value

    return [Feature(name, KnobFunction(knobs, lookup(name))) for name in COMPILED_FEATURES] if knobs else []
