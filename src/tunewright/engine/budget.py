"""The budget of a search: it bounds trials, verification and the final race together."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic, time

from tunewright.errors import SettingsError
from tunewright.measure.race import FIRST_TEST
from tunewright.model.trial import Allowance, Failure, Stage, Trial, median

FINAL_SHARE = 0.25
"""The share of the seconds that is kept for the race of the finalists."""

MIN_FINAL_SECONDS = 1.5
"""Seconds that are kept for it at least: a worker must start and judge every finalist anew."""

START_SECONDS = 1.0
"""How long a worker takes to start at least; the first trial shows how long here."""

FINAL_LAUNCHES = 24
"""Launches in the race of two slow finalists."""

TRIALS_IN_BUDGET = 20
"""How many trials there should be time for: slow kernels get fewer runs in each."""

HUNG_RATIO = 3.0
"""How many times as long as any recent trial one must have run to be called hung."""

RECENT_TRIALS = 8
"""The trials by which the cost of the next one is estimated."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Budget:
    """A limit on trials, seconds or both; the search ends at the first one reached."""

    def __init__(
        self, trials: int | None = None, seconds: float | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.trials, self.seconds, self.spent = trials, seconds, 0
        self._clock, self._started = clock, clock()
        self._costs: deque[float] = deque(maxlen=RECENT_TRIALS)
        self._runs: deque[float] = deque(maxlen=RECENT_TRIALS)
        self._fastest = self._first = 0.0
        self._working = 0
        self.start_seconds = 0.0
        self._compiles_late: bool | None = None

    def left(self) -> float:
        """Returns the seconds left; infinite without a limit."""
        return inf if self.seconds is None else self.seconds - (self._clock() - self._started)

    def _final_seconds(self, working: int = 2) -> float:
        """Seconds kept for the final race: its fewest rounds if only one config works or more take half, or nothing."""
        if self.seconds is None:
            return 0.0
        least = self.start_seconds + 1.1 * (1 + FIRST_TEST) * (self._first + self._fastest)
        needed = max(MIN_FINAL_SECONDS, FINAL_SHARE * self.seconds, self.start_seconds + FINAL_LAUNCHES * self._fastest)
        return next((kept for kept in (needed, least)[working < 2 :] if kept <= self.seconds / 2), 0.0)

    def left_for_part(self) -> float:
        """Returns the seconds for a search inside a trial, which leaves time for that trial and the final race."""
        return self.left() - self._final_seconds() - median(self._costs or (0.0,))

    def grant(self, count: int = 1, *, essential: bool = False, ready: bool = False) -> int:
        """Returns how many of `count` more trials may start now: none if one would take the time of the final race.

        `essential` trials may start whatever time is left. What is `ready` needs no build.
        """
        expected = median((self._runs if ready else self._costs) or (0.0,))
        if not essential and self.left() <= self._final_seconds(self._working) + expected:
            return 0
        return count if self.trials is None else max(0, min(count, self.trials - self.spent))

    def spend(self, trials: int = 1) -> None:
        """Counts trials as started."""
        self.spent += trials

    def learn(self, trial: Trial, *, ready: bool = False) -> None:
        """Takes in what a trial cost; if it was `ready`, it says nothing about those that are built."""
        cost = trial.build_seconds + trial.run_seconds
        if not ready:
            self._costs.append(cost)
        self._runs.append(trial.run_seconds)
        self.start_seconds = self.start_seconds or max(START_SECONDS, self._clock() - self._started - cost)
        if trial.works:
            self._working += 1
            self._first = self._first or trial.seconds
            self._fastest = min(self._fastest or trial.seconds, trial.seconds)
        late = trial.metrics.get("compiles_late")
        self._compiles_late = self._compiles_late if late is None else bool(late)

    def is_hung(self, trial: Trial) -> bool:
        """Whether a trial that the budget ended took a quarter of it, and far longer than others: it would not end."""
        limit = max(FINAL_SHARE * (self.seconds or inf), HUNG_RATIO * max(self._costs, default=inf))
        waited = isinstance(trial.outcome, Failure) and trial.outcome.stage is Stage.WAIT
        return trial.run_seconds > limit and not waited

    def allowance(self, *, final: bool = False) -> Allowance | None:
        """Returns how long the next trial may take; None without a limit. Only in the final it takes all the rest."""
        if self.seconds is None:
            return None
        left = max(0.0, self.left() - (self._final_seconds(self._working) if self._fastest and not final else 0.0))
        return Allowance(self.seconds / TRIALS_IN_BUDGET, left, self._compiles_late, time() + left)

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parses `200` (trials), `60s`, `5m`, `1h`, or both: `200,5m`."""
        budget = cls()
        for part in text.replace(" ", "").split(","):
            match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h)?", part)
            if not match:
                raise SettingsError(f"cannot read the budget {text!r}; write 200 (trials), 60s, 5m, 1h, or 200,5m")
            number, unit = match.groups()
            if unit:
                budget.seconds = float(number) * _UNITS[unit]
            else:
                budget.trials = int(float(number))
        return budget
