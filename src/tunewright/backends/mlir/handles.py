"""Handles: what steps hold of a payload, and the draft of a schedule that watches over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tunewright.backends.mlir.script import Script, Step
from tunewright.errors import ScheduleError

ANY = "!transform.any_op"
STAGES = ("tensors", "vectors", "buffers", "lowered")
"""How far a schedule has brought its payload; no step goes back."""


@dataclass(eq=False)
class Handle:
    """What a step holds of the payload: operations or a loop; gone once a later step has consumed it."""

    name: str
    kind: str  # "op" or "loop"
    born: int
    type: str = ANY
    inside: Handle | None = None
    consumed: int = 0

    def __str__(self) -> str:
        return self.name

    def is_within(self, others: Iterable[Handle]) -> bool:
        """Whether it is one of the others, or inside one of them."""
        at: Handle | None = self
        known = set(map(id, others))
        while at is not None:
            if id(at) in known:
                return True
            at = at.inside
        return False


@dataclass
class Draft:
    """The steps so far, and every handle they gave; refuses what no compiler needs to be asked about."""

    steps: list[Step] = field(default_factory=list)
    options: set[str] = field(default_factory=set)
    handles: list[Handle] = field(default_factory=list)
    stage: str = "tensors"
    root: str = "%root"

    def script(self) -> Script:
        """The transform script."""
        return Script.of(self.steps, self.options)

    def __str__(self) -> str:
        return str(self.script())

    def refuse(self, name: str, why: str) -> NoReturn:
        """Say what is wrong with the step that is being added."""
        raise ScheduleError(f"step {len(self.steps) + 1} ({name}): {why}")

    def add(self, name: str, *lines: str) -> int:
        """Add a step; its number."""
        number = len(self.steps) + 1
        self.steps.append(Step(number, name, tuple(f"    {line}" for line in lines)))
        return number

    def new(self, name: str, kind: str = "op", type: str = ANY, inside: Handle | None = None) -> Handle:
        """A handle given by the last step."""
        made = Handle(name, kind, len(self.steps), type, inside)
        self.handles.append(made)
        return made

    def held(self, name: str, given: Handle, kind: str | None = None) -> Handle:
        """A handle that the next step may use: ours, of the right kind, and not consumed."""
        if not isinstance(given, Handle):
            self.refuse(name, f"it takes what an earlier step gave, not a {type(given).__name__}")
        if not any(given is one for one in self.handles):
            self.refuse(name, f"{given} was given by another schedule")
        if given.consumed:
            after = self.steps[given.consumed - 1]
            self.refuse(name, f"{given} of step {given.born} was consumed by {after}; use what that step gave")
        if kind is not None and given.kind != kind:
            self.refuse(name, f"it takes an {kind}, but {given} is a {given.kind}".replace("an loop", "a loop"))
        return given

    def on_tensors(self, name: str, given: Handle) -> Handle:
        """An operation on tensors, while there still are any."""
        self.at_stage(name, "tensors")
        return self.held(name, given, "op")

    def at_stage(self, name: str, latest: str) -> None:
        """Refuse a step that comes too late."""
        if STAGES.index(self.stage) > STAGES.index(latest):
            self.refuse(name, f"it works on {latest}, but earlier steps have gone on to {self.stage}; put it before")

    def consume(self, *gone: Handle) -> None:
        """Mark handles, and those inside them, as consumed by the step that is added next."""
        for one in self.handles:
            if not one.consumed and one.is_within(gone):
                one.consumed = len(self.steps) + 1

    def check_sizes(self, name: str, sizes: Sequence[int]) -> None:
        """Refuse tile sizes that are none."""
        if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in sizes):
            self.refuse(name, f"sizes are whole numbers from 0 on, not {list(sizes)}")
        if not any(sizes):
            self.refuse(name, f"{list(sizes)} cuts nothing; at least one size is above 0")

    def check_order(self, name: str, order: Sequence[int], count: int | None = None) -> None:
        """Refuse what is no permutation."""
        if not order or sorted(order) != list(range(len(order))) or len(order) != (count or len(order)):
            self.refuse(name, f"{list(order)} is no order: it has each number from 0 on, once")
