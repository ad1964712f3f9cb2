"""The budget of a search."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic

from tunewright.errors import SettingsError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Budget:
    """A limit on trials, seconds or both; the search ends at the first one reached."""

    def __init__(
        self, trials: int | None = None, seconds: float | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.trials, self.seconds, self.spent = trials, seconds, 0
        self._clock, self._started = clock, clock()

    def grant(self, count: int = 1) -> int:
        """Returns how many of `count` more trials may start now."""
        if self.seconds is not None and self._clock() - self._started >= self.seconds:
            return 0
        return count if self.trials is None else max(0, min(count, self.trials - self.spent))

    def spend(self, trials: int = 1) -> None:
        """Counts trials as started."""
        self.spent += trials

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
