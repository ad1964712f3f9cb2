"""Session: where names become plugins, and plugins meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from threading import Lock
from typing import Any

import msgspec
import numpy as np

from tunewright.engine.budget import Budget
from tunewright.engine.decide import decide, finalists
from tunewright.engine.journal import Journal
from tunewright.engine.run import search
from tunewright.errors import NoDecision, NothingWorked, SpaceError, StoreError
from tunewright.measure.attempt import Limits
from tunewright.measure.race import Race, Terms
from tunewright.model.config import Config
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.event import Decided, Event, Listener, Missed, Raced, Started, Tried
from tunewright.model.key import Key
from tunewright.ports import plugins
from tunewright.ports.pool import Attempt, Pool
from tunewright.ports.store import Store
from tunewright.remarks import Remarks
from tunewright.settings import Mode, Settings
from tunewright.stores.layers import Layers
from tunewright.stores.memory import MemoryStore

log = Remarks(__name__)


class Session:
    """A store, a mode, a budget and a way to search: answers problems with decisions.

    `counts` says what happened: `hits` and `misses` of the store, `defaults` served for want of a decision,
    `searches` made, and `measurements`, the configs that were really tried.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store: Store | str | None = None,
        listeners: Iterable[Listener] = (),
        **given: Any,
    ) -> None:
        if isinstance(store, str):
            given, store = {**given, "store": store}, None
        self.settings = settings or Settings.read(**given)
        self.counts: Counter[str] = Counter()
        self.listeners: list[Listener] = [self._count, *listeners]
        self._store = store
        self._lock = Lock()

    @property
    def store(self) -> Store:
        """Memory over the store that the settings name, opened on first use."""
        with self._lock:
            if self._store is None:
                self._store = Layers(MemoryStore(), open_store(self.settings.store_location))
            return self._store

    @property
    def mode(self) -> Mode:
        """What happens when nothing is decided."""
        return Mode(self.settings.mode)

    @property
    def limits(self) -> Limits:
        """What one attempt may cost."""
        settings = self.settings
        return Limits(settings.build_seconds, settings.run_seconds, settings.memory_mb << 20)

    def budget(self) -> Budget:
        """A fresh budget, as the settings say."""
        return Budget(self.settings.trials or None, self.settings.seconds or None)

    def emit(self, event: Event) -> None:
        """Tell every listener."""
        for listen in self.listeners:
            listen(event)

    def _count(self, event: Event) -> None:
        if isinstance(event, Tried):
            self.counts["replayed" if event.replayed else "measurements"] += 1
        elif isinstance(event, Started):
            self.counts["searches"] += 1
        elif isinstance(event, Missed):
            self.counts["defaults"] += 1

    def resolve(self, problem: Problem, attempt: Attempt) -> Decision:
        """The decision for `problem`: stored if there is one, else what the mode says."""
        return self.answer(problem) or self.tune(problem, attempt)

    def answer(self, problem: Problem) -> Decision | None:
        """What can be said without measuring: a stored decision, or what the mode says; None means: tune."""
        if self.mode is Mode.OFF:
            return Decision(problem.key, problem.default, tier=Tier.DEFAULT)
        if (stored := self.look_up(problem)) is not None and (self.mode is not Mode.TUNE or _complete(stored)):
            return stored
        if self.mode is Mode.STRICT:
            raise NoDecision(self._missing(problem))
        if self.mode is Mode.FROZEN:
            log.warning("%s: the default is used; %s", problem.key.kernel, self._missing(problem))
            self.emit(Missed(problem.key, Tier.DEFAULT))
            return Decision(problem.key, problem.default, tier=Tier.DEFAULT)
        return None

    def known(self, problem: Problem) -> Decision:
        """The stored decision or the default, whatever the mode: for places where nothing may be measured."""
        return self.look_up(problem) or Decision(problem.key, problem.default, tier=Tier.DEFAULT)

    def look_up(self, problem: Problem) -> Decision | None:
        """The stored decision, if its config is still in the space."""
        try:
            stored = self.store.get(problem.key)
        except StoreError as error:
            log.warning("the store is passed over: %s", error)
            stored = None
        if stored is not None and (problems := problem.space.objections(stored.config)):
            log.info("%s: a stored decision is passed over: %s", problem.key.kernel, "; ".join(problems))
            stored = None
        self.counts["misses" if stored is None else "hits"] += 1
        return stored

    def tune(
        self, problem: Problem, attempt: Attempt, *, budget: Budget | None = None, fresh: bool = False
    ) -> Decision:
        """Search `problem`, decide and remember. Interrupted, it keeps what was found, and says so in the decision.

        Trials of an earlier run are not repeated, unless `fresh`.
        """
        settings = self.settings
        budget = budget or self.budget()
        strategy = plugins.load("strategies", settings.strategy)(problem.space, np.random.default_rng(settings.seed))
        pool: Pool = plugins.load("pools", settings.pool)(settings.width)
        earlier = self.store.get(problem.key)
        if earlier is not None and earlier.config in problem.space:
            problem = msgspec.structs.replace(problem, seeds=(earlier.config, *problem.seeds))
        journal = Journal(self.store, problem, self.emit, fresh=fresh)
        most = _at_most(problem, budget)
        self.emit(Started(problem, settings.strategy, most, budget.seconds, len(journal.known)))
        incumbent = earlier.config if earlier else None
        interrupted: KeyboardInterrupt | None = None
        raced = None
        try:
            search(problem, strategy, attempt, pool=pool, budget=budget, journal=journal)
            raced = self._race(problem, attempt, journal, incumbent)
        except KeyboardInterrupt as stop:
            interrupted = stop
        finally:
            pool.close()
        try:
            decision = decide(problem, journal.trials, incumbent, raced)
        except NothingWorked:
            if interrupted:
                raise interrupted from None
            raise
        decision = _signed_off(decision, settings, complete=interrupted is None)
        # Of processes that tuned the same at once, the first to publish a whole search speaks for all.
        standing = self.store.put(decision, replace=earlier is not None)
        decision = standing if _complete(standing) else self.store.put(decision)
        self.emit(Decided(decision))
        if interrupted:
            raise interrupted
        return decision

    def _race(
        self, problem: Problem, attempt: Attempt, journal: Journal, incumbent: Config | None
    ) -> tuple[list[Config], Race] | None:
        """The finalists and how they raced; None where there is nothing to race, or the attempt cannot."""
        configs = finalists(problem, journal.trials, incumbent)
        if len(configs) < 2 or not hasattr(attempt, "race"):
            return None
        self.emit(Raced(len(configs)))
        # No longer than a quarter of what the search took: a race is there to settle it, not to repeat it.
        allowed = min(Terms().seconds, max(1.0, journal.elapsed() / 4))
        race: Race | None = attempt.race(configs, Terms(seconds=allowed, seed=self.settings.seed))
        if race is None or not race.tested:
            log.warning("%s: the race of the finalists did not end; their trials decide", problem.key.kernel)
            return None
        return configs, race

    def _missing(self, problem: Problem) -> str:
        """What is missing, and how the nearest stored key differs."""
        said = f"{problem.key.kernel}: nothing is decided for {problem.key.signature}"
        if near := self.nearest(problem.key, 1):
            _, differences = near[0]
            fields = ", ".join(f"{name} is {mine}, stored {theirs}" for name, (mine, theirs) in differences.items())
            said += f"; the nearest stored key differs: {fields}"
        return f'{said}. Tune it with mode="tune" or `tunewright tune`.'

    def nearest(self, key: Key, count: int = 3) -> list[tuple[Decision, dict[str, tuple[str, str]]]]:
        """The stored decisions of the same kernel that differ from `key` in the fewest fields, and in which."""
        try:
            stored = [decision for decision in self.store.decisions(key.kernel) if decision.key != key]
        except StoreError:
            return []
        apart = [(decision, key.differences(decision.key)) for decision in stored]
        return sorted(apart, key=lambda pair: (len(pair[1]), _distance(key, pair[0].key), pair[0].key.digest))[:count]


