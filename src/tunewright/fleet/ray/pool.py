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
from tunewright.fleet.ray import cluster
from tunewright.fleet.ray.actor_group import ActorGroup, GroupMember
from tunewright.fleet.ray.actors import BuildActor, RemoteArtifacts, TimingActor
from tunewright.fleet.ray.job import AttemptJob, BuildReport
from tunewright.lazy_logging import LazyLogger
from tunewright.model.trial import Failure, Kind, Stage, Trial, TrialRequest
from tunewright.pools.worker import IsolatedAttempt
from tunewright.ports.pool import Attempt
from tunewright.spaces.config import Config
from tunewright.stores import serialization

log = LazyLogger(__name__)

POLL_SECONDS = 1.0
"""Seconds after which the pool checks its actors, even if no result came."""

QUEUE_DEPTH = 2
"""Requests at a timing actor: one running and one waiting, so that no device idles while a result travels."""

MAX_ATTEMPTS = 4
"""Machines lost with a request after which the request is blamed."""

MAX_FRUITLESS_BUILDS = 3
"""Builds in a row without an artifact that can travel, after which build actors are stopped."""

MAX_ARTIFACTS = 256
"""Builds remembered: the incumbents of later requests are among them."""


class PendingRequest:
    """A request that is being built, waiting or timed."""

    def __init__(self, request: TrialRequest) -> None:
        self.request, self.body = request, serialization.encode(request)
        self.losses = 0
        self.build: BuildReport | None = None


