"""The actors of one Ray pool: started, watched, replaced when they are lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayActorError, RayError

from tunewright.errors import PluginError
from tunewright.fleet.ray.actors import BuildActor, TimingActor, WorkerActor
from tunewright.fleet.ray.cluster import DeviceRequest, processor_count
from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)

START_TIMEOUT = 120.0
"""Seconds an actor may take to be placed and to start."""

HEALTH_INTERVAL = 5.0
"""Seconds from one health check of an actor to the next."""

HEALTH_TIMEOUT = 60.0
"""Seconds after which an actor that does not answer, or whose worker cannot be killed, is given up."""

MAX_LOSSES = 20
"""Actors lost in a row, without a result between, after which the pool gives up."""

JobT = TypeVar("JobT")


@dataclass(eq=False)
class GroupMember(Generic[JobT]):
    """One actor and its jobs, oldest first; the others wait for the first."""

    actor: Any
    role: type[WorkerActor]
    started: float
    where: str = ""
    pid: int = 0
    jobs: list[JobT] = field(default_factory=list)
    trusted: bool = False
    running: JobT | None = None
    hung: bool = False
    checked: float = 0.0


class ActorGroup(Generic[JobT]):
    """A timing actor for each device there is, at most `width`; and build actors on free processors."""

    def __init__(self, job: bytes, kind: str, width: int) -> None:
        self._job, self._device = job, DeviceRequest(kind)
        self._pending: dict[Any, GroupMember[JobT]] = {}
        self._checks: dict[Any, GroupMember[JobT]] = {}
        self._losses = 0
        self.members: list[GroupMember[JobT]] = []
        for _ in range(min(width, self._device.count())):
            self._start(TimingActor)
        for _ in range(min(width, processor_count()) if width > 1 else 0):
            self._start(BuildActor)

    def _start(self, role: type[WorkerActor]) -> None:
        options = self._device.options() if role is TimingActor else {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        # Health checks must be answered while another method runs.
        actor_class = ray.remote(concurrency_groups={"watch": 1}, **options)(role)
        member: GroupMember[JobT] = GroupMember(actor_class.remote(self._job), role, time.monotonic())
        self._pending[member.actor.ready.remote()] = member

    @property
    def references(self) -> list[Any]:
        """Pending starts and health checks: what to wait for besides results."""
        return [*self._pending, *self._checks]

    def handle(self, reference: Any) -> bool:
        """Takes in the answer of a start or a health check; False if the reference is neither."""
        if (member := self._pending.pop(reference, None)) is not None:
            try:
                member.where, member.pid = ray.get(reference)
                self.members.append(member)
            except RayError as error:
                self.replace(member, error)
            return True
        if (member := self._checks.pop(reference, None)) is None:
            return False
        try:
            overdue = ray.get(reference)
        except RayError:
            return True  # the results of its jobs raise the same
        if overdue > HEALTH_TIMEOUT:
            member.hung = True
            self._give_up(member, f"its worker cannot be killed, {overdue:.0f} s past its deadline")
        return True

    def check_health(self) -> None:
        """Checks busy actors; gives up those that do not answer or do not start."""
        now = time.monotonic()
        for member in self.members:
            if member in self._checks.values():
                if now - member.checked > HEALTH_TIMEOUT:
                    self._give_up(member, f"it has not answered for {HEALTH_TIMEOUT:.0f} s")
            elif member.jobs and now - member.checked > HEALTH_INTERVAL:
                member.checked = now
                self._checks[member.actor.overdue.options(concurrency_group="watch").remote()] = member
        for reference, member in list(self._pending.items()):
            if now - member.started > START_TIMEOUT:
                del self._pending[reference]
                ray.kill(member.actor)
                log.warning("a %s found no free resources in %.0f s", member.role.label, START_TIMEOUT)
        if not self.of(TimingActor) and not any(member.role is TimingActor for member in self._pending.values()):
            raise PluginError(
                f"no device of kind {self._device.kind or 'this machine'!r} became free in {START_TIMEOUT:.0f} s; "
                "see `ray status` for who holds them. Recorded trials are kept: run the same command again"
            )

    def _give_up(self, member: GroupMember[JobT], reason: str) -> None:
        log.warning("a %s at %s is given up: %s", member.role.label, member.where, reason)
        self._drop_checks(member)
        member.checked = time.monotonic()
        ray.kill(member.actor)

    def _drop_checks(self, member: GroupMember[JobT]) -> None:
        self._checks = {reference: checked for reference, checked in self._checks.items() if checked is not member}

    def of(self, role: type[WorkerActor]) -> list[GroupMember[JobT]]:
        """Returns the actors of a role that have started."""
        return [member for member in self.members if member.role is role]

    def least_busy(self, role: type[WorkerActor], depth: int) -> GroupMember[JobT] | None:
        """Returns the actor of a role with the fewest jobs, if it has less than `depth`."""
        member = min(self.of(role), key=lambda member: len(member.jobs), default=None)
        return member if member is not None and len(member.jobs) < depth else None

    @property
    def can_build(self) -> bool:
        """Whether there are build actors, or some will start."""
        return any(member.role is BuildActor for member in (*self.members, *self._pending.values()))

    def reset_losses(self) -> None:
        """Counts losses in a row from zero, after a result."""
        self._losses = 0

    def replace(self, member: GroupMember[JobT], error: RayError) -> None:
        """Starts another actor in place of one that is lost."""
        if member not in self.members and member.where:
            return  # already replaced, for another of its jobs
        member.running = member.jobs[0] if member.jobs else None
        self.members = [kept for kept in self.members if kept is not member]
        self._drop_checks(member)
        ray.kill(member.actor)  # one that only cannot be reached must not keep its device
        self._losses += 1
        label = member.role.label
        lines = str(error).strip().splitlines()
        log.warning("a %s at %s is lost: %s", label, member.where or "its start", lines[0] if lines else "")
        if self._losses > MAX_LOSSES:
            raise PluginError(f"{self._losses} actors were lost in a row, without a result; last: {error}")
        if not isinstance(error, RayActorError):
            raise PluginError(f"a {label} could not start: {error}")
        self._start(member.role)

    def stop(self, role: type[WorkerActor]) -> None:
        """Ends all actors of a role."""
        for member in [*self.members, *self._pending.values()]:
            if member.role is role:
                ray.kill(member.actor)
        self.members = [member for member in self.members if member.role is not role]
        self._pending = {key: member for key, member in self._pending.items() if member.role is not role}
        self._checks = {key: member for key, member in self._checks.items() if member.role is not role}