def _complete(decision: Decision) -> bool:
    return decision.evidence is None or decision.evidence.complete


def _distance(one: Key, other: Key) -> float:
    """How far apart the named sizes of two keys are, as the sum of their ratios' logarithms."""
    both = one.signature.dims.keys() & other.signature.dims.keys()
    sizes = [(one.signature.dims[name] or 1, other.signature.dims[name] or 1) for name in both]
    return sum(abs(float(np.log(mine / theirs))) for mine, theirs in sizes)


def _at_most(problem: Problem, budget: Budget) -> int | None:
    """How many trials the search can make: the budget's, or all configs there are."""
    try:
        return min(budget.trials or problem.space.size, problem.space.size)
    except SpaceError:
        return budget.trials


_default: Session | None = None


def current_session() -> Session:
    """This process's session, made from the settings on first use."""
    return _default or configure()


def configure(**given: Any) -> Session:
    """Replace this process's session by one with the settings given: `configure(mode="frozen")`."""
    global _default  # noqa: PLW0603 - the one default of a process
    from tunewright.report.progress import Progress  # noqa: PLC0415 - sessions of one's own may do without

    _default = Session(listeners=[Progress()], **given)
    return _default


def open_store(location: str) -> Store:
    """The store at `location`: a path is SQLite's, `name:...` belongs to the store plugin of that name."""
    scheme, colon, _ = location.partition(":")
    name = scheme if colon and len(scheme) > 1 else "sqlite"
    store: Store = plugins.load("stores", name).at(location)
    return store


def _signed_off(decision: Decision, settings: Settings, *, complete: bool) -> Decision:
    """The decision with what only the session knows: strategy, seed, versions, and whether it ran to the end."""
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
    return msgspec.structs.replace(decision, evidence=evidence)
