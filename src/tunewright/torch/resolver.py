"""Decisions about compiled models: from an override, from the store, or tuned in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple

import msgspec
import torch

from tunewright.engine.budget import Budget
from tunewright.errors import StoreError, WriteRefused
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.evaluator import Evaluator
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.key import Key
from tunewright.session import Session, current_session
from tunewright.settings import Mode
from tunewright.torch.candidate import TorchTimingOptions
from tunewright.torch.inductor import adapter, graphs
from tunewright.torch.inductor.kernel_names import OVERRIDDEN
from tunewright.torch.overrides import Overrides
from tunewright.torch.process_state import ProcessState

log = LazyLogger(__name__)


class HostEnvironment(NamedTuple):
    """The parts of a key beside the processor: versions, instruction set, threads, what the process has changed."""

    toolchain: dict[str, str]
    mode: dict[str, str]


def host_environment() -> HostEnvironment:
    """Returns the environment of this process."""
    capability = str(torch.backends.cpu.get_cpu_capability())
    toolchain = {"torch": adapter.VERSION, "c++": graphs.compiler_version()}
    mode = {"isa": capability, "threads": str(torch.get_num_threads()), "regime": "hot"}
    return HostEnvironment(toolchain, mode | ProcessState.read().changes())


class PartDecision(msgspec.Struct, frozen=True):
    """A decision that is in compiled code: its key, and its config as text."""

    key: Key
    config: str


class Resolver:
    """Resolves problems with a session and the user's overrides; `decisions` has the results by name.

    Its searches end with the one that `within` is making, of which they are a part. One that does not tune answers
    with the default where nothing is decided, and adds the name to `missed`. `tuned` has the names that were searched.
    `find_related` is asked first, and may answer with the decision of another key. `prepare` is called before a search.
    """

    def __init__(
        self,
        session: Session | None,
        overrides: Overrides,
        budget: str,
        within: Resolver | None = None,
        *,
        tunes: bool = True,
    ) -> None:
        self._session, self.overrides, self.budget, self._within = session, overrides, budget, within
        self._running: Budget | None = None
        self.tunes = tunes
        self._learned: dict[Key, Decision] = {}
        self.decisions: dict[str, Decision] = {}
        self.missed: list[str] = []
        self.tuned: list[str] = []
        self.prepare: Callable[[], None] = lambda: None
        self.before_search: Callable[[str], None] = lambda name: None
        self.find_related: Callable[[Problem], Decision | None] = lambda problem: None

    @property
    def session(self) -> Session:
        """The given session or that of the process, made to tune in this process."""
        session = self._session or current_session()
        if session.mode is not Mode.TUNE or session.settings.pool == "serial":
            return session
        serial = Session(msgspec.structs.replace(session.settings, pool="serial"), store=session.store)
        serial.counts, serial.listeners, serial.chosen = session.counts, session.listeners, session.chosen
        return serial

    def timing_options(self, sample_seconds: float = 0.0) -> TorchTimingOptions:
        """Returns how candidates are timed in this process."""
        lock = self.session.settings.cache_path / "leases" / "cpu.lock"
        return TorchTimingOptions(torch.get_num_threads(), sample_seconds, lock)

    def __call__(
        self, problem: Problem, names: Sequence[str], make_evaluator: Callable[[], Evaluator], effort: float = 1.0
    ) -> Decision:
        """Returns the decision for a problem; the evaluator is only made if something is measured.

        `effort` is the share of the time left that a search may take. At 0 nothing is measured: unless something is
        decided, the default is returned, which is no decision.
        """
        if effort == 0 and not self._is_decided(problem, names):
            return Decision(problem.key, problem.default, tier=Tier.DEFAULT)
        decision = self._resolve(problem, names, make_evaluator, effort)
        if decision is None:
            self.missed.append(names[-1])
            return Decision(problem.key, problem.default, tier=Tier.DEFAULT)
        self.decisions[names[-1]] = decision
        return decision

    def learn(self, decisions: Mapping[str, Decision]) -> None:
        """Takes in what another process decided; stores it, if that process could not."""
        self._learned |= {decision.key: decision for decision in decisions.values()}
        session = self.session
        for decision in () if session.shares_store else decisions.values():
            try:
                session.store.put(decision, replace=False)
            except (StoreError, WriteRefused) as error:
                log.warning("%s: not stored, and used by this process alone: %s", decision.key.kernel, error)

    def decided_parts(self) -> dict[str, PartDecision]:
        """Returns what was decided so far, by name."""
        return {name: PartDecision(found.key, str(found.config)) for name, found in self.decisions.items()}

    def recall(self, parts: Mapping[str, PartDecision]) -> bool:
        """Whether all of these are still decided in this way; they count as resolved then."""
        stored = self.session.store.get_many([part.key for part in parts.values()]) | self._learned
        found = {name: stored.get(part.key) for name, part in parts.items()}
        same = all(decision and str(decision.config) == parts[name].config for name, decision in found.items())
        if same:
            self.decisions |= {name: decision for name, decision in found.items() if decision}
        return same

    def decision_digest(self, key: Key, names: Sequence[str]) -> str:
        """Returns what kernels are named after: the digest of the decided key, or that an override decided."""
        return OVERRIDDEN if set(names) & self.overrides.used.keys() else key.digest

    def _is_decided(self, problem: Problem, names: Sequence[str]) -> bool:
        """Whether an override, another process or the store has decided a problem."""
        known = self.overrides.config(problem, names) is not None or problem.key in self._learned
        return known or self.session.find_decision(problem) is not None

    def _resolve(
        self, problem: Problem, names: Sequence[str], make_evaluator: Callable[[], Evaluator], effort: float
    ) -> Decision | None:
        if (config := self.overrides.config(problem, names)) is not None:
            return Decision(problem.key, config)
        session = self.session
        if (learned := self._learned.get(problem.key)) is not None and learned.config in problem.space:
            return learned
        if (related := self.find_related(problem)) is not None:
            return related
        if (known := session.lookup_or_policy(problem)) is not None:
            return known if known.config in problem.space else Decision(problem.key, problem.default)
        if not self.tunes:
            return None
        self.tuned.append(names[-1])
        self.before_search(names[-1])
        began = monotonic()
        self.prepare()
        budget, evaluator = self._make_budget(effort, monotonic() - began), make_evaluator()
        self._running = budget
        try:
            return session.tune_once(problem, lambda: session.tune(problem, evaluator, budget=budget, replace=False))
        finally:
            self._running = None

    def _make_budget(self, effort: float = 1.0, spent: float = 0.0) -> Budget:
        """Returns the budget of a search without the seconds `spent` before it.

        It has no more than this share of what the search around it can spare.
        """
        budget = Budget.parse(self.budget)
        if budget.seconds is not None:
            budget.seconds = max(0.0, budget.seconds - spent)
        if self._within is not None and self._within._running is not None:
            left = effort * max(0.0, self._within._running.left_for_part())
            budget.seconds = left if budget.seconds is None else min(left, budget.seconds)
        return budget
