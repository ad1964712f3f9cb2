"""Session: where names become plugins, and plugins meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

import msgspec
import numpy as np

from tunewright.engine.budget import Budget
from tunewright.engine.decide import Program, Raced, Verdict, noted
from tunewright.engine.journal import Journal
from tunewright.engine.run import Search, search
from tunewright.engine.stopping import Stopping
from tunewright.errors import NoDecision, NothingWorked, SpaceError, StoreError, WireError
from tunewright.measure.attempt import Limits
from tunewright.measure.race import Race, Terms
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.event import Decided, Event, Final, Listener, Missed, Started, Tried
from tunewright.model.key import Key
from tunewright.ports import plugins
from tunewright.ports.pool import Attempt, Pool
from tunewright.ports.store import Store
from tunewright.ports.strategy import Informed
from tunewright.remarks import Remarks
from tunewright.settings import Mode, Settings
from tunewright.sharing.choices import digest
from tunewright.sharing.nearby import SAME, Settled, answered, missing, served
from tunewright.sharing.offers import Agreement
from tunewright.sharing.prior import gathered, saving
from tunewright.sharing.sealing import SEAL
from tunewright.sharing.supply import Lender
from tunewright.sharing.untuned import Untuned
from tunewright.spaces.config import Config

log = Remarks(__name__)


class Session:
    """A store, a mode, a budget and a way to search: answers problems with decisions.

    `counts` says what happened: answers by their tier (`exact`, `bucket`, ... `default`), `searches` made,
    `measurements`, the configs that were really tried, and `replayed` ones.
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
        self.chosen: dict[Key, Config] = {}
        self.listeners: list[Listener] = [self._count, *listeners]
        self._store = store
        self._unkept: dict[Key, Decision] = {}
        self._lock = Lock()
        self._settled: Settled | None = None
        self._supply: Lender | None = None
        self.untuned = Untuned(lambda: self.store)  # what is called without a decision, in the mode that records it

    @property
    def store(self) -> Store:
        """Memory over the store that the settings name, opened on first use."""
        with self._lock:
            if self._store is None:
                from tunewright.stores import places  # noqa: PLC0415 - most of them few processes need

                said = self.settings
                self._store = places.remembered(said.store_location, said.cache_path, mirrors=said.has("mirrors"))
            return self._store

    @property
    def supply(self) -> Lender:
        """What backends are lent where kernels are launched."""
        if self._supply is None:
            adopts = self.mode is not Mode.TUNE
            self._supply = Lender(lambda: self.store, self.settings.cache_path, self.counts, adopts=adopts)
        return self._supply

    @property
    def choice(self) -> str:
        """A digest over what was chosen here so far: equal on all ranks that run the same configs."""
        return digest(self.chosen.items())

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

    def resolve(self, problem: Problem, attempt: Attempt) -> Decision:
        """The decision for `problem`: stored if there is one, else what the mode says."""
        return self.answer(problem) or self.led(problem, lambda: self.tune(problem, attempt, replace=False))

    def answer(self, problem: Problem) -> Decision | None:
        """What can be said without measuring: the nearest that is stored, or what the mode says; None means: tune."""
        mode = self.mode
        if mode is Mode.OFF:
            return self._told(problem, None)
        stored = self.look_up(problem, like=mode in (Mode.FROZEN, Mode.RECORD) and self.settings.has("neighbours"))
        if mode is Mode.TUNE:
            return self._told(problem, stored) if stored is not None and _complete(stored) else None
        if mode is Mode.STRICT and stored is None:
            raise NoDecision(missing(self.store, problem.key))
        return self._told(problem, stored)

    def known(self, problem: Problem) -> Decision:
        """The nearest stored decision or the default, whatever the mode: for places where nothing may be measured."""
        return self._told(problem, self.look_up(problem, like=True))

    def _told(self, problem: Problem, found: Decision | None) -> Decision:
        """The answer, counted by its tier, and said aloud where it is not an answer to the question itself."""
        answer = found or Decision(problem.key, problem.default, tier=Tier.DEFAULT)
        if self.mode is not Mode.OFF and isinstance(self.store, Agreement):
            answer = self.store.settle(problem.key, answer)
        self.counts[str(answer.tier)] += 1
        self.chosen[problem.key] = answer.config
        if answer.tier not in SAME and self.mode is not Mode.OFF:
            said = served(self.store, problem, answer)
            SEAL.note("misses", said.rstrip("."))
            log.warning("%s", said)
            self.emit(Missed(problem.key, answer.tier))
        return answer

    def look_up(self, problem: Problem, *, like: bool = False) -> Decision | None:
        """The stored decision for this key, under any name of its device; or for one that is `like` it."""
        if (unkept := self._unkept.get(problem.key)) is not None:
            return unkept
        try:
            return answered(self._seen, problem, self.settings.aliases, like=like)
        except (StoreError, WireError) as error:
            log.warning("the store is passed over: %s", error)
            return None

    @property
    def _seen(self) -> Store | Settled:
        """The store as look-ups see it: where nothing is tuned, what was missing once stays so."""
        if self.mode is Mode.TUNE:
            return self.store
        if self._settled is None:
            self._settled = Settled(self.store)
        return self._settled

    def warm(self, problems: Iterable[Problem]) -> int:
        """Read the decisions for many problems in one go, so that calls need the store no more; how many there are."""
        asked = list(problems)
        keys = dict.fromkeys(key for problem in asked for key in (problem.exact or problem.key, problem.key))
        found = self._seen.get_many(list(keys))
        return sum(problem.key in found or problem.exact in found for problem in asked)

    def led(self, problem: Problem, search: Callable[[], Decision]) -> Decision:
        """What `search` decides, or what another process that searches the same decides: one of them is enough."""
        if not self.settings.has("flights"):
            return search()
        from tunewright.sharing.flight import Flight  # noqa: PLC0415 - only where one tunes

        flight = Flight(self.store, f"tune {problem.key.digest}", patience=self.settings.wait)

        def published() -> Decision | None:
            found = self.look_up(problem)
            return found if found is not None and _complete(found) else None

        decision = flight.join(search, published)
        if decision is None:
            log.warning("%s: another process still tunes; going on after %g s", problem.key.kernel, self.settings.wait)
            return self.known(problem)
        return decision

    def tune(
        self,
        problem: Problem,
        attempt: Attempt,
        *,
        budget: Budget | None = None,
        fresh: bool = False,
        replace: bool = True,
        program: Program | None = None,
    ) -> Decision:
        """Search `problem`, decide and remember. Interrupted, it keeps what was found, and says so in the decision.

        Trials of an earlier run are not repeated, unless `fresh`. A winner that makes the `program` slower is refused.
        Who was asked because nothing was decided does not `replace` what another has published since.
        """
        SEAL.note("measurements", f"{problem.key.kernel} was about to be tuned")
        settings, budget = self.settings, budget or self.budget()
        earlier = self.store.get(problem.key)
        incumbent = earlier.config if earlier is not None and earlier.config in problem.space else None
        pool: Pool = plugins.load("pools", settings.pool_name)(*settings.pool_terms)
        plan = self._plan(problem, budget, incumbent, fresh=fresh)
        problem, journal = plan.problem, plan.journal
        self.emit(Started(problem, settings.strategy, _at_most(problem, budget), budget.seconds, len(journal.known)))
        verdict = Verdict(problem, journal, incumbent, bitwise=settings.deterministic)
        interrupted: KeyboardInterrupt | None = None
        raced: Raced | None = None
        try:
            search(plan, attempt, pool)
            broken, raced = self._race(verdict, attempt, journal.elapsed())
            decision = (
                verdict.stands("the race of the finalists broke off")
                if broken
                else verdict.decide(raced, program and self._announced(program))
            )
        except KeyboardInterrupt as stop:
            interrupted = stop
            try:
                decision = verdict.stands("the whole program was not run") if program else verdict.decide(raced)
            except NothingWorked:
                raise stop from None
        finally:
            pool.close()
        made = _signed_off(_foreseen(decision, plan), settings, complete=interrupted is None)
        decision = self._publish(made, earlier, replace=replace)
        if interrupted:
            raise interrupted
        if raced is not None and decision == made and made.key not in self._unkept:
            self._attest(problem, made, raced, incumbent, attempt)
        return decision

    def _attest(
        self, problem: Problem, made: Decision, raced: Raced, incumbent: Config | None, attempt: Attempt
    ) -> None:
        """Keep the transcript of the race that made a decision."""
        from tunewright.sharing import transcripts  # noqa: PLC0415 - only where one tunes

        transcripts.keep(self.store, transcripts.of(problem, made, raced, incumbent, attempt))

    def _plan(self, problem: Problem, budget: Budget, incumbent: Config | None, *, fresh: bool) -> Search:
        """A search of `problem`: what stood, seeds and neighbours' choices first, then what the strategy proposes."""
        strategy = plugins.load("strategies", self.settings.strategy)(
            problem.space, np.random.default_rng(self.settings.seed)
        )
        prior, neighbours = gathered(self.store, problem)
        if isinstance(strategy, Informed):
            strategy.inform(prior)
        standing = () if incumbent is None else (incumbent,)
        problem = msgspec.structs.replace(problem, seeds=(*standing, *problem.seeds, *neighbours))
        journal = Journal(self.store, problem, self.emit, fresh=fresh)
        return Search(problem, strategy, budget, Stopping(strategy, self.settings.worth), journal)

    def _announced(self, program: Program) -> Program:
        """The program, said to be raced before it is."""

        def announced(configs: Sequence[Config]) -> Race:
            self.emit(Final(len(configs), program=True))
            return program(configs)

        return announced

    def _race(self, verdict: Verdict, attempt: Attempt, elapsed: float) -> tuple[bool, Raced | None]:
        """Whether the race of the finalists broke off; who ran and how, if there was anything to race."""
        configs, kept = verdict.finalists()
        if len(configs) < 2 or not hasattr(attempt, "race"):
            return False, None
        self.emit(Final(len(configs)))
        # About a quarter of what the search took: a race is there to settle it, not to repeat it. But enough to tell.
        most = max(min(Terms().seconds, max(2.0, elapsed / 4)), verdict.seconds_for(configs))
        terms = Terms(seconds=most, seed=self.settings.seed, span=min(Terms().seconds, elapsed / 4) / 2)
        race: Race | None = attempt.race(configs, terms, kept)
        name = verdict.problem.key.kernel
        if race is None:
            log.warning(
                "%s: the race of the finalists broke off, one of them crashes or hangs: nothing new is chosen", name
            )
            return bool(kept), None
        if not race.tested:
            log.warning("%s: the race of the finalists was too short to tell; their trials decide", name)
            return False, None
        return False, (configs, race)

    def _publish(self, decision: Decision, earlier: Decision | None, *, replace: bool) -> Decision:
        """Keep the decision, unless the machine was too noisy for the resolution that the settings want."""
        told, wanted = decision.evidence and decision.evidence.resolution, self.settings.resolution
        if kept := not (wanted and told and told > wanted):
            self._unkept.pop(decision.key, None)
        else:
            self._unkept[decision.key] = decision
        if earlier is not None and _complete(earlier) and not _complete(decision):
            decision = earlier  # half a search does not replace a whole one
        elif kept:
            # Of processes that tuned the same at once, the first to publish a whole search speaks for all.
            standing = self.store.put(decision, replace=replace and earlier is not None)
            decision = standing if _complete(standing) else self.store.put(decision)
        else:
            said = "%s: not kept: the race told no finer than %.2g %%, where %.2g %% is wanted; see `tunewright quiet`"
            log.warning(said, decision.key.kernel, 100 * (told or 0.0), 100 * wanted)
        self.chosen[decision.key] = decision.config
        self.emit(Decided(decision, kept))
        return decision


def _foreseen(decision: Decision, plan: Search) -> Decision:
    """The decision with what seeds saved, why the search ended, and how much faster a config may still be found."""
    said = [note] if (note := saving(plan.problem.seeds, plan.journal.trials)) else []
    outlook, tried = plan.stopping.last(), len(plan.journal.trials)
    if plan.stopping.due:
        said.append(
            f"stopped after {tried} trials: as many again are expected to gain less than {plan.stopping.worth:.1%}"
        )
    return noted(decision, *said, remains=outlook and outlook.regret)


def _complete(decision: Decision) -> bool:
    return decision.evidence is None or decision.evidence.complete


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
    return decision.having(evidence=evidence)
