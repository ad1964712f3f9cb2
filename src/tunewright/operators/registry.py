"""Installed implementations of operators, implementations by the entry points of `tunewright.operators`."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tunewright.errors import PluginError, TunewrightError
from tunewright.operators.operator import Implementation, Operator
from tunewright.operators.standard import STANDARD
from tunewright.ports import plugins

DEFAULT_PROVIDER = "numpy"
"""The provider that comes first: its implementations are the defaults."""


class Registry(NamedTuple):
    """Installed implementations, and why some providers are not usable."""

    implementations: tuple[Implementation, ...]
    absent: dict[str, str]

    @property
    def operators(self) -> dict[str, Operator]:
        """The standard operators and those of the implementations."""
        return STANDARD | {item.operator.name: item.operator for item in self.implementations}

    def operator(self, name: str) -> Operator:
        """Returns the operator with that name."""
        if name not in self.operators:
            raise PluginError(f"no operator named {name!r}; there are: {', '.join(sorted(self.operators))}")
        return self.operators[name]

    def of(self, operator: Operator) -> list[Implementation]:
        """Returns the implementations of an operator."""
        return [item for item in self.implementations if item.operator.name == operator.name]


@cache
def installed() -> Registry:
    """Loads all entry points; a provider that lacks a requirement is skipped, with the reason."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    implementations: list[Implementation] = []
    absent: dict[str, str] = {}
    for name in sorted(
        entry_points(group="tunewright.operators").names, key=lambda name: (name != DEFAULT_PROVIDER, name)
    ):
        try:
            implementations += plugins.load("operators", name)()
        except TunewrightError as error:
            absent[name] = str(error)
    return Registry(tuple(implementations), absent)
