"""Plan: parts of a schedule, some optional, some alternatives of each other; together they are one space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from tunewright.backends.mlir.handles import Handle
from tunewright.backends.mlir.steps import Schedule
from tunewright.backends.mlir.writing import Payload
from tunewright.errors import ScheduleError
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space, Variant


@dataclass
class Work:
    """A schedule in the making: its steps so far, the payload, the knobs' values, and handles by name."""

    schedule: Schedule
    payload: Payload
    knobs: Mapping[str, Value]
    parts: frozenset[str]
    held: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, knob: str) -> int:
        """A knob's value, which is a whole number."""
        return int(self.knobs[knob])

    def op(self, name: str) -> Handle:
        """The operation that an earlier part left under that name."""
        found: Handle = self.held[name]
        return found


@dataclass(frozen=True)
class Part:
    """Some steps with the knobs they turn; `objects` says why they are illegal on a payload, if they are.

    A part that changes the order of additions is marked `numerics`: it is left out unless that is allowed.
    """

    name: str
    steps: Callable[[Work], None]
    knobs: tuple[Knob, ...] = ()
    rules: tuple[Rule, ...] = ()
    numerics: bool = False
    fuses: bool = True
    objects: Callable[[Payload], str] | None = None


def nothing(name: str) -> Part:
    """A part without steps: the choice to leave something out."""
    return Part(name, lambda work: None)


Parts = Sequence[Part | Sequence[Part]]


class Plan:
    """Ways to schedule a payload: parts in order, a list of parts standing for the choice between them. Each way
    through is a structure.

    A structure is a variant of the space, so that structure and numbers are searched together. One that some part
    objects to is not in the space; `refused` says why.
    """

    def __init__(self, payload: Payload, *ways: Parts) -> None:
        self.payload = payload
        self.structures: dict[str, tuple[Part, ...]] = {}
        self.refused: dict[str, str] = {}
        for parts in ways:
            for chosen in product(*([one] if isinstance(one, Part) else one for one in parts)):
                names = [one.name for one, given in zip(chosen, parts, strict=True) if not isinstance(given, Part)]
                self._offer(" ".join(filter(None, names)) or chosen[0].name, chosen)
        if not self.structures:
            raise ScheduleError(f"no structure of the plan is legal: {'; '.join(self.refused.values())}")

    def _offer(self, name: str, chosen: tuple[Part, ...]) -> None:
        said = next(filter(None, (part.objects(self.payload) for part in chosen if part.objects)), "")
        if said:
            self.refused[name] = said
        else:
            self.structures[name] = chosen

    @cached_property
    def space(self) -> Space:
        """All schedules of the plan; structures without any config that keeps their rules are left out."""
        variants = []
        for name, parts in self.structures.items():
            knobs = {knob.name: knob for part in parts for knob in part.knobs}
            rules = [rule for part in parts for rule in part.rules if set(rule.reads) <= set(knobs)]
            variant = Variant(name, *knobs.values(), rules=rules, numerics=any(part.numerics for part in parts))
            if not knobs or Space(*knobs.values(), rules=rules).size:
                variants.append(variant)
            else:
                self.refused[name] = "no sizes fit: " + "; ".join(rule.reason for rule in rules)
        if not variants:
            raise ScheduleError(f"no structure of the plan fits: {'; '.join(map(': '.join, self.refused.items()))}")
        return Space(variants=variants)

    def schedule(self, config: Config | Mapping[str, Any]) -> Schedule:
        """The schedule of a config of the space."""
        name = str(config.get(VARIANT, ""))
        if name not in self.structures:
            raise ScheduleError(f"no structure {name!r}; there are: {', '.join(self.structures)}")
        parts = self.structures[name]
        work = Work(Schedule(), self.payload, config, frozenset(part.name for part in parts))
        for part in parts:
            part.steps(work)
        return work.schedule
