"""Driving: a whole bench: who can run what, the roof, sittings over all calls, and the run that comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from tunewright.backends.host import cpu, python_toolchain
from tunewright.bench.bouts import ANCHOR, Crew, Entry, Outing, Terms, raced, samples_of
from tunewright.bench.calls import Call
from tunewright.bench.far import Measure, Offer, Survey
from tunewright.bench.run import SCHEMA, Bout, Cell, Run
from tunewright.bench.seat import Build, Seat, processors
from tunewright.bench.work import Roof, Work
from tunewright.errors import PluginError, TunewrightError
from tunewright.measure.attempt import Limits
from tunewright.measure.quiet import Watch
from tunewright.operators.dispatching import dispatch
from tunewright.version import __version__

Progress = Callable[[str], None]
"""Told what is done next."""

ITEM = {"float16": 2, "bfloat16": 2, "float64": 8}
"""Bytes of an element, where they are not four."""


class Plan(msgspec.Struct, frozen=True):
    """How a bench is run: by what terms, in how many sittings, each implementation in a process of its own or not."""

    limits: Limits = Limits()
    terms: Terms = Terms()
    sittings: int = 3
    isolated: bool = False
    build: Build = Build()
    budget: str | None = None

    def crew(self, folder: Path, sitting: int) -> Crew:
        """The seats of one sitting."""
        return Crew(self.limits, folder, processors(self.terms.threads, sitting), self.isolated)


class Offers(NamedTuple):
    """What a build offers, by operator; and why some who are installed offer nothing."""

    offers: dict[str, Offer]
    absent: dict[str, str]


def surveyed(build: Build, limits: Limits) -> Offers:
    """What a build offers."""
    seat = Seat(build, limits)
    try:
        note = seat.ask(Survey())
        return Offers(note.offers or {}, note.absent)
    finally:
        seat.close()


def chosen(offered: Offers, call: Call, names: Sequence[str]) -> list[str]:
    """The implementations of a call's operator among those named; all of them for `all`."""
    there = offered.offers[call.operator].implementations
    return [name for name in there if "all" in names or name in names]


def _nobody(offered: Offers, calls: Sequence[Call], names: Sequence[str]) -> PluginError:
    """What to say where no call has an implementation of that name."""
    operators = dict.fromkeys(call.operator for call in calls)
    there = "; ".join(f"{operator} has {', '.join(offered.offers[operator].implementations)}" for operator in operators)
    why = "".join(f" ({name}: {offered.absent[name]})" for name in names if name in offered.absent)
    return PluginError(f"no implementation {', '.join(names)}{why}; {there}")


def driven(plan: Plan, offered: Offers, calls: Sequence[Call], names: Sequence[str], say: Progress) -> Run:
    """The run of all calls with these implementations."""
    able = [(call, kept) for call in calls if (kept := chosen(offered, call, names))]
    if not able:
        raise _nobody(offered, calls, names)
    tracks = [_Track(plan, call, offered.offers[call.operator], kept) for call, kept in able]
    watch = Watch()
    say("measuring what this machine can do")
    roof = _roof(plan, tuple(dict.fromkeys(call.dtype for call in calls)))
    with TemporaryDirectory(prefix="tunewright-bench-") as folder:
        for sitting in range(plan.sittings):
            with plan.crew(Path(folder), sitting) as crew:
                for number, track in enumerate(tracks, 1):
                    say(f"sitting {sitting + 1} of {plan.sittings} · {number} of {len(tracks)} · {track.call}")
                    track.sit(crew)
    said = tuple(watch.stop().complaints())
    return Run(
        schema=SCHEMA,
        version=__version__,
        at=time.time(),
        machine=str(cpu()),
        toolchain=python_toolchain(),
        threads=plan.terms.threads,
        isolated=plan.isolated,
        roof=roof,
        bouts=tuple(track.bout() for track in tracks),
        complaints=said,
    )


class _Track:
    """A call on its way through the sittings."""

    def __init__(self, plan: Plan, call: Call, offer: Offer, names: Sequence[str]) -> None:
        self.plan, self.call = plan, call
        self.entries = [Entry(name, name, plan.build, _tuned(plan, call, name, offer)) for name in names]
        nbytes = ITEM.get(call.dtype, 4) * sum(prod(call.sizes[one] for one in array) for array in offer.inputs)
        self.anchor = "dense" if Work.of(call, nbytes).is_dense else "wide"
        self.outings: list[dict[str, Outing]] = []
        self.clock = ""

    def sit(self, crew: Crew) -> None:
        """One more sitting, of those who have not failed."""
        failed = {name for one in self.outings for name, outing in one.items() if outing.mishap}
        fit = [entry for entry in self.entries if entry.name not in failed]
        terms = msgspec.structs.replace(self.plan.terms, seed=self.plan.terms.seed + len(self.outings))
        outings, clock = raced(crew, self.call, fit, terms, self.anchor) if fit else ({}, "")
        self.outings.append(outings)
        self.clock = self.clock or clock

    def bout(self) -> Bout:
        """What came of all sittings."""
        runners = [outing.runner for one in self.outings for outing in one.values() if outing.runner]
        work = Work.of(self.call, max((runner.nbytes for runner in runners), default=0))
        cells = tuple(self._cell(entry.name) for entry in self.entries)
        return Bout(self.call, cells, work, self.clock, self.anchor, samples_of(self.outings, ANCHOR))

    def _cell(self, name: str) -> Cell:
        own = [one[name] for one in self.outings if name in one]
        mishap = next((outing.mishap for outing in own if outing.mishap), None)
        runners = [outing.runner for outing in own if outing.runner]
        if mishap or not runners:
            return Cell(name, mishap=mishap)
        built = max(runner.build_seconds for runner in runners)  # later sittings find what the first one built
        return Cell(name, samples_of(self.outings, name), None, runners[0].config, built, runners[0].error)


def _roof(plan: Plan, dtypes: tuple[str, ...]) -> Roof:
    seat = Seat(plan.build, plan.limits, processors(plan.terms.threads))
    try:
        return seat.ask(Measure(plan.terms.threads, dtypes)).roof or Roof()
    finally:
        seat.close()


def _tuned(plan: Plan, call: Call, name: str, offer: Offer) -> dict[str, Any]:
    """The config that a search found for an implementation with knobs; empty without a budget, or where none works."""
    if plan.budget is None or name not in offer.templates:
        return {}
    operation = dispatch(call.operator, only=name, threads=plan.terms.threads, budget=plan.budget)
    try:
        return dict(operation.decide(*call.arguments(operation.operator)[:-1]).config)
    except TunewrightError:
        return {}  # what is wrong with it, its cell will say
