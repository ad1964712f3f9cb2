"""Prebuilding: every config of a Triton kernel judged for GPUs that are not here, and what survives compiled."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from tunewright.backends.triton.artefacts import Label, Shelf
from tunewright.backends.triton.compiling import JOB, Call, Compiling, Job, plain
from tunewright.backends.triton.figures import Resources, misfits
from tunewright.backends.triton.model import Model
from tunewright.backends.triton.subjects import Settings, Subject
from tunewright.backends.triton.targets import Target, target
from tunewright.errors import BackendError
from tunewright.measure.attempt import Bench, Limits
from tunewright.model.trial import Entry, Failure
from tunewright.pools.isolate import Isolated
from tunewright.pools.process import ProcessPool
from tunewright.spaces.config import Config

RUNG = 1
"""What is said here comes from real compiles and files they made; nothing ran on a GPU."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One config on one target: kept or dropped, why, and what it takes if it was compiled.

    `by` says who spoke: the model before compiling, the compiler, or how its process ended (`hung`: at its deadline).
    """

    target: str
    config: dict[str, Any]
    keep: bool
    by: str
    reasons: list[str] = []
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    resources: Resources | None = None
    key: str = ""
    digest: str = ""


@dataclass
class Plan:
    """What is to be compiled, the dearest first, and what is dropped before."""

    subject: Subject
    call: Call
    jobs: list[Job]
    dropped: list[Row] = field(default_factory=list)
    modelled: bool = True

    @property
    def total(self) -> int:
        """Configs times targets."""
        return len(self.jobs) + len(self.dropped)


def plan(
    subject: Subject, call: Call, targets: Sequence[str | Target], *, most: int | None = None, model: bool = True
) -> Plan:
    """Judge every config for every target; `most` draws so many configs at random, the same at every call."""
    configs = list(subject.configs)
    if most is not None and most < len(configs):
        drawn = np.random.default_rng(0).choice(len(configs), most, replace=False)
        configs = [configs[i] for i in sorted(drawn.tolist())]
    jobs: list[tuple[float, Job]] = []
    made = Plan(subject, call, [], modelled=False)
    for place in [target(name) if isinstance(name, str) else name for name in targets]:
        judge = Model(subject, place, (call.args, call.named))
        for config in configs:
            reasons = _offered(place, config) + (judge.objections(config) if model else [])
            made.modelled = made.modelled or (model and judge.needs(config) is not None)
            if reasons:
                made.dropped.append(Row(place.name, _shown(config), False, "model", reasons))
            else:
                jobs.append((judge.cost(config), Job(place, config)))
    jobs.sort(key=lambda pair: -pair[0])
    made.jobs = [job for _, job in jobs]
    return made


def _offered(place: Target, config: Settings) -> list[str]:
    """Launch options that other GPUs have and this one has not."""
    foreign = ("maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "launch_pdl")
    said = [name for name in foreign if config.get(name) and name not in place.options]
    said += ["num_ctas"] if (config.get("num_ctas") or 1) > 1 and "num_ctas" not in place.options else []
    return [f"{place} has no {name}" for name in said]


def _shown(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in config.items()}


def prebuild(made: Plan, cache: Path, *, width: int = 2, deadline: float = 60.0) -> Iterator[Row]:
    """Every row: dropped ones first, then compiles as they finish, each in a process that can be killed.

    What is finished is kept in `cache`; an interrupted run goes on where it stopped.
    """
    yield from made.dropped
    shelf, waiting = Shelf(cache), {}
    for number, job in enumerate(made.jobs):
        try:
            key = job.unit(made.subject, made.call).key
        except BackendError as error:
            yield Row(job.target.name, _shown(job.config), False, "compiler", [str(error)])
            continue
        if (known := shelf.label(key)) is not None:
            yield _row(known, job.target)
        else:
            waiting[number] = key
    yield from _compiled(made, shelf, waiting, (cache, width, deadline))


def _compiled(made: Plan, shelf: Shelf, waiting: dict[int, str], how: tuple[Path, int, float]) -> Iterator[Row]:
    cache, width, deadline = how
    worker = Compiling(made.subject, made.call, made.jobs, cache)
    # A worker asks no more of its bench than to be called; forked, it has kernel and arguments in memory.
    attempt = Isolated(lambda: cast(Bench, worker), (), cache, limits=Limits(build=deadline))
    entries = (Entry(Config({JOB: number})) for number in waiting)
    for trial in ProcessPool(width).run(attempt, entries):
        number = int(trial.config[JOB])
        job = made.jobs[number]
        label = shelf.label(waiting[number])
        if label is not None:
            yield _row(label, job.target)
        elif isinstance(trial.outcome, Failure):
            reasons = [f"the compiler: {trial.outcome.reason}"]
            yield Row(job.target.name, _shown(job.config), False, str(trial.outcome.kind), reasons, trial.build_seconds)


def _row(label: Label, place: Target) -> Row:
    if label.resources is None:
        reasons = [f"it does not compile: {label.refused}"]
        return Row(label.target, label.config, False, "compiler", reasons, label.seconds, label.cpu_seconds)
    reasons = misfits(label.resources, place)
    return Row(
        label.target, label.config, not reasons, "compiler", reasons, label.seconds, label.cpu_seconds,
        label.resources, label.key, label.digest,
    )  # fmt: skip


def kept(rows: Iterable[Row], cache: Path) -> Iterator[bytes]:
    """The artefacts of the rows that are kept, as bytes: for a bundle, or for Triton's cache."""
    shelf = Shelf(cache)
    return (shelf.body(row.key) for row in rows if row.keep)


class Standing:
    """How far a prebuild has come: counts, the best so far, and the time left."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.compiled = total, 0, 0
        self.kept = 0
        self.best: Row | None = None
        self._since = time.monotonic()

    def note(self, row: Row) -> None:
        """Take one more row into account."""
        self.done += 1
        self.compiled += row.by != "model"
        self.kept += row.keep
        if row.keep and row.resources and (self.best is None or _rank(row) > _rank(self.best)):
            self.best = row

    @property
    def left(self) -> float | None:
        """Seconds left, if those to come take as long as those compiled; the dearest come first, so at most."""
        if not self.compiled:
            return None
        return (self.total - self.done) * (time.monotonic() - self._since) / self.compiled


def _rank(row: Row) -> tuple[float, int]:
    assert row.resources is not None
    return row.resources.occupancy, -row.resources.registers
