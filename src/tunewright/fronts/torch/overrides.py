"""Overrides: what a user has decided, by name or pattern, whatever was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tunewright.errors import SpaceError
from tunewright.model.decision import Problem
from tunewright.remarks import Remarks
from tunewright.spaces.config import VARIANT, Config

log = Remarks(__name__)


class Overrides:
    """Patterns of names, each with a variant's name or with values of knobs: `{"matmul *.qkv": "library"}`."""

    def __init__(self, told: Mapping[str, Any] | None = None) -> None:
        self._told = dict(told or {})
        self.used: dict[str, str] = {}

    def config(self, problem: Problem, names: Sequence[str]) -> Config | None:
        """What is told for something of these names, the first pattern that fits; None if none does."""
        for pattern, wanted in self._told.items():
            name = next((one for one in names if fnmatchcase(one, pattern)), None)
            if name is None:
                continue
            made = _made(problem, wanted)
            if said := problem.space.objections(made):
                raise SpaceError(f"the override {pattern!r} cannot be: {'; '.join(map(str, said))}")
            self.used[name] = pattern
            log.info("%s: %s, as the override %r says", name, made, pattern)
            return made
        return None


def _made(problem: Problem, wanted: Any) -> Config:
    """A config from a variant's name or some values; what is not said is as in the default, or comes first."""
    told = {VARIANT: wanted} if isinstance(wanted, str) else dict(wanted)
    variant = told.get(VARIANT, problem.default.get(VARIANT))
    known = [one for one in problem.space.variants if one.name == variant]
    rest = {knob.name: knob.values[0] for one in known for knob in one.knobs}
    if problem.default.get(VARIANT) == variant:
        rest |= dict(problem.default)
    return Config({**rest, **({VARIANT: variant} if variant is not None else {}), **told})
