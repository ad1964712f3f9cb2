"""Model: says before compiling which configs are hopeless on a GPU, and why; to be read, switched off and extended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any

from tunewright.backends.triton import needs as reckoning
from tunewright.backends.triton.calibration import Room, room_for
from tunewright.backends.triton.features import Named
from tunewright.backends.triton.needs import Launch, Needs
from tunewright.backends.triton.subjects import Subject
from tunewright.backends.triton.targets import Target
from tunewright.backends.triton.tiles import Tiles, tiles
from tunewright.errors import SettingsError
from tunewright.spaces.figure import Figure
from tunewright.spaces.rule import Rule
from tunewright.spaces.space import Space

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas")
NO_MODEL = "no model for this kernel: its source has no tl.dot or reduction over blocks whose shapes can be told"


@dataclass(frozen=True)
class Check:
    """One thing that makes a config hopeless: a name to switch it off by, the promise that every good config keeps,
    and what to say of one that breaks it (nothing if it does not).
    """

    name: str
    promise: str
    complaint: Callable[[Needs, Target, Room], str]


def _registers(needs: Needs, target: Target, room: Room) -> str:
    there = f"with {target.registers_thread} in all, {room.registers:g} are too many: it spills"
    if needs.registers < room.registers:
        return ""
    if needs.operands:
        return f"accumulators need {needs.accumulators:g} registers a thread and operands {needs.operands:g}; {there}"
    what = "accumulators need" if needs.engine is not reckoning.Engine.NONE else "its largest block needs"
    return f"{what} {needs.accumulators:g} registers a thread; {there}"


def _where(needs: Needs) -> str:
    if needs.engine is reckoning.Engine.NONE:
        return f"{needs.accumulators:g} for its largest block"
    return f"{needs.accumulators:g} for accumulators, {needs.operands:g} for operands"


def _shared(needs: Needs, target: Target, room: Room) -> str:
    if needs.shared <= target.shared_block:
        return ""
    return (
        f"operands in {needs.launch.stages} stages need {needs.shared:,} bytes of shared memory a block, "
        f"{target.shared_block:,} there are: it does not fit"
    )


def _tensor(needs: Needs, target: Target, room: Room) -> str:
    if needs.tensor_columns <= target.tensor_columns:
        return ""
    return f"accumulators need {needs.tensor_columns} tensor-memory columns, {target.tensor_columns} there are"


def _idle(needs: Needs, target: Target, room: Room) -> str:
    if needs.engine is reckoning.Engine.NONE or needs.launch.warps <= max(1, needs.pieces):
        return ""
    return f"the smallest dot has {needs.pieces} pieces of 16 x 8 for {needs.launch.warps} warps: some repeat others"


def _clusters(needs: Needs, target: Target, room: Room) -> str:
    return f"{target} has no clusters of blocks" if needs.launch.ctas > 1 and "num_ctas" not in target.options else ""


CHECKS = (
    Check("registers", "accumulators and operands fit in registers", _registers),
    Check("shared", "operands of all stages fit in shared memory", _shared),
    Check("tensor", "accumulators fit in tensor memory", _tensor),
    Check("idle", "there is work for every warp", _idle),
    Check("clusters", "blocks form clusters only where there are clusters", _clusters),
)


class Model:
    """What is known of a kernel's configs on one target, for calls like one.

    It drops only what it is sure of: where the source does not tell the shapes, nothing is said at all.
    """

    def __init__(
        self,
        subject: Subject,
        target: Target,
        call: tuple[Sequence[Any], Mapping[str, Any]],
        *,
        checks: Sequence[Check] = CHECKS,
        room: Room | None = None,
    ) -> None:
        self.subject, self.target, self.checks = subject, target, tuple(checks)
        self.room = room or room_for(target)
        self._call = call
        self._read: dict[tuple[tuple[str, Any], ...], Tiles] = {}

    def without(self, *names: str) -> Model:
        """The same with some checks switched off."""
        known = {check.name for check in self.checks}
        if strange := sorted(set(names) - known):
            raise SettingsError(f"no check {', '.join(strange)}; there are: {', '.join(sorted(known))}")
        return self._with([check for check in self.checks if check.name not in names], self.room)

    def plus(self, *checks: Check) -> Model:
        """The same with more checks."""
        return self._with([*self.checks, *checks], self.room)

    def calibrated(self, room: Room) -> Model:
        """The same with limits learned from compiled samples."""
        return self._with(self.checks, room)

    def _with(self, checks: Sequence[Check], room: Room) -> Model:
        return Model(self.subject, self.target, self._call, checks=checks, room=room)

    def tiles(self, config: Mapping[str, Any]) -> Tiles:
        """The blocks that the kernel works on under a config."""
        args, named = self._call
        settings = self.subject.settings(args, named, config)
        given = dict(zip(self.subject.function.arg_names, args, strict=False)) | settings
        names = [name for name in self.subject.function.arg_names if name in settings]
        key = tuple((name, settings[name]) for name in names)
        if key not in self._read:
            self._read[key] = tiles(self.subject.function, given)
        return self._read[key]

    def needs(self, config: Mapping[str, Any]) -> Needs | None:
        """What a config needs; None where there is no model for this kernel."""
        args, named = self._call
        launch = Launch.of(self.subject.settings(args, named, config), self.target)
        return reckoning.needs(self.tiles(config), self.target, launch)

    def objections(self, config: Mapping[str, Any]) -> list[str]:
        """Why a config is hopeless, in words; empty if it is worth compiling, or nothing can be said."""
        needs = self.needs(config)
        if needs is None:
            return []
        return [said for check in self.checks if (said := check.complaint(needs, self.target, self.room))]

    def explain(self, config: Mapping[str, Any]) -> str:
        """What the model thinks of a config, line by line."""
        needs = self.needs(config)
        if needs is None:
            return NO_MODEL
        launch = needs.launch
        lines = [
            f"{self.subject.name} on {self.target}: num_warps={launch.warps} num_stages={launch.stages}, {needs.engine}"
        ]
        lines += [
            f"  dot {dot.m} x {dot.n} x {dot.k}, {dot.left.bits} by {dot.right.bits} bits"
            for dot in self.tiles(config).dots
        ]
        lines += [
            f"  registers a thread   {_where(needs)}; "
            f"too many are {self.room.registers:g} of {self.target.registers_thread} ({self.room})",
            f"  shared memory        {needs.shared:,} of {self.target.shared_block:,} bytes a block",
        ]
        if self.target.tensor_columns:
            lines.append(f"  tensor memory        {needs.tensor_columns} of {self.target.tensor_columns} columns")
        verdict = self.objections(config)
        return "\n".join(lines + ([f"  hopeless: {said}" for said in verdict] or ["  worth compiling"]))

    def cost(self, config: Mapping[str, Any]) -> float:
        """How long a compile may take beside others, by code and by registers that do not suffice; 0 if unknown."""
        needs = self.needs(config)
        if needs is None:
            return 0.0
        return needs.registers * max(1.0, needs.registers / self.room.registers)

    def rules(self, knobs: Iterable[str]) -> list[Rule]:
        """The checks as rules of a space with these knobs."""
        names = self._reads(knobs)
        return (
            [Rule(check.promise, Named(names, self._with([check], self.room).keeps)) for check in self.checks]
            if names
            else []
        )

    def figures(self, knobs: Iterable[str]) -> list[Figure]:
        """What is known of a config without compiling, for strategies to learn from."""
        names = self._reads(knobs)
        of = ("accumulators", "operands", "shared", "tensor_columns")
        return [Figure(name, Named(names, partial(self._figure, name))) for name in of] if names else []

    def narrowed(self, space: Space) -> Space:
        """A space with what the model knows: its checks as rules, its figures to learn from."""
        names = [knob.name for knob in space.knobs]
        rules, figures = [*space.rules, *self.rules(names)], [*space.figures, *self.figures(names)]
        return Space(*space.knobs, rules=rules, variants=space.variants, figures=figures)

    def keeps(self, config: Mapping[str, Any]) -> bool:
        """Whether a config is worth compiling, as far as can be told."""
        return not self.objections(config)

    def _figure(self, name: str, config: Mapping[str, Any]) -> float:
        needs = self.needs(config)
        return nan if needs is None else float(getattr(needs, name))

    def _reads(self, knobs: Iterable[str]) -> tuple[str, ...]:
        known = {*self.subject.function.arg_names, *LAUNCH_OPTIONS}
        return tuple(name for name in knobs if name in known)
