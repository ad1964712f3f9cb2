"""The end of a search: finalists are judged anew and raced; what was not judged in this run is not decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec

from tunewright.engine.budget import START_SECONDS, Budget
from tunewright.engine.decide import FEW, Adjudicator, FinalRace, ProgramRace, with_notes
from tunewright.errors import NothingWorked
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.race import FIRST_TEST, PROTECTED_ROUNDS, Race, RaceOptions
from tunewright.model.decision import Decision
from tunewright.model.event import FinalRaceStarted, Listener
from tunewright.model.trial import Failure, Kind, Timing, Trial, TrialRequest
from tunewright.ports.pool import Attempt
from tunewright.spaces.config import Config

log = LazyLogger(__name__)

MAX_SELECTIONS = 3
"""How often finalists are selected: again if trials misled, because a finalist failed or is slower than they say."""

MAX_SECONDS = 30.0
"""The longest race of finalists; half of it is its span, over which the machine should be in several states."""

UNRACED_GAIN = 1.1
"""How much faster than the default a config must be beyond doubt to be chosen without a race: trials were not timed in
the same moments."""

RETURN_SECONDS = 0.3
"""Seconds before the end of the budget at which a race ends by itself; one that does not is ended without a result."""

ROUND_SLACK = 1.3
"""How much longer a launch in a race takes than it is timed: its arguments or files are made anew, results compared."""

MIN_LOAD_SECONDS, MIN_ROUND_SECONDS = 0.05, 3e-3
"""About how long a fast finalist takes to be judged, and its sample; of slow ones it is a launch."""

Judge = Callable[[Sequence[Config], Sequence[int]], bool]
"""Judges finalists, of which some are protected; returns whether their trials misled."""


class Final:
    """Judges the finalists of a search and decides. `raced` is the race that decides, if there was one."""

    def __init__(
        self, adjudicator: Adjudicator, attempt: Attempt, emit: Listener, seed: int, budget: Budget | None = None
    ) -> None:
        self._adjudicator, self._journal, self._budget = adjudicator, adjudicator.journal, budget or Budget()
        self._attempt: Any = attempt
        self._emit, self._seed = emit, seed
        self._name = adjudicator.problem.key.kernel
        self._search_seconds = 0.0
        self._aborted = self._out_of_time = False
        self.raced: FinalRace | None = None

    def decide(self, program: ProgramRace | None = None) -> Decision:
        """Races the finalists, or tries those of earlier runs again if the attempt has no race, and decides."""
        adjudicator, races = self._adjudicator, hasattr(self._attempt, "race")
        self._search_seconds = self._journal.elapsed()
        if adjudicator.bitwise or not races:  # a race does not say whose results are equal bit for bit
            self._select_and(self._try_again)
        if races:
            self._select_and(self._race)
        if self._out_of_time and self.raced is None:
            return self._decide_in_time()
        if self._aborted:
            configs, protected = adjudicator.finalists()
            self._try_again([configs[i] for i in protected], protected)
            if adjudicator.finalists()[1]:
                return adjudicator.keep_incumbent("the race of the finalists was aborted")
        if not any(trial.works for trial in adjudicator.judged_trials):
            self._select_and(self._try_again)
        return adjudicator.decide(self.raced, program and self._announced(program))

    def _decide_in_time(self) -> Decision:
        """Decides by the trials, because the budget leaves no time for a race."""
        why = f"the budget of {self._budget.seconds:g} s left no time to race finalists long enough"
        if not any(trial.works for trial in self._adjudicator.judged_trials):
            self._select_and(self._try_again)
        return self._decide_by_trials(why)

    def _decide_by_trials(self, why: str) -> Decision:
        """Decides by the trials; they were timed in different moments, so a new config must be faster beyond doubt."""
        adjudicator = self._adjudicator
        decision, judged = adjudicator.decide(), [trial for trial in adjudicator.judged_trials if trial.works]
        gain = decision.evidence and decision.evidence.over_default
        doubtful = decision.config not in adjudicator.baselines and (gain is None or gain.low < UNRACED_GAIN)
        if doubtful and any(trial.config in adjudicator.baselines for trial in judged):
            return adjudicator.keep_incumbent(why)
        return with_notes(decision, f"{why}, so their trials decide")

    def decide_interrupted(self, stop: KeyboardInterrupt, *, program: bool) -> Decision:
        """Decides by the trials of this run so far; raises `stop` again if none of them worked."""
        try:
            if program:
                return self._adjudicator.keep_incumbent("the whole program was not run")
            if self.raced is None:
                return self._decide_by_trials("the finalists were not raced")
            return self._adjudicator.decide(self.raced)
        except NothingWorked:
            raise stop from None

    def _select_and(self, judge: Judge) -> None:
        """Selects finalists and judges them; the last time only of configs that were judged before."""
        for number in range(1, MAX_SELECTIONS + 1):
            last = number == MAX_SELECTIONS or (self._adjudicator.bitwise and judge == self._race)
            if not judge(*self._adjudicator.finalists(judged=last)) or self._budget.left() <= 0:
                return

    def _try_again(self, configs: Sequence[Config], protected: Sequence[int]) -> bool:
        """Tries the protected and the fastest finalists again that were only tried in earlier runs."""
        misled = False
        count = len(configs) if self._adjudicator.bitwise else len(protected) + FEW
        for number, config in enumerate(configs[:count]):
            if config not in self._journal.judged and (not number or self._budget.left() > 0):
                self._journal.trying.start(config)
                allowance = self._budget.allowance(final=True)
                trial = self._attempt(TrialRequest(config, allowance=allowance, essential=not number))
                if isinstance(trial.outcome, Failure) and trial.outcome.kind is Kind.STOPPED:
                    self._journal.trying.end(config)
                    continue
                misled |= self._journal.exaggerated(config, trial.seconds)
                self._journal.add(trial)
        return misled

    def _race(self, configs: Sequence[Config], protected: Sequence[int]) -> bool:
        """Races the finalists, unless none of them is new or the only one was judged."""
        if not configs or (len(configs) == 1 and configs[0] in self._journal.judged):
            return False
        if self.raced is not None and set(configs) <= set(self.raced[0]):
            return False
        configs, seconds = self._affordable(configs, protected)
        if not configs:
            self._out_of_time = True
            return False
        self._emit(FinalRaceStarted(len(configs)))
        self._journal.trying.start(*configs)
        race: Race | None = self._attempt.race(configs, self._options(configs, seconds), protected)
        self._journal.trying.end(*configs)
        self.raced, self._out_of_time = None, race is None and self._budget.left() <= 0
        self._aborted = race is None and not self._out_of_time
        if self._aborted or race is None:
            if self._aborted:
                log.warning(
                    "%s: a finalist crashed or hung, so the race was aborted: nothing new is chosen", self._name
                )
            return False
        misled = self._take_in(configs, race)
        if race.tested:
            self.raced = (configs, race)
        elif not race.is_empty:
            self._out_of_time = self._budget.seconds is not None
            log.warning("%s: the race of the finalists was too short, so their trials decide", self._name)
        return misled

    def _affordable(self, configs: Sequence[Config], protected: Sequence[int]) -> tuple[Sequence[Config], float]:
        """Returns the first finalists for which there is time, and the seconds for their rounds; none if too little.

        There must be time to judge each anew and for the rounds of a test, of the protected and of one more.
        """
        left = self._budget.left()
        if left == inf:
            return configs, inf
        oracle = getattr(self._attempt, "oracle_seconds", 0.0)
        left -= max(START_SECONDS, self._budget.start_seconds) + (1 + FIRST_TEST) * oracle
        launches = {trial.config: trial.seconds for trial in self._adjudicator.trials}
        chosen: list[Config] = []
        for config in configs:
            launch = ROUND_SLACK * launches[config]
            cost = max(MIN_LOAD_SECONDS, launch) + FIRST_TEST * max(MIN_ROUND_SECONDS, launch)
            if cost > left:
                break
            left -= cost
            chosen.append(config)
        if len(chosen) < min(len(configs), len(protected) + 1):
            return (), 0.0
        return chosen, left + FIRST_TEST * (oracle + sum(max(MIN_ROUND_SECONDS, launches[c]) for c in chosen))

    def _options(self, configs: Sequence[Config], limit: float) -> RaceOptions:
        """Returns the options of the race: about a quarter of the search time, but enough for all protected rounds."""
        share = min(MAX_SECONDS, self._search_seconds / 4)
        seconds = min(limit, max(2.0, share, self._adjudicator.seconds_for(configs)))
        ends = 0.0 if limit == inf else max(1.0, self._budget.left())
        options = RaceOptions(seconds=seconds, seed=self._seed, span=min(share, seconds) / 2, limit=ends)
        if ends:
            options = msgspec.structs.replace(options, until=time.time() + ends - RETURN_SECONDS)
        if len(configs) > 1:
            return options
        return msgspec.structs.replace(options, rounds=PROTECTED_ROUNDS, fixed=True, span=0.0)

    def _take_in(self, configs: Sequence[Config], race: Race) -> bool:
        """Records what failed in a race, and confirms what was timed; returns whether their trials misled."""
        misled = bool(race.failures)
        for i, config in enumerate(configs):
            if (failure := race.failures.get(i)) is not None:
                log.warning("%s: %s failed in the race: %s", self._name, config, failure.reason)
                self._journal.add(Trial(config, failure, at=time.time()))
            elif samples := race.standings[i].samples:
                misled |= self._journal.confirm(config, Timing(samples, race.clock))
        return misled

    def _announced(self, program: ProgramRace) -> ProgramRace:
        """Wraps the program race so that its start is announced to listeners."""

        def announced(configs: Sequence[Config]) -> Race:
            self._emit(FinalRaceStarted(len(configs), program=True))
            return program(configs)

        return announced
