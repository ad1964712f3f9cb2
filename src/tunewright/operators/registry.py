"""Registry: which implementations are installed, by the entry points of `tunewright.operators`."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tunewright.errors import PluginError, TunewrightError
from tunewright.operators.operator import Implementation, Operator
from tunewright.operators.standard import STANDARD
from tunewright.ports import plugins

FIRST = "numpy"
"""Whose implementations stand first: what is chosen where nothing is decided."""


class Registry(NamedTuple):
    """What is installed, and why what is not usable here is not."""

    implementations: tuple[Implementation, ...]
    absent: dict[str, str]

    @property
    def operators(self) -> dict[str, Operator]:
        """The standard ones, and those that implementations bring."""
        return STANDARD | {one.operator.name: one.operator for one in self.implementations}

    def operator(self, name: str) -> Operator:
        """The operator of that name."""
        if name not in self.operators:
            raise PluginError(f"no operator named {name!r}; there are: {', '.join(sorted(self.operators))}")
        return self.operators[name]

    def of(self, operator: Operator) -> list[Implementation]:
        """Its implementations."""
        return [one for one in self.implementations if one.operator.name == operator.name]


@cache
def installed() -> Registry:
    """Everything that entry points name; a provider that lacks something is passed over, and it is said what."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    found: list[Implementation] = []
    absent: dict[str, str] = {}
    for name in sorted(entry_points(group="tunewright.operators").names, key=lambda name: (name != FIRST, name)):
        try:
            found += plugins.load("operators", name)()
        except TunewrightError as error:
            absent[name] = str(error)
    return Registry(tuple(found), absent)
