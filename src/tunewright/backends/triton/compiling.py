"""Compiling: configs compiled one after another in a worker, each kept as soon as it is done."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

from tunewright.backends.triton import aot
from tunewright.backends.triton.artefacts import Artefact, Label, Shelf
from tunewright.backends.triton.figures import Block, resources
from tunewright.backends.triton.subjects import Settings, Subject
from tunewright.backends.triton.targets import Target
from tunewright.errors import BackendError
from tunewright.model.trial import Entry, Failure, Kind, Stage, Timing, Trial
from tunewright.spaces.config import Config

JOB = "job"
"""The name under which an entry for a worker says which job it is: a config of Triton may hold any value."""


@dataclass(frozen=True)
class Call:
    """The arguments of a launch: values, or stand-ins for them."""

    args: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One config to be compiled for one target."""

    target: Target
    config: Settings

    def unit(self, subject: Subject, call: Call) -> aot.Unit:
        """As far as the compiler."""
        return aot.unit(subject.function, self.target, call.args, subject.settings(call.args, call.named, self.config))


class Compiling:
    """What a worker does: an entry names a job, the trial says what came of it; it times compilers, no kernels."""

    nbytes = 0

    def __init__(self, subject: Subject, call: Call, jobs: Sequence[Job], cache: Path) -> None:
        self._subject, self._call, self._jobs, self._shelf = subject, call, jobs, Shelf(cache)

    def prepare(self) -> None:
        """Nothing is checked: what a kernel computes is not asked here."""

    def __call__(self, entry: Entry, note: Callable[[Stage], None]) -> Trial:
        """Compile one job and keep what came of it."""
        number = int(entry.config[JOB])
        label = self.compiled(self._jobs[number])
        config = Config({JOB: number})
        if label.refused:
            return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, label.refused), label.seconds)
        return Trial(config, Timing((max(label.cpu_seconds, 1e-9),), "cpu"), label.seconds)

    def compiled(self, job: Job) -> Label:
        """The label of one job; compiled before or now."""
        try:
            unit = job.unit(self._subject, self._call)
        except BackendError as error:
            return self._label(job, "", 0.0, 0.0, refused=str(error))
        if (known := self._shelf.label(unit.key)) is not None:
            return known
        before, since = _cpu(), time.monotonic()
        made, refused = None, ""
        with tempfile.TemporaryDirectory() as scratch:
            try:
                made = aot.compiled(unit, Path(scratch))
            except BackendError as error:
                refused = str(error)
        label = self._label(job, unit.key, time.monotonic() - since, _cpu() - before, made=made, refused=refused)
        artefact = Artefact(unit.key, made.name, made.suffix, made.metadata, made.code) if made else None
        return self._shelf.put(label, artefact)

    def _label(
        self, job: Job, key: str, seconds: float, cpu: float, *, made: aot.Compiled | None = None, refused: str = ""
    ) -> Label:
        taken = None
        if made is not None:
            block = Block(made.shared, made.tensor_columns, made.warps)
            taken = resources(made.code, made.assembly, job.target, block)
        return Label(
            key=key,
            kernel=self._subject.name,
            target=job.target.name,
            config={name: plain(value) for name, value in job.config.items()},
            triton=triton.__version__,
            environment=aot.environment(),
            seconds=seconds,
            cpu_seconds=cpu,
            resources=taken,
            refused=refused,
        )


def plain(value: Any) -> Any:
    """A setting as JSON has it."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _cpu() -> float:
    """CPU seconds of this process and of the programs it ran: ptxas is one."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
