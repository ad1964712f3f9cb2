"""Deciding: what all choices about compiled models share: told by the user, remembered, or raced in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch

from tunewright.backends.inductor import adapter, graphs
from tunewright.backends.inductor.names import TOLD
from tunewright.engine.budget import Budget
from tunewright.fronts.torch.attempt import Attempt, Surroundings
from tunewright.fronts.torch.overrides import Overrides
from tunewright.measure.clock import Restore
from tunewright.model.decision import Decision, Problem
from tunewright.session import Session, current_session
from tunewright.settings import Mode


class Machine(NamedTuple):
    """What a choice rests on beside the processor: versions, instruction set, threads."""

    toolchain: dict[str, str]
    mode: dict[str, str]


def machine() -> Machine:
    """What is here."""
    capability = str(torch.backends.cpu.get_cpu_capability())
    toolchain = {"torch": adapter.VERSION, "c++": graphs.compiler()}
    return Machine(toolchain, {"isa": capability, "threads": str(torch.get_num_threads()), "regime": "hot"})


class Deciding:
    """A session that decides here, with what the user told; `decisions` are those made or looked up, by name."""

    def __init__(self, session: Session | None, overrides: Overrides, budget: str) -> None:
        self._given, self.overrides, self._budget = session, overrides, budget
        self.decisions: dict[str, Decision] = {}

    @property
    def session(self) -> Session:
        """The one given, else the process's; it tunes in this process."""
        session = self._given or current_session()
        if session.mode is not Mode.TUNE or session.settings.pool == "serial":
            return session
        own = Session(msgspec.structs.replace(session.settings, pool="serial"), store=session.store)
        own.counts, own.listeners, own.chosen = session.counts, session.listeners, session.chosen
        return own

    def surroundings(self, restore: Restore | None = None, **more: float) -> Surroundings:
        """What trials need."""
        device = self.session.settings.cache_path / "leases" / "cpu.lock"
        return Surroundings(torch.get_num_threads(), restore, device, **more)

    def __call__(self, problem: Problem, names: Sequence[str], attempt: Callable[[], Any]) -> Decision:
        """The decision for a problem known by these names; an attempt is only made where something is measured."""
        decision = self._found(problem, names, attempt)
        self.decisions[names[-1]] = decision
        return decision

    def trace(self, problem: Problem, names: Sequence[str]) -> str:
        """What kernels are named after: the digest of the key that was decided, unless the user did."""
        return TOLD if set(names) & self.overrides.used.keys() else problem.key.digest

    def _found(self, problem: Problem, names: Sequence[str], attempt: Callable[[], Any]) -> Decision:
        if (told := self.overrides.config(problem, names)) is not None:
            return Decision(problem.key, told)
        session = self.session
        if (known := session.answer(problem)) is not None:
            return known if known.config in problem.space else Decision(problem.key, problem.default)
        budget = Budget.parse(self._budget)
        tried: Attempt = attempt()
        return session.led(problem, lambda: session.tune(problem, tried, budget=budget, replace=False))
