"""Session: resolves problems with a store, a mode, a budget and a strategy."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Unpack

import msgspec
import numpy as np

from tunewright.engine.budget import Budget
from tunewright.engine.decide import Adjudicator, FinalRace, ProgramRace
from tunewright.engine.final import Final
from tunewright.engine.journal import Journal
from tunewright.engine.search_loop import Search, search, with_search_notes
from tunewright.engine.stopping import StoppingRule
from tunewright.errors import DeviceLost, NoDecision, StoreError, WireError, WriteRefused
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.evaluator import Limits
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.event import DecisionMade, Event, Listener, LookupMissed, SearchStarted, TrialFinished
from tunewright.model.key import Key
from tunewright.ports import plugins
from tunewright.ports.pool import Attempt, Pool
from tunewright.ports.store import Store
from tunewright.ports.strategy import AcceptsPrior, Strategy
from tunewright.report.live import shows_progress
from tunewright.settings import Mode, Settings, SettingsOptions
from tunewright.spaces.config import Config
from tunewright.stores import fallback
from tunewright.stores.artifact_provider import ArtifactProvider
from tunewright.stores.cache_folder import CacheFolder
from tunewright.stores.capabilities import SupportsConsensus
from tunewright.stores.choice_digest import Choices, digest
from tunewright.stores.memory import MemoryStore
from tunewright.stores.misses import MissRecorder
from tunewright.stores.prior import collect_prior
from tunewright.stores.seal import SEAL

log = LazyLogger(__name__)


class Session:
    """Answers tuning problems with decisions, from a store or by searching.

    `settings` are those given, or are read from the keyword arguments, the environment and `tunewright.toml`.
    `counts` has the number of answers by tier (`exact`, `bucket`, ... `default`), of `searches`, of `measurements`
    (configs that were really tried) and of `replayed` trials.

    Example: `Session(mode="frozen", store="decisions.sqlite")`
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        listeners: Iterable[Listener] = (),
        **options: Unpack[SettingsOptions],
    ) -> None:
        location, opened = (store, None) if isinstance(store, str | os.PathLike) else (None, store)
        self.settings = settings or Settings.read(store=location, **options)
        self.counts: Counter[str] = Counter()
        self.chosen: dict[Key, Config] = Choices()
        self.listeners: list[Listener] = [self._count, *listeners]
        self.misses = MissRecorder(lambda: self.store)  # used in the mode that records misses
        self._store: Store | None = opened and self.checked(opened)
        self.shares_store = opened is None and not self.settings.store.startswith("memory:")  # with other processes
        self._unpublished: dict[Key, Decision] = {}
        self.wrap_strategy: Callable[..., Strategy] = lambda space, strategy: strategy  # adds proposals from outside
        self._lock = Lock()
        self._cached_lookups: fallback.CachedLookups | None = None
        self._artifacts: ArtifactProvider | None = None
        self._cache = CacheFolder(self.settings.cache_path)

    @property
    def store(self) -> Store:
        """The store that the settings name, cached in memory and opened on first use."""
        with self._lock:
            if self._store is None:
                from tunewright.stores import locations  # noqa: PLC0415 - few processes need most of them

                settings, location = self.settings, self.settings.store_location
                if not settings.store and self._cache.is_read_only and not Path(location).exists():
                    self._cache.warn()
                    location = "memory:"
                mirrors = settings.is_enabled("mirrors")
                self._store = locations.open_cached(location, settings.cache_path, mirrors=mirrors, wrap=self.checked)
            return self._store

    def checked(self, store: Store) -> Store:
        """Returns a store whose decisions are signed and checked as the settings say."""
        signers, key = self.settings.signers, self.settings.signing_key
        if not signers and not key:
            return store
        from tunewright.stores.signed import SignedStore, Trust  # noqa: PLC0415 - needs `cryptography`

        return SignedStore(store, Trust.read(signers, key))

    @property
    def cache(self) -> Path:
        """The folder that build results are written to: a temporary one if the cache cannot be written."""
        return self._cache.writable

    @property
    def artifacts(self) -> ArtifactProvider:
        """The prebuilt artifacts for backends that launch kernels here."""
        if self._artifacts is None:
            adopts = self.mode is not Mode.TUNE
            self._artifacts = ArtifactProvider(lambda: self.store, self._cache, self.counts, adopts=adopts)
        return self._artifacts

    @property
    def choice(self) -> str:
        """A digest of all configs chosen so far; equal on all ranks that run the same configs."""
        return digest(self.chosen.items())

    @property
    def mode(self) -> Mode:
        """What happens when no decision is stored."""
        return Mode(self.settings.mode)

    @property
    def limits(self) -> Limits:
        """The limits of one trial."""
        settings = self.settings
        return Limits(settings.build_seconds, settings.run_seconds, settings.memory_mb << 20)

    def budget(self) -> Budget:
        """Returns a new budget with the limits of the settings."""
        return Budget(self.settings.trials or None, self.settings.seconds or None)

    def emit(self, event: Event) -> None:
        """Sends an event to all listeners."""
        for listen in self.listeners:
            listen(event)

    def _count(self, event: Event) -> None:
        if isinstance(event, TrialFinished):
            self.counts["replayed" if event.replayed else "measurements"] += 1
        elif isinstance(event, SearchStarted):
            self.counts["searches"] += 1

    def resolve(self, problem: Problem, attempt: Attempt) -> Decision:
        """Returns the stored decision for `problem`, or does what the mode says."""
        decision = self.lookup_or_policy(problem)
        return decision or self.tune_once(problem, lambda: self.tune(problem, attempt, replace=False))

    def lookup_or_policy(self, problem: Problem) -> Decision | None:
        """Returns the decision that needs no measurement: stored, or the mode's fallback. None means: tune."""
        if (mode := self.mode) is Mode.OFF:
            return self._record_answer(problem, None)
        similar = mode in (Mode.FROZEN, Mode.RECORD) and self.settings.is_enabled("neighbours")
        stored = self.find_decision(problem, allow_similar=similar)
        if mode is Mode.TUNE:
            return self._record_answer(problem, stored) if stored is not None and _complete(stored) else None
        if mode is Mode.STRICT and stored is None:
            raise NoDecision(fallback.describe_miss(self.store, problem.key))
        return self._record_answer(problem, stored)

    def lookup(self, problem: Problem) -> Decision:
        """Returns the nearest stored decision or the default in any mode; never measures."""
        return self._record_answer(problem, self.find_decision(problem, allow_similar=True))

    def serve(self, problem: Problem, decision: Decision) -> Decision:
        """Answers with the decision of a similar key, and counts and logs it as such."""
        return self._record_answer(problem, decision.replace(tier=Tier.NEAREST))

    def _record_answer(self, problem: Problem, stored: Decision | None) -> Decision:
        """Counts the answer by its tier, logs a miss, and returns the answer."""
        answer = stored or Decision(problem.key, problem.default, tier=Tier.DEFAULT)
        if self.mode is not Mode.OFF and isinstance(self.store, SupportsConsensus):
            answer = self.store.agree_on(problem.key, answer)
        self.counts[str(answer.tier)] += 1
        self.chosen[problem.key] = answer.config
        if answer.tier is Tier.RULE:
            log.info("%s", fallback.describe_fallback(self.store, problem, answer))
        elif answer.tier not in fallback.SAME_QUESTION_TIERS and self.mode is not Mode.OFF:
            message = fallback.describe_fallback(self.store, problem, answer)
            SEAL.check("misses", message.rstrip("."))
            log.warning("%s", message)
            self.emit(LookupMissed(problem.key, answer.tier))
        return answer

    def find_decision(self, problem: Problem, *, allow_similar: bool = False) -> Decision | None:
        """Returns the stored decision for this key, under any alias of its device, or for a similar key if allowed."""
        if (unpublished := self._unpublished.get(problem.key)) is not None:
            return unpublished
        try:
            return fallback.find_decision(
                self._lookup_store, problem, self.settings.aliases, allow_similar=allow_similar
            )
        except (StoreError, WireError) as error:
            log.warning("the store is skipped: %s", error)
            return None

    @property
    def _lookup_store(self) -> Store | fallback.CachedLookups:
        """The store for look-ups: modes that never tune also remember misses."""
        if self.mode is Mode.TUNE:
            return self.store
        if self._cached_lookups is None:
            self._cached_lookups = fallback.CachedLookups(self.store)
        return self._cached_lookups

    def warm(self, problems: Iterable[Problem]) -> int:
        """Reads the decisions for many problems at once, and returns how many problems have one."""
        problems = list(problems)
        keys = dict.fromkeys(key for problem in problems for key in (problem.exact or problem.key, problem.key))
        stored = self._lookup_store.get_many(list(keys))
        return sum(problem.key in stored or problem.exact in stored for problem in problems)

    def tune_once(self, problem: Problem, search: Callable[[], Decision]) -> Decision:
        """Returns the decision of `search`, or that of another process which searches the same key."""
        if not self.settings.is_enabled("flights"):
            return search()
        from tunewright.stores.singleflight import SingleFlight  # noqa: PLC0415 - only needed for tuning

        max_wait = self.settings.tuning_wait_seconds
        flight = SingleFlight(self.store, f"tune {problem.key.digest}", max_wait=max_wait)

        def published() -> Decision | None:
            stored = self.find_decision(problem)
            return stored if stored is not None and _complete(stored) else None

        decision = flight.run(search, published)
        if decision is None:
            log.warning("%s: another process is still tuning; continuing after %g s", problem.key.kernel, max_wait)
            return self.lookup(problem)
        return decision

    @shows_progress
    def tune(
        self,
        problem: Problem,
        attempt: Attempt,
        *,
        budget: Budget | None = None,
        fresh: bool = False,
        replace: bool = True,
        program: ProgramRace | None = None,
    ) -> Decision:
        """Searches `problem` and stores the decision; if interrupted, decides by its own trials so far and says so.

        Trials of earlier runs are reused unless `fresh`; only what was judged in this run is decided. A winner that
        makes the `program` slower is rejected. Without `replace`, a decision that another process has published
        meanwhile stays.
        """
        SEAL.check("measurements", f"{problem.key.kernel} was about to be tuned")
        settings, budget = self.settings, budget or self.budget()
        earlier = fallback.readable_decision(self.store, problem.key)
        incumbent = earlier.config if earlier is not None and earlier.config in problem.space else None
        replace = replace or (earlier is not None and incumbent is None)  # one that is not in the space is no answer
        pool: Pool = plugins.load("pools", settings.pool_name)(*settings.pool_arguments)
        plan = self._plan(problem, budget, incumbent, attempt, fresh=fresh)
        problem, journal, resumed = plan.problem, plan.journal, len(plan.journal.known)
        self.emit(SearchStarted(problem, settings.strategy, plan.max_trials(), budget.seconds, resumed))
        proven = incumbent if earlier is not None and _complete(earlier) else None  # else it does not stay on a tie
        adjudicator = Adjudicator(problem, journal, proven, bitwise=settings.deterministic)
        final = Final(adjudicator, attempt, self.emit, settings.seed, budget)
        interrupted: KeyboardInterrupt | None = None
        _tell_crashed(attempt, journal)
        try:
            search(plan, attempt, pool)
            decision = final.decide(program)
        except KeyboardInterrupt as stop:
            interrupted = stop
            decision = final.decide_interrupted(stop, program=program is not None)
        except DeviceLost as lost:
            journal.trying.blame(lost.config, lost.reason)
            raise
        finally:
            journal.trying.close()
            pool.close()
        decided = _with_provenance(with_search_notes(decision, plan), settings, complete=interrupted is None)
        compared = incumbent is None or incumbent in journal.judged
        decision = self._publish(decided, earlier, replace=replace, compared=compared)
        if interrupted:
            raise interrupted
        if final.raced is not None and decision == decided and decided.key not in self._unpublished:
            self._keep_transcript(problem, decided, final.raced, proven, attempt)
        return decision

    @property
    def _marks(self) -> Path | None:
        """The folder of the marks "trying"; None on other machines, and for a store that ends with the process."""
        settings = self.settings
        volatile = isinstance(self.store, MemoryStore) or settings.store.startswith("memory:")
        return None if volatile or settings.pool_name not in ("serial", "process") else settings.cache_path / "trying"

    def _keep_transcript(
        self, problem: Problem, decision: Decision, raced: FinalRace, incumbent: Config | None, attempt: Attempt
    ) -> None:
        """Stores the transcript of the race behind a decision."""
        from tunewright.stores import transcripts  # noqa: PLC0415 - only needed for tuning

        transcript = transcripts.make_transcript(problem, decision, raced, incumbent, attempt)
        transcripts.keep_transcript(self.store, transcript)

    def _plan(
        self, problem: Problem, budget: Budget, incumbent: Config | None, attempt: Attempt, *, fresh: bool
    ) -> Search:
        """Returns the search: incumbent, seeds and configs of related keys first, then the strategy's proposals."""
        make, rng = plugins.load("strategies", self.settings.strategy), np.random.default_rng(self.settings.seed)
        strategy = make(problem.space, rng)
        related = collect_prior(self.store, problem)
        if isinstance(strategy, AcceptsPrior):
            strategy.inform(related.prior)
        strategy = self.wrap_strategy(problem.space, strategy)
        incumbents = () if incumbent is None else (incumbent,)
        problem = msgspec.structs.replace(problem, seeds=(*incumbents, *related.order_seeds(problem.seeds)))
        isolated = self.settings.pool_name != "serial" or getattr(attempt, "is_isolated", False)
        journal = Journal(self.store, problem, self.emit, fresh=fresh, marks=self._marks, isolated=isolated)
        return Search(problem, strategy, budget, StoppingRule(strategy, self.settings.min_expected_gain), journal)

    def _publish(self, decision: Decision, earlier: Decision | None, *, replace: bool, compared: bool) -> Decision:
        """Stores the decision, unless the machine was too noisy for the resolution that the settings require.

        An interrupted search replaces no decision of a complete one, and none that it was not `compared` with.
        """
        measured, required = decision.evidence and decision.evidence.resolution, self.settings.resolution
        if stored := not (required and measured and measured > required):
            self._unpublished.pop(decision.key, None)
        else:
            self._unpublished[decision.key] = decision
        if earlier is not None and not _complete(decision) and (_complete(earlier) or not compared):
            decision = earlier
        elif stored:
            decision, stored = self._put(decision, replace=replace and earlier is not None)
        else:
            message = "%s: not stored: the race could tell %.2g %% apart, %.2g %% is required; see `tunewright noise`"
            log.warning(message, decision.key.kernel, 100 * (measured or 0.0), 100 * required)
        self.chosen[decision.key] = decision.config
        self.emit(DecisionMade(decision, stored))
        return decision

    def _put(self, decision: Decision, *, replace: bool) -> tuple[Decision, bool]:
        """Stores a decision and returns the current one; one that the store refuses is used by this process alone."""
        try:
            # Of processes that tune the same key, the first to publish a complete search wins.
            current = self.store.put(decision, replace=replace)
            return current if _complete(current) else self.store.put(decision), True
        except WriteRefused as error:
            log.warning("%s: not stored, and used by this process alone: %s", decision.key.kernel, error)
            self._unpublished[decision.key] = decision
            return decision, False


