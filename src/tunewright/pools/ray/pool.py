"""A pool on a Ray cluster: many machines build, each device times, results come as they finish."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import ray
from ray.exceptions import RayActorError, RayTaskError

from tunewright.errors import BackendError, PluginError, TunewrightError
from tunewright.model.trial import Entry, Failure, Kind, Stage, Trial
from tunewright.pools.isolate import Isolated
from tunewright.pools.ray import cluster
from tunewright.pools.ray.actors import Builder, Parcel, Station
from tunewright.pools.ray.crew import Crew, Member
from tunewright.pools.ray.errand import Built, Errand
from tunewright.ports.pool import Attempt
from tunewright.remarks import Remarks
from tunewright.sharing import wire
from tunewright.spaces.config import Config

log = Remarks(__name__)

GLANCE = 1.0
"""Seconds after which the pool looks around, though nothing was heard."""

DEPTH = 2
"""Entries at a station: one that is tried, and one that waits, so that no device idles while a result travels."""

MOST_TRIES = 4
"""How often an entry is given to a machine, before its own doing is what the machines die of."""

FRUITLESS = 3
"""Builds in a row without an artefact that can travel, after which builders are of no use."""

KEPT = 256
"""Parcels remembered: the rivals of those to come are among them."""


class Job:
    """An entry on its way."""

    def __init__(self, entry: Entry) -> None:
        self.entry, self.body = entry, wire.encode(entry)
        self.lost = 0
        self.built: Built | None = None


class RayPool:
    """`width` entries on their way: some being built, some waiting, one at each device of a `kind` timed.

    With no kind, the device is that of this machine. A machine that is lost costs time, never a trial: what it had is
    given to another, and the trial says so in its figures (`retries`).
    """

    def __init__(self, width: int = 2, kind: str = "") -> None:
        self.width, self.kind = max(1, width), kind
        self._crew: Crew[Job] | None = None
        self._clear()

    def _clear(self) -> None:
        self._unbuilt: deque[Job] = deque()
        self._untimed: deque[Job] = deque()
        self._flying: dict[Any, tuple[Job, Member[Job]]] = {}
        self._held: dict[Any, Any] = {}
        self._parcels: OrderedDict[Config, Parcel] = OrderedDict()
        self._fruitless = 0

    def run(self, attempt: Attempt, entries: Iterable[Entry]) -> Iterator[Trial]:
        """Trials as they finish."""
        if not isinstance(attempt, Isolated):
            raise PluginError('a pool on Ray runs attempts that can travel; use pool="serial" for this one')
        errand = wire.encode(Errand.of(attempt))
        source, exhausted = iter(entries), False
        try:
            while True:
                while not exhausted and self._count() < self.width:
                    entry = next(source, None)
                    exhausted = entry is None
                    if entry is not None:
                        self._unbuilt.append(Job(entry))
                if not self._count():
                    return
                if self._crew is None:
                    cluster.connect()
                    self._crew = Crew(errand, self.kind, self.width)
                yield from self._step(self._crew)
        finally:
            self.close()

    def _count(self) -> int:
        return len(self._unbuilt) + len(self._untimed) + len(self._flying)

    def _step(self, crew: Crew[Job]) -> Iterator[Trial]:
        """Hand out what can be, then wait until something is heard."""
        self._hand_out(crew)
        heard, _ = ray.wait([*self._flying, *crew.references], num_returns=1, timeout=GLANCE)
        crew.look()
        for reference in heard:
            if crew.hear(reference):
                continue
            job, member = self._flying.pop(reference)
            trial = self._settled(crew, reference, job, member)
            member.jobs.remove(job)
            if trial is not None:
                yield trial

    def _hand_out(self, crew: Crew[Job]) -> None:
        while self._unbuilt:
            if not crew.can_build:
                self._untimed.append(self._unbuilt.popleft())
            elif (builder := crew.free(Builder, 1)) is not None:
                job = self._unbuilt.popleft()
                report, contents = builder.actor.build.options(num_returns=2).remote(job.body)
                self._held[report] = contents
                self._send(report, job, builder)
            else:
                break
        while self._untimed and (station := crew.free(Station, DEPTH)) is not None:
            job = self._untimed.popleft()
            self._send(station.actor.attempt.remote(job.body, self._brought(job.entry)), job, station)

    def _send(self, reference: Any, job: Job, member: Member[Job]) -> None:
        self._flying[reference] = job, member
        member.jobs.append(job)

    def _brought(self, entry: Entry) -> list[Parcel]:
        """What was built for an entry and for its rival."""
        wanted = [entry.config, *([entry.rival.config] if entry.rival else [])]
        found = [config for config in wanted if config in self._parcels]
        for config in found:
            self._parcels.move_to_end(config)
        return [self._parcels[config] for config in found]

    def _settled(self, crew: Crew[Job], reference: Any, job: Job, member: Member[Job]) -> Trial | None:
        """The trial, if the job ended with this answer; else it goes on its way."""
        held = self._held.pop(reference, None)
        try:
            body = ray.get(reference)
        except RayActorError as error:
            crew.lose(member, error)
            return self._again(job, member)
        except TunewrightError as error:
            if member.role is Station:
                said = getattr(error, "cause", None) or error
                raise BackendError(f"at {member.where}: {said}") from error
            log.warning("a builder at %s cannot build: %s", member.where, error)
            self._untimed.append(job)
            return None
        except RayTaskError as error:
            if member.role is Station:
                raise
            log.warning("a builder at %s failed, so the device's machine builds: %s", member.where, error)
            self._untimed.append(job)
            return None
        crew.worked()
        if member.role is Builder:
            return self._taken(crew, job, member, wire.decode(body, Built), held)
        return _noted(wire.decode(body, Trial), job)

    def _taken(self, crew: Crew[Job], job: Job, builder: Member[Job], built: Built, held: Any) -> Trial | None:
        """A builder's report: on to a device, or the end if the compiler refuses."""
        job.built = built
        if built.trial is not None:
            outcome = built.trial.outcome
            if isinstance(outcome, Failure) and outcome.kind is not Kind.CRASHED and builder.trusted:
                return _noted(built.trial, job)
            # One that has built nothing yet may lack a compiler: the device's own machine has the last word.
        elif built.names:
            builder.trusted, self._fruitless = True, 0
            self._parcels[job.entry.config] = built.names, [held]
            while len(self._parcels) > KEPT:
                self._parcels.popitem(last=False)
        else:
            self._fruitless += 1
            if self._fruitless == FRUITLESS:
                log.info("nothing that is built here can travel: devices' machines build for themselves")
                self._dismiss_builders(crew)
        self._untimed.append(job)
        return None

    def _dismiss_builders(self, crew: Crew[Job]) -> None:
        flying = {ref: pair for ref, pair in self._flying.items() if pair[1].role is Builder}
        for reference, (job, _) in flying.items():
            del self._flying[reference]
            self._held.pop(reference, None)
            self._unbuilt.append(job)
        crew.dismiss(Builder)

    def _again(self, job: Job, member: Member[Job]) -> Trial | None:
        """Another machine for a job whose machine was lost; not for one that no process can be rid of."""
        ran = member.ran is job
        job.lost += ran
        if ran and member.hung and member.role is Station:
            failure = Failure(Stage.TIME, Kind.HUNG, f"it could not be ended, nor its worker, at {member.where}")
            return _noted(Trial(job.entry.config, failure, at=time.time()), job)
        if job.lost >= MOST_TRIES:
            failure = Failure(Stage.TIME, Kind.CRASHED, f"{job.lost} machines or processes were lost while it ran")
            return _noted(Trial(job.entry.config, failure, at=time.time()), job)
        self._untimed.appendleft(job)
        return None

    def close(self) -> None:
        """End every actor; the cluster goes on."""
        if self._crew is not None and ray.is_initialized():
            self._crew.dismiss(Builder)
            self._crew.dismiss(Station)
        self._crew = None
        self._clear()


def _noted(trial: Trial, job: Job) -> Trial:
    """The trial with what only the pool knows: what it took to build it elsewhere, and how often it was begun again."""
    built = trial.build_seconds + (job.built.seconds if job.built and job.built.trial is not trial else 0.0)
    figures = {**trial.figures, "retries": float(job.lost)} if job.lost else trial.figures
    return msgspec.structs.replace(trial, build_seconds=built, figures=figures)
