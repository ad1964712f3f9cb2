"""Stopping: when going on is not worth it."""

from __future__ import annotations

from tunewright.ports.strategy import Farsighted, Outlook, Strategy

FIRST = 30
"""Trials before which no search is stopped."""

EVERY = 5
"""Trials from one look ahead to the next: a look costs about as much as a few proposals."""


class Stopping:
    """Ends a search when spending as much again as it has cost is expected to gain less than `worth`.

    The cost of a trial is nearly the same from trial to trial, so that trials stand for cost. `outlook` is the last
    look ahead, for whoever wants to know how much may be left.
    """

    def __init__(self, strategy: Strategy, worth: float) -> None:
        self._strategy, self.worth = strategy, worth
        self.outlook: Outlook | None = None
        self.due = False
        self._looked = 0

    def look(self, trials: int) -> bool:
        """Whether to stop after so many trials."""
        if self.worth and trials >= max(FIRST, self._looked + EVERY) and isinstance(self._strategy, Farsighted):
            self._looked, self.outlook = trials, self._strategy.outlook()
            self.due = self.outlook is not None and trials * self.outlook.gain < self.worth
        return self.due

    def last(self) -> Outlook | None:
        """A last look ahead, now."""
        if isinstance(self._strategy, Farsighted):
            self.outlook = self._strategy.outlook() or self.outlook
        return self.outlook
