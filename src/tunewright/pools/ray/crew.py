"""Crew: the actors of one pool: hired, watched, replaced when they are lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayActorError, RayError

from tunewright.errors import PluginError
from tunewright.pools.ray.actors import Actor, Builder, Station
from tunewright.pools.ray.cluster import Demand, processors
from tunewright.remarks import Remarks

log = Remarks(__name__)

START_SECONDS = 120.0
"""How long an actor may take to be placed and to begin."""

EVERY = 5.0
"""Seconds from one question whether an actor is well to the next."""

SILENCE = 60.0
"""Seconds after which one that does not answer, or whose worker cannot be ended, is given up."""

MOST_LOSSES = 20
"""Actors lost in a row, with no result between, after which something is wrong with more than an actor."""

Job = TypeVar("Job")


@dataclass(eq=False)
class Member(Generic[Job]):
    """One actor and what it was given, oldest first; the others wait for the first."""

    actor: Any
    role: type[Actor]
    hired: float
    where: str = ""
    pid: int = 0
    jobs: list[Job] = field(default_factory=list)
    trusted: bool = False
    ran: Job | None = None
    hung: bool = False
    asked: float = 0.0


class Crew(Generic[Job]):
    """A station for each device there is, at most `width`; and builders on processors that are free."""

    def __init__(self, errand: bytes, kind: str, width: int) -> None:
        self._errand, self._demand = errand, Demand(kind)
        self._pending: dict[Any, Member[Job]] = {}
        self._pulses: dict[Any, Member[Job]] = {}
        self._losses = 0
        self.members: list[Member[Job]] = []
        for _ in range(min(width, self._demand.count())):
            self._hire(Station)
        for _ in range(min(width, processors()) if width > 1 else 0):
            self._hire(Builder)

    def _hire(self, role: type[Actor]) -> None:
        where = self._demand.options() if role is Station else {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        # A method that is asked how it goes must answer while another works.
        made = ray.remote(concurrency_groups={"watch": 1}, **where)(role)
        member: Member[Job] = Member(made.remote(self._errand), role, time.monotonic())
        self._pending[member.actor.ready.remote()] = member

    @property
    def references(self) -> list[Any]:
        """What may be heard of besides results."""
        return [*self._pending, *self._pulses]

    def hear(self, reference: Any) -> bool:
        """Take in an answer: a member that begins, or is well; False if it is neither."""
        if (member := self._pending.pop(reference, None)) is not None:
            try:
                member.where, member.pid = ray.get(reference)
                self.members.append(member)
            except RayError as error:
                self.lose(member, error)
            return True
        if (member := self._pulses.pop(reference, None)) is None:
            return False
        try:
            overdue = ray.get(reference)
        except RayError:
            return True  # what it was given says so too
        if overdue > SILENCE:
            member.hung = True
            self._give_up(member, f"its worker cannot be ended, {overdue:.0f} s past its deadline")
        return True

    def look(self) -> None:
        """Ask the busy how they are; give up who does not answer or does not begin."""
        now = time.monotonic()
        for member in self.members:
            if member in self._pulses.values():
                if now - member.asked > SILENCE:
                    self._give_up(member, f"it has not answered for {SILENCE:.0f} s")
            elif member.jobs and now - member.asked > EVERY:
                member.asked = now
                self._pulses[member.actor.overdue.options(concurrency_group="watch").remote()] = member
        for reference, member in list(self._pending.items()):
            if now - member.hired > START_SECONDS:
                del self._pending[reference]
                ray.kill(member.actor)
                log.warning("a %s found no free place in %.0f s", member.role.__name__.lower(), START_SECONDS)
        if not self.of(Station) and not any(member.role is Station for member in self._pending.values()):
            raise PluginError(
                f"no device of kind {self._demand.kind or 'this machine'!r} became free in {START_SECONDS:.0f} s; "
                "see `ray status` for who holds them. What was tried is kept: run the same again"
            )

    def _give_up(self, member: Member[Job], reason: str) -> None:
        log.warning("a %s at %s is given up: %s", member.role.__name__.lower(), member.where, reason)
        self._pulses = {reference: one for reference, one in self._pulses.items() if one is not member}
        member.asked = time.monotonic()
        ray.kill(member.actor)

    def of(self, role: type[Actor]) -> list[Member[Job]]:
        """Those who have begun."""
        return [member for member in self.members if member.role is role]

    def free(self, role: type[Actor], depth: int) -> Member[Job] | None:
        """The one with least to do, if it has less than `depth`."""
        found = min(self.of(role), key=lambda member: len(member.jobs), default=None)
        return found if found is not None and len(found.jobs) < depth else None

    @property
    def can_build(self) -> bool:
        """Whether there are builders, or some will begin."""
        return any(member.role is Builder for member in (*self.members, *self._pending.values()))

    def worked(self) -> None:
        """Note that a result came."""
        self._losses = 0

    def lose(self, member: Member[Job], error: RayError) -> None:
        """Replace a member that is gone."""
        if member not in self.members and member.where:
            return  # each of its jobs says so
        member.ran = member.jobs[0] if member.jobs else None
        self.members = [one for one in self.members if one is not member]
        self._pulses = {reference: one for reference, one in self._pulses.items() if one is not member}
        ray.kill(member.actor)  # one that only cannot be reached must not keep its device
        self._losses += 1
        name = member.role.__name__.lower()
        said = str(error).strip().splitlines()
        log.warning("a %s at %s is lost: %s", name, member.where or "its start", said[0] if said else "")
        if self._losses > MOST_LOSSES:
            raise PluginError(f"{self._losses} actors were lost in a row, with no result; last: {error}")
        if not isinstance(error, RayActorError):
            raise PluginError(f"a {name} could not begin: {error}")
        self._hire(member.role)

    def dismiss(self, role: type[Actor]) -> None:
        """End all of a role."""
        for member in [*self.members, *self._pending.values()]:
            if member.role is role:
                ray.kill(member.actor)
        self.members = [member for member in self.members if member.role is not role]
        self._pending = {key: member for key, member in self._pending.items() if member.role is not role}
        self._pulses = {key: member for key, member in self._pulses.items() if member.role is not role}
