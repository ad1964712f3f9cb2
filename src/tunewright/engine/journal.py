"""The journal: the append-only record of a search; recorded configs are not tried again."""

from __future__ import annotations

from time import monotonic

from tunewright.errors import StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Problem
from tunewright.model.event import Listener, TrialFinished
from tunewright.model.trial import CLEARLY_FASTER, Incumbent, Trial
from tunewright.ports.store import Store
from tunewright.spaces.config import Config

log = LazyLogger(__name__)


class Journal:
    """The trials of one problem; each is stored before listeners see it."""

    def __init__(self, store: Store, problem: Problem, emit: Listener, *, fresh: bool = False) -> None:
        self._store, self._key, self._emit = store, problem.key, emit
        self._started = monotonic()
        self.known: dict[Config, Trial] = {}
        self.trials: list[Trial] = []
        self.incumbent: Incumbent | None = None
        if not fresh:
            # The last trial of a config counts; configs no longer in the space are ignored.
            earlier = {trial.config: trial for trial in store.trials(problem.key) if trial.config in problem.space}
            # If nothing ever worked, the cause may not be the configs, so all are tried again.
            self.known = earlier if any(trial.works for trial in earlier.values()) else {}

    def add(self, trial: Trial) -> None:
        """Stores a new trial, then tells the listeners: an announced trial is a recorded one."""
        try:
            self._store.record(self._key, [trial])
        except StoreError as error:
            log.warning("a trial of %s is not stored, so a later run may repeat it: %s", self._key.kernel, error)
        self.known[trial.config] = trial
        self._append(trial)
        self._emit(TrialFinished(trial))

    def elapsed(self) -> float:
        """Returns the seconds since the search began."""
        return monotonic() - self._started

    def replay(self, config: Config) -> Trial:
        """Returns the trial of `config` from an earlier run, and announces it again."""
        trial = self.known[config]
        self._append(trial)
        self._emit(TrialFinished(trial, replayed=True))
        return trial

    def _append(self, trial: Trial) -> None:
        self.trials.append(trial)
        if trial.works and (self.incumbent is None or trial.seconds < CLEARLY_FASTER * self.incumbent.seconds):
            self.incumbent = Incumbent(trial.config, trial.seconds)