def _tell_crashed(attempt: Attempt, journal: Journal) -> None:
    """Tells an attempt that runs configs by itself, such as the default, which to avoid, and how to report one."""
    if avoid := getattr(attempt, "avoid", None):
        avoid(journal.crashed)
    if blame_by := getattr(attempt, "blame_by", None):
        blame_by(journal.add)


def _complete(decision: Decision) -> bool:
    return decision.evidence is None or decision.evidence.complete


def _with_provenance(decision: Decision, settings: Settings, *, complete: bool) -> Decision:
    """Adds strategy, seed, versions and whether the search ran to its end."""
    from importlib.metadata import version  # noqa: PLC0415 - slow to import, and needed only after a search

    assert decision.evidence is not None
    notes = decision.evidence.notes if complete else (*decision.evidence.notes, "the search was interrupted")
    evidence = msgspec.structs.replace(
        decision.evidence,
        strategy=settings.strategy,
        seed=settings.seed,
        complete=complete,
        versions={"tunewright": version("tunewright")},
        notes=notes,
    )
    return decision.replace(evidence=evidence)


_default: Session | None = None


def current_session() -> Session:
    """Returns this process's session, made from the settings on first use.

    Example: `current_session().counts["default"]`
    """
    return _default or configure()


def configure(*, store: Store | str | os.PathLike[str] | None = None, **options: Unpack[SettingsOptions]) -> Session:
    """Replaces this process's session by one with these settings, and returns it.

    Example: `configure(mode="frozen", store="decisions.sqlite")`
    """
    global _default  # noqa: PLW0603 - the one default of a process
    _default = Session(store=store, **options)
    return _default
