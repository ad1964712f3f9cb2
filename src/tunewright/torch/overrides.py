"""Overrides: configs that the user sets by name or pattern, whatever was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tunewright.errors import SpaceError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Problem
from tunewright.spaces.config import VARIANT, Config

log = LazyLogger(__name__)


class Overrides:
    """Patterns of names, each with the name of a variant or values of knobs: `{"matmul *.qkv": "library"}`."""

    def __init__(self, patterns: Mapping[str, Any] | None = None) -> None:
        self.patterns = dict(patterns or {})
        self.used: dict[str, str] = {}

    def config(self, problem: Problem, names: Sequence[str]) -> Config | None:
        """Returns the config of the first pattern that matches one of the names; None if none does."""
        for pattern, value in self.patterns.items():
            name = next((name for name in names if fnmatchcase(name, pattern)), None)
            if name is None:
                continue
            config = _complete_config(problem, value)
            if objections := problem.space.objections(config):
                raise SpaceError(f"the override {pattern!r} is not possible: {'; '.join(map(str, objections))}")
            self.used[name] = pattern
            log.info("%s: %s, by the override %r", name, config, pattern)
            return config
        return None


def _complete_config(problem: Problem, value: Any) -> Config:
    """Returns a config from a variant's name or some values; the rest is as in the default, else the first value."""
    values = {VARIANT: value} if isinstance(value, str) else dict(value)
    variant = values.get(VARIANT, problem.default.get(VARIANT))
    variants = [known for known in problem.space.variants if known.name == variant]
    rest = {knob.name: knob.values[0] for known in variants for knob in known.knobs}
    if problem.default.get(VARIANT) == variant:
        rest |= dict(problem.default)
    return Config({**rest, **({VARIANT: variant} if variant is not None else {}), **values})
