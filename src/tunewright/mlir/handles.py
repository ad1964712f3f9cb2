"""Handles to operations and loops of a payload, and the checks of steps that use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tunewright.errors import ScheduleError
from tunewright.mlir.script import TransformScript, TransformStep

ANY = "!transform.any_op"
STAGES = ("tensors", "vectors", "buffers", "lowered")
"""Stages of a payload under a schedule; no step goes back."""


@dataclass(eq=False)
class Handle:
    """Operations or a loop of the payload, as returned by a step; invalid once a later step has consumed it."""

    name: str
    kind: str  # "op" or "loop"
    step: int
    type: str = ANY
    inside: Handle | None = None
    consumed: int = 0

    def __str__(self) -> str:
        return self.name

    def is_within(self, handles: Iterable[Handle]) -> bool:
        """Returns whether it is one of `handles`, or inside one of them."""
        current: Handle | None = self
        ids = set(map(id, handles))
        while current is not None:
            if id(current) in ids:
                return True
            current = current.inside
        return False


@dataclass
class ScheduleBuilder:
    """The steps so far and their handles; rejects mistakes that can be found without a compiler."""

    steps: list[TransformStep] = field(default_factory=list)
    options: set[str] = field(default_factory=set)
    handles: list[Handle] = field(default_factory=list)
    stage: str = "tensors"
    root: str = "%root"

    def script(self) -> TransformScript:
        """Returns the transform script."""
        return TransformScript.of(self.steps, self.options)

    def __str__(self) -> str:
        return str(self.script())

    def reject(self, name: str, reason: str) -> NoReturn:
        """Raise an error about the step that is being added."""
        raise ScheduleError(f"step {len(self.steps) + 1} ({name}): {reason}")

    def add(self, name: str, *lines: str) -> int:
        """Add a step. Returns its number."""
        number = len(self.steps) + 1
        self.steps.append(TransformStep(number, name, tuple(f"    {line}" for line in lines)))
        return number

    def new_handle(self, name: str, kind: str = "op", type: str = ANY, inside: Handle | None = None) -> Handle:
        """Returns a new handle of the last step."""
        handle = Handle(name, kind, len(self.steps), type, inside)
        self.handles.append(handle)
        return handle

    def check_handle(self, name: str, handle: Handle, kind: str | None = None) -> Handle:
        """Returns the handle if the next step may use it: of this schedule, of the right kind, and not consumed."""
        if not isinstance(handle, Handle):
            self.reject(name, f"it takes a handle from an earlier step, not a {type(handle).__name__}")
        if not any(handle is known for known in self.handles):
            self.reject(name, f"{handle} belongs to another schedule")
        if handle.consumed:
            consumer = self.steps[handle.consumed - 1]
            self.reject(name, f"{handle} of step {handle.step} was consumed by {consumer}; use what that step returned")
        if kind is not None and handle.kind != kind:
            self.reject(name, f"it takes an {kind}, but {handle} is a {handle.kind}".replace("an loop", "a loop"))
        return handle

    def check_tensor_op(self, name: str, handle: Handle) -> Handle:
        """Returns the handle if it is an operation and the payload is still on tensors."""
        self.check_stage(name, "tensors")
        return self.check_handle(name, handle, "op")

    def check_stage(self, name: str, latest: str) -> None:
        """Reject a step that comes too late."""
        if STAGES.index(self.stage) > STAGES.index(latest):
            self.reject(name, f"it works on {latest}, but the payload is already at {self.stage}; move it earlier")

    def consume(self, *consumed: Handle) -> None:
        """Mark handles, and those inside them, as consumed by the next step."""
        for handle in self.handles:
            if not handle.consumed and handle.is_within(consumed):
                handle.consumed = len(self.steps) + 1

    def check_sizes(self, name: str, sizes: Sequence[int]) -> None:
        """Reject invalid tile sizes."""
        if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in sizes):
            self.reject(name, f"sizes are integers from 0 on, not {list(sizes)}")
        if not any(sizes):
            self.reject(name, f"{list(sizes)} tiles nothing; at least one size must be above 0")

    def check_order(self, name: str, order: Sequence[int], count: int | None = None) -> None:
        """Reject an order that is not a permutation."""
        if not order or sorted(order) != list(range(len(order))) or len(order) != (count or len(order)):
            self.reject(name, f"{list(order)} is not a permutation of the numbers from 0 on")
