"""Plans: parts of schedules and alternatives between them, which together form one search space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from tunewright.errors import ScheduleError
from tunewright.mlir.handles import Handle
from tunewright.mlir.payload import Payload
from tunewright.mlir.schedule import Schedule
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space, Variant


@dataclass
class PlanContext:
    """State while a schedule is built: its steps, the payload, the values of the knobs, and handles by name."""

    schedule: Schedule
    payload: Payload
    knobs: Mapping[str, Value]
    parts: frozenset[str]
    handles: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, knob: str) -> int:
        """Returns the integer value of a knob."""
        return int(self.knobs[knob])

    def op(self, name: str) -> Handle:
        """Returns the handle that an earlier part stored under that name."""
        handle: Handle = self.handles[name]
        return handle


@dataclass(frozen=True)
class PlanPart:
    """Steps with their knobs and rules; `violation` returns why they are illegal on a payload, or "".

    A part that changes the order of additions is marked `numerics`: it is left out unless allowed.
    """

    name: str
    steps: Callable[[PlanContext], None]
    knobs: tuple[Knob, ...] = ()
    rules: tuple[Rule, ...] = ()
    numerics: bool = False
    fuses: bool = True
    violation: Callable[[Payload], str] | None = None


def empty_part(name: str) -> PlanPart:
    """Returns a part without steps: the choice to leave something out."""
    return PlanPart(name, lambda context: None)


Parts = Sequence[PlanPart | Sequence[PlanPart]]


class SchedulePlan:
    """Schedules of a payload: sequences of parts, where a list of parts is a choice. Each combination is a structure.

    A structure is a variant of the space, so that structure and sizes are searched together. Illegal structures are
    not in the space; `rejected` has the reasons. The `serial` ones run on one thread, whatever the others do.
    """

    serial: frozenset[str] = frozenset()

    def __init__(self, payload: Payload, *sequences: Parts) -> None:
        self.payload = payload
        self.structures: dict[str, tuple[PlanPart, ...]] = {}
        self.rejected: dict[str, str] = {}
        for parts in sequences:
            for chosen in product(*([part] if isinstance(part, PlanPart) else part for part in parts)):
                names = [
                    part.name for part, option in zip(chosen, parts, strict=True) if not isinstance(option, PlanPart)
                ]
                self._add_structure(" ".join(filter(None, names)) or chosen[0].name, chosen)
        if not self.structures:
            raise ScheduleError(f"no structure of the plan is legal: {'; '.join(self.rejected.values())}")

    def _add_structure(self, name: str, parts: tuple[PlanPart, ...]) -> None:
        reason = next(filter(None, (part.violation(self.payload) for part in parts if part.violation)), "")
        if reason:
            self.rejected[name] = reason
        else:
            self.structures[name] = parts

    @cached_property
    def space(self) -> Space:
        """All schedules of the plan, without structures that have no config that satisfies their rules."""
        variants = []
        for name, parts in self.structures.items():
            knobs = {knob.name: knob for part in parts for knob in part.knobs}
            rules = [rule for part in parts for rule in part.rules if set(rule.reads) <= set(knobs)]
            variant = Variant(name, *knobs.values(), rules=rules, numerics=any(part.numerics for part in parts))
            if not knobs or Space(*knobs.values(), rules=rules).size:
                variants.append(variant)
            else:
                self.rejected[name] = "no sizes fit: " + "; ".join(rule.reason for rule in rules)
        if not variants:
            raise ScheduleError(f"no structure of the plan fits: {'; '.join(map(': '.join, self.rejected.items()))}")
        return Space(variants=variants)

    def schedule(self, config: Config | Mapping[str, Any]) -> Schedule:
        """Returns the schedule of a config."""
        name = str(config.get(VARIANT, ""))
        if name not in self.structures:
            raise ScheduleError(f"no structure {name!r}; there are: {', '.join(self.structures)}")
        parts = self.structures[name]
        context = PlanContext(Schedule(), self.payload, config, frozenset(part.name for part in parts))
        for part in parts:
            part.steps(context)
        return context.schedule
