"""Journal: the append-only record of a search; what it holds is never tried again."""

from __future__ import annotations

from time import monotonic

from tunewright.errors import StoreError
from tunewright.model.decision import Problem
from tunewright.model.event import Listener, Tried
from tunewright.model.trial import CLEARLY, Rival, Trial
from tunewright.ports.store import Store
from tunewright.remarks import Remarks
from tunewright.spaces.config import Config

log = Remarks(__name__)


class Journal:
    """Trials of one problem, kept in a store before anyone hears of them."""

    def __init__(self, store: Store, problem: Problem, emit: Listener, *, fresh: bool = False) -> None:
        self._store, self._key, self._emit = store, problem.key, emit
        self._began = monotonic()
        self.known: dict[Config, Trial] = {}
        self.trials: list[Trial] = []
        self.rival: Rival | None = None
        if not fresh:
            # The last trial of a config holds; a config no longer in the space is history.
            found = {trial.config: trial for trial in store.trials(problem.key) if trial.config in problem.space}
            # Where nothing ever worked, something other than the configs may have been wrong: all deserve another try.
            self.known = found if any(trial.works for trial in found.values()) else {}

    def add(self, trial: Trial) -> None:
        """Keep a new trial, then tell the listeners: an acknowledged trial is a recorded one."""
        try:
            self._store.record(self._key, [trial])
        except StoreError as error:
            log.warning("a trial of %s is not kept, so a later run may repeat it: %s", self._key.kernel, error)
        self.known[trial.config] = trial
        self._note(trial)
        self._emit(Tried(trial))

    def elapsed(self) -> float:
        """Seconds since the search began."""
        return monotonic() - self._began

    def replay(self, config: Config) -> Trial:
        """The trial an earlier run made of `config`, said again."""
        trial = self.known[config]
        self._note(trial)
        self._emit(Tried(trial, replayed=True))
        return trial

    def _note(self, trial: Trial) -> None:
        self.trials.append(trial)
        if trial.works and (self.rival is None or trial.seconds < CLEARLY * self.rival.seconds):
            self.rival = Rival(trial.config, trial.seconds)
