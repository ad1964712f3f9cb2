"""The journal: the append-only record of a search; recorded configs are not tried again."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tunewright.errors import NothingWorked, StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Problem
from tunewright.model.event import Listener, TrialFinished
from tunewright.model.trial import (
    CLEARLY_FASTER,
    ENDED_BY_BUDGET,
    TRANSIENT,
    Failure,
    Incumbent,
    Kind,
    Outcome,
    Stage,
    Timing,
    Trial,
)  # fmt: skip
from tunewright.ports.store import Store
from tunewright.spaces.config import Config
from tunewright.stores.trying import Trying

log = LazyLogger(__name__)

EXAGGERATED = 1.25
"""A trial of an earlier run whose config takes this many times as long now is not believed."""


class Journal:
    """The trials of one problem; each is stored before listeners see it.

    `known` has the trial of each config that counts, `retries` what is tried again, `judged` the configs that were
    tried or raced in this run: only they may be decided. `by` says in stored trials who made them.
    """

    def __init__(
        self,
        store: Store,
        problem: Problem,
        emit: Listener,
        *,
        fresh: bool = False,
        marks: Path | None = None,
        isolated: bool = True,
    ) -> None:
        self._store, self._key, self._emit = store, problem.key, emit
        self._started = time.monotonic()
        self.by = f"{os.uname().nodename}:{os.getpid()}:{int(time.time())}"
        self.known: dict[Config, Trial] = {}
        self.retries: list[Config] = []
        self.judged: set[Config] = set()
        self.trials: list[Trial] = []
        self.incumbent: Incumbent | None = None
        self.trying = Trying(marks, problem.key.digest, self.by, isolated=isolated)
        earlier = [] if fresh else [trial for trial in store.trials(problem.key) if trial.config in problem.space]
        self._remember(earlier)
        self._take_blame(problem, earlier, fresh=fresh)

    def _remember(self, earlier: Sequence[Trial]) -> None:
        last, forgiven = remembered(earlier)
        # If nothing ever worked, the cause may not be the configs, so all are tried again.
        self.known = last if any(trial.works for trial in last.values()) else {}
        self.retries += forgiven if self.known else ()

    def _take_blame(self, problem: Problem, earlier: Sequence[Trial], *, fresh: bool) -> None:
        """Records what ended an earlier search as failed; the candidates of a race are tried again, each alone."""
        for blame in self.trying.find_blame(fresh=fresh):
            finished = {trial.config for trial in earlier if trial.by == blame.by}
            for config, reason in blame.reasons.items():
                if config in problem.space and config not in finished:
                    log.warning("%s: %s is not tried: %s", self._key.kernel, config, reason)
                    self._blame(config, Failure(Stage.VERIFY, Kind.CRASHED, reason), earlier)
                    if config == problem.default and self._key.is_checked_by_default:
                        what = f"{self._key.kernel}: without a reference every trial runs the default ({config})"
                        raise NothingWorked(f"{what}, but {reason}, or give a `reference=` or another `default=`")
            suspects = [config for config in blame.suspects if self.known.pop(config, None) is not None]
            self.retries += suspects
            if suspects:
                message = "%s: a race of %d configs ended the process or the machine; each is tried again alone"
                log.warning(message, self._key.kernel, len(suspects))

    def _blame(self, config: Config, failure: Failure, earlier: Sequence[Trial]) -> None:
        stored = next((trial for trial in earlier if trial.config == config and trial.outcome == failure), None)
        self.known[config] = stored or self._record(Trial(config, failure, at=time.time()))

    def add(self, trial: Trial) -> None:
        """Stores a new trial, then tells the listeners: an announced trial is a recorded one."""
        trial = self.known[trial.config] = self._record(trial)
        self.trying.end(trial.config)
        self.judged.add(trial.config)
        self.trials.append(trial)
        # Only a trial of this run: new ones are timed against the incumbent, and a stored one may be wrong.
        if trial.works and (self.incumbent is None or trial.seconds < CLEARLY_FASTER * self.incumbent.seconds):
            self.incumbent = Incumbent(trial.config, trial.seconds)
        self._emit(TrialFinished(trial))

    def call_hung(self, trial: Trial) -> Trial:
        """Returns a trial that the budget ended as one that hung, and says so."""
        reason = f"it ran for {trial.run_seconds:.2g} s, until the budget ended it; run with fresh=True to try it again"
        log.warning("%s: %s hung: %s", self._key.kernel, trial.config, reason)
        failure = Failure(Stage.TIME, Kind.HUNG, reason)
        return msgspec.structs.replace(trial, outcome=failure, metrics={ENDED_BY_BUDGET: 1.0})

    def _record(self, trial: Trial) -> Trial:
        trial = msgspec.structs.replace(trial, by=self.by)
        try:
            self._store.record(self._key, [trial])
        except StoreError as error:
            log.warning("a trial of %s is not stored, so a later run may repeat it: %s", self._key.kernel, error)
        return trial

    @property
    def crashed(self) -> list[Config]:
        """Configs that ended a process or left its device unusable."""
        outcomes = {config: trial.outcome for config, trial in self.known.items()}
        return [config for config, one in outcomes.items() if isinstance(one, Failure) and one.kind is Kind.CRASHED]

    def elapsed(self) -> float:
        """Returns the seconds since the search began."""
        return time.monotonic() - self._started

    def replay(self, config: Config) -> Trial:
        """Returns the trial of `config` from an earlier run, and announces it again."""
        trial = self.known[config]
        self.trials.append(trial)
        self._emit(TrialFinished(trial, replayed=True))
        return trial

    def exaggerated(self, config: Config, seconds: float) -> bool:
        """Whether the trial of `config` from an earlier run is not true: it failed now, or takes much longer."""
        return config not in self.judged and seconds > EXAGGERATED * self.known[config].seconds

    def confirm(self, config: Config, timing: Timing) -> bool:
        """Takes in that `config` was judged and timed in this run; returns whether its earlier trial exaggerated."""
        exaggerated = self.exaggerated(config, timing.seconds)
        if config not in self.judged:
            self.judged.add(config)
            self.known[config] = msgspec.structs.replace(self.known[config], outcome=timing)
        return exaggerated


def remembered(trials: Iterable[Trial]) -> tuple[dict[Config, Trial], list[Config]]:
    """Returns the last trial of each config, and the configs whose failure is not remembered, which are tried again.

    A lack of memory, a busy device and a time-out may come from what else ran on the machine. A later search tries
    such a config again, once: from the second such failure on, it is the config's fault. So it is if one ran until the
    budget was over, which the next search must not spend on it too. What was only launched once is tried again as well.
    """
    last: dict[Config, Trial] = {}
    transient: Counter[Config] = Counter()
    for trial in trials:
        last[trial.config] = trial
        if isinstance(trial.outcome, Failure) and trial.outcome.kind in TRANSIENT:
            transient[trial.config] += 2 if ENDED_BY_BUDGET in trial.metrics else 1
    forgiven = [config for config, trial in last.items() if _is_forgiven(trial.outcome, transient[config])]
    return {config: trial for config, trial in last.items() if config not in set(forgiven)}, forgiven


def _is_forgiven(outcome: Outcome, failures: int) -> bool:
    """Whether what was found does not count: a failure of the moment, or the time of a first launch."""
    if isinstance(outcome, Timing):
        return outcome.is_first
    return outcome.kind in TRANSIENT and failures < 2