class RayPool:
    """Keeps `width` requests in progress: some being built, some waiting, one timed at each device of a `kind`.

    Without a kind, the device is that of this machine. A lost machine costs time, never a trial: its requests are given
    to another, and the trial counts that in its metrics (`retries`).
    """

    def __init__(self, width: int = 2, kind: str = "") -> None:
        self.width, self.kind = max(1, width), kind
        self._group: ActorGroup[PendingRequest] | None = None
        self._clear()

    def _clear(self) -> None:
        self._unbuilt: deque[PendingRequest] = deque()
        self._untimed: deque[PendingRequest] = deque()
        self._in_flight: dict[Any, tuple[PendingRequest, GroupMember[PendingRequest]]] = {}
        self._contents: dict[Any, Any] = {}
        self._artifacts: OrderedDict[Config, RemoteArtifacts] = OrderedDict()
        self._fruitless = 0

    def run(self, attempt: Attempt, entries: Iterable[TrialRequest]) -> Iterator[Trial]:
        """Yields trials as they finish."""
        if not isinstance(attempt, IsolatedAttempt):
            raise PluginError('a pool on Ray runs isolated attempts only; use pool="serial" for this one')
        job = serialization.encode(AttemptJob.from_attempt(attempt))
        requests, exhausted = iter(entries), False
        try:
            while True:
                while not exhausted and self._count() < self.width:
                    request = next(requests, None)
                    exhausted = request is None
                    if request is not None:
                        self._unbuilt.append(PendingRequest(request))
                if not self._count():
                    return
                if self._group is None:
                    cluster.connect()
                    self._group = ActorGroup(job, self.kind, self.width)
                yield from self._step(self._group)
        finally:
            self.close()

    def _count(self) -> int:
        return len(self._unbuilt) + len(self._untimed) + len(self._in_flight)

    def _step(self, group: ActorGroup[PendingRequest]) -> Iterator[Trial]:
        """Gives out what free actors can take, then waits for the next answer."""
        self._dispatch(group)
        answered, _ = ray.wait([*self._in_flight, *group.references], num_returns=1, timeout=POLL_SECONDS)
        group.check_health()
        for reference in answered:
            if group.handle(reference):
                continue
            pending, member = self._in_flight.pop(reference)
            trial = self._handle_result(group, reference, pending, member)
            member.jobs.remove(pending)
            if trial is not None:
                yield trial

    def _dispatch(self, group: ActorGroup[PendingRequest]) -> None:
        while self._unbuilt:
            if not group.can_build:
                self._untimed.append(self._unbuilt.popleft())
            elif (builder := group.least_busy(BuildActor, 1)) is not None:
                pending = self._unbuilt.popleft()
                report, contents = builder.actor.build.options(num_returns=2).remote(pending.body)
                self._contents[report] = contents
                self._send(report, pending, builder)
            else:
                break
        while self._untimed and (timer := group.least_busy(TimingActor, QUEUE_DEPTH)) is not None:
            pending = self._untimed.popleft()
            self._send(timer.actor.attempt.remote(pending.body, self._built_for(pending.request)), pending, timer)

    def _send(self, reference: Any, pending: PendingRequest, member: GroupMember[PendingRequest]) -> None:
        self._in_flight[reference] = pending, member
        member.jobs.append(pending)

    def _built_for(self, request: TrialRequest) -> list[RemoteArtifacts]:
        """Returns what was built for a request and for its incumbent."""
        configs = [request.config, *([request.incumbent.config] if request.incumbent else [])]
        built = [config for config in configs if config in self._artifacts]
        for config in built:
            self._artifacts.move_to_end(config)
        return [self._artifacts[config] for config in built]

    def _handle_result(
        self,
        group: ActorGroup[PendingRequest],
        reference: Any,
        pending: PendingRequest,
        member: GroupMember[PendingRequest],
    ) -> Trial | None:
        """Returns the trial, if the request ends with this answer; else queues the request for its next step."""
        contents = self._contents.pop(reference, None)
        try:
            body = ray.get(reference)
        except RayActorError as error:
            group.replace(member, error)
            return self._retry(pending, member)
        except TunewrightError as error:
            if member.role is TimingActor:
                cause = getattr(error, "cause", None) or error
                raise BackendError(f"at {member.where}: {cause}") from error
            log.warning("a build actor at %s cannot build: %s", member.where, error)
            self._untimed.append(pending)
            return None
        except RayTaskError as error:
            if member.role is TimingActor:
                raise
            log.warning("a build actor at %s failed, so the device's machine builds: %s", member.where, error)
            self._untimed.append(pending)
            return None
        group.reset_losses()
        if member.role is BuildActor:
            return self._handle_build(group, pending, member, serialization.decode(body, BuildReport), contents)
        return _with_pool_metrics(serialization.decode(body, Trial), pending)

    def _handle_build(
        self,
        group: ActorGroup[PendingRequest],
        pending: PendingRequest,
        builder: GroupMember[PendingRequest],
        report: BuildReport,
        contents: Any,
    ) -> Trial | None:
        """Queues a built request for a device; returns the trial if the compiler refuses."""
        pending.build = report
        if report.trial is not None:
            outcome = report.trial.outcome
            if isinstance(outcome, Failure) and outcome.kind is not Kind.CRASHED and builder.trusted:
                return _with_pool_metrics(report.trial, pending)
            # One that has built nothing yet may lack a compiler: the device's own machine has the last word.
        elif report.names:
            builder.trusted, self._fruitless = True, 0
            self._artifacts[pending.request.config] = report.names, [contents]
            while len(self._artifacts) > MAX_ARTIFACTS:
                self._artifacts.popitem(last=False)
        else:
            self._fruitless += 1
            if self._fruitless == MAX_FRUITLESS_BUILDS:
                log.info("artifacts of this kernel cannot travel: devices' machines build for themselves")
                self._stop_builders(group)
        self._untimed.append(pending)
        return None

    def _stop_builders(self, group: ActorGroup[PendingRequest]) -> None:
        building = {ref: pair for ref, pair in self._in_flight.items() if pair[1].role is BuildActor}
        for reference, (pending, _) in building.items():
            del self._in_flight[reference]
            self._contents.pop(reference, None)
            self._unbuilt.append(pending)
        group.stop(BuildActor)

    def _retry(self, pending: PendingRequest, member: GroupMember[PendingRequest]) -> Trial | None:
        """Queues the request of a lost machine again; returns a failed trial if the request is to blame."""
        was_running = member.running is pending
        pending.losses += was_running
        if was_running and member.hung and member.role is TimingActor:
            failure = Failure(Stage.TIME, Kind.HUNG, f"neither it nor its worker could be killed at {member.where}")
            return _with_pool_metrics(Trial(pending.request.config, failure, at=time.time()), pending)
        if pending.losses >= MAX_ATTEMPTS:
            reason = f"{pending.losses} machines or processes were lost while it ran"
            failure = Failure(Stage.TIME, Kind.CRASHED, reason)
            return _with_pool_metrics(Trial(pending.request.config, failure, at=time.time()), pending)
        self._untimed.appendleft(pending)
        return None

    def close(self) -> None:
        """Ends every actor; the cluster goes on."""
        if self._group is not None and ray.is_initialized():
            self._group.stop(BuildActor)
            self._group.stop(TimingActor)
        self._group = None
        self._clear()


def _with_pool_metrics(trial: Trial, pending: PendingRequest) -> Trial:
    """Adds what only the pool knows: the seconds of a build elsewhere, and how often the request was retried."""
    report = pending.build
    build_seconds = trial.build_seconds + (report.seconds if report and report.trial is not trial else 0.0)
    metrics = {**trial.metrics, "retries": float(pending.losses)} if pending.losses else trial.metrics
    return msgspec.structs.replace(trial, build_seconds=build_seconds, metrics=metrics)
