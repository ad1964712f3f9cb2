"""Bouts: implementations of one call, each in its seat, run in turn, round by round, under one driver."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from tunewright.bench.calls import Call
from tunewright.bench.far import Anchor, Asked, Note, Ready, Runner, Stumbled, Turn, Use
from tunewright.bench.run import Mishap
from tunewright.bench.seat import Build, Seat
from tunewright.measure.attempt import Limits
from tunewright.measure.clock import CLOCKS

ANCHOR = "anchor"
"""Who runs beside the implementations; no implementation is called so."""

FEWEST = 6
"""Rounds that everyone runs, however slow."""


class Terms(msgspec.Struct, frozen=True):
    """What a bout may cost: rounds, seconds, and on how many threads."""

    rounds: int = 40
    seconds: float = 10.0
    threads: int = 1
    seed: int = 0


class Entry(msgspec.Struct, frozen=True):
    """Who takes part in a bout: a name, the implementation, where it comes from, and its config if it has knobs."""

    name: str
    implementation: str
    build: Build = Build()
    config: dict[str, Any] = {}


class Outing(msgspec.Struct, frozen=True):
    """How one of a bout did in one sitting: made ready how, its samples, or its mishap."""

    runner: Runner | None = None
    samples: tuple[float, ...] = ()
    mishap: Mishap | None = None


@dataclass
class Crew:
    """The seats of one sitting: one for each operator and implementation, or one for each build that all share."""

    limits: Limits
    folder: Path  # where right results lie, and what is built
    processors: tuple[int, ...]
    isolated: bool = True
    seats: dict[tuple[str, ...], Seat] = field(default_factory=dict)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for seat in self.seats.values():
            seat.close()

    def seat(self, operator: str, entry: Entry) -> Seat:
        """Where an entry sits; taken anew if the last one there is gone."""
        place = (entry.build.python, *entry.build.paths)
        place = (*place, operator, entry.implementation) if self.isolated or entry.name == ANCHOR else place
        if place not in self.seats or self.seats[place].gone:
            self.seats[place] = Seat(entry.build, self.limits, self.processors)
        return self.seats[place]


def raced(
    crew: Crew, call: Call, entries: Sequence[Entry], terms: Terms, anchor: str = ""
) -> tuple[dict[str, Outing], str]:
    """What came of everyone in one sitting, by name, and the clock; who fails is named, and the others start again."""
    found: dict[str, Outing] = {}
    everyone = [*entries, *([Entry(ANCHOR, anchor)] if anchor else [])]
    while left := [entry for entry in everyone if entry.name not in found]:
        if left[0].name == ANCHOR:
            break
        try:
            outings, clock = _Bout(crew, call, left, terms).run()
            return found | outings, clock
        except _Out as out:
            found[out.name] = Outing(mishap=out.mishap)
    return found, ""


class _Out(Stumbled):
    """One of a bout stumbled."""

    def __init__(self, name: str, why: Stumbled) -> None:
        super().__init__(why.mishap.kind, why.mishap.stage, why.mishap.reason)
        self.name = name


class _Bout:
    """A bout under way."""

    def __init__(self, crew: Crew, call: Call, entries: Sequence[Entry], terms: Terms) -> None:
        self.crew, self.call, self.terms = crew, call, terms
        self.entries = {entry.name: entry for entry in entries}
        self.runners: dict[str, Runner] = {}

    def run(self) -> tuple[dict[str, Outing], str]:
        for name in self.entries:
            self.runners[name] = self._ask(name, self._ready(name)).runner or Runner("")
        clock = max((one.clock for one in self.runners.values()), key=list(CLOCKS).index)
        for name in self.entries:
            self._ask(name, Use(clock))
        samples = self._rounds()
        return {name: Outing(self.runners[name], tuple(own)) for name, own in samples.items()}, clock

    def _seat(self, name: str) -> Seat:
        return self.crew.seat(self.call.operator, self.entries[name])

    def _ask(self, name: str, do: Asked) -> Note:
        try:
            return self._seat(name).ask(do)
        except Stumbled as stumbled:
            self._clear(name, stumbled)
            raise _Out(name, stumbled) from stumbled

    def _clear(self, name: str, stumbled: Stumbled) -> None:
        """Who was refused has harmed nobody; after anything else the seat is not used again."""
        if stumbled.mishap.stage != "support":
            self._seat(name).close()

    def _ready(self, name: str) -> Ready | Anchor:
        entry = self.entries[name]
        if name == ANCHOR:
            return Anchor("dense" if entry.implementation == "dense" else "wide")
        file = self.crew.folder / f"{str(self.call).replace(' ', '-')}.npy"
        memory, cache = self.crew.limits.memory, str(self.crew.folder)
        return Ready(self.call, entry.implementation, self.terms.threads, str(file), cache, memory, entry.config)

    def _rounds(self) -> dict[str, list[float]]:
        """Everyone's samples; who has used up its share of the time after the fewest rounds runs no more."""
        names, rng = list(self.entries), np.random.default_rng(self.terms.seed)
        samples: dict[str, list[float]] = {name: [] for name in names}
        spent, share, began = dict.fromkeys(names, 0.0), self.terms.seconds / len(names), time.monotonic()
        for number in range(self.terms.rounds):
            late = number >= FEWEST
            if late and time.monotonic() - began > self.terms.seconds:
                break
            staying = [name for name in names if not late or (len(samples[name]) == number and spent[name] <= share)]
            for i in rng.permutation(len(staying)):
                name, start = staying[i], time.monotonic()
                samples[name].append(self._turn(name))
                spent[name] += time.monotonic() - start
        return samples

    def _turn(self, name: str) -> float:
        entry = self.entries[name]
        seconds = self._ask(name, Turn(ANCHOR if name == ANCHOR else entry.implementation)).seconds or 0.0
        if self.crew.isolated and name != ANCHOR:
            try:
                self._seat(name).look()
            except Stumbled as stumbled:
                self._clear(name, stumbled)
                raise _Out(name, stumbled) from stumbled
        return seconds


def samples_of(outings: Sequence[Mapping[str, Outing]], name: str) -> tuple[tuple[float, ...], ...]:
    """Someone's samples, by sitting."""
    return tuple(one[name].samples for one in outings if name in one and one[name].samples)
