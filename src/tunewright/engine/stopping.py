"""The stopping rule: ends a search when more trials are not worth their cost."""

from __future__ import annotations

from tunewright.ports.strategy import Forecast, PredictsRegret, Strategy

MIN_TRIALS = 30
"""Trials before which no search is stopped."""

CHECK_EVERY = 5
"""Trials between two forecasts: a forecast costs about as much as a few proposals."""


class StoppingRule:
    """Stops a search when as many trials again are expected to gain less than `min_expected_gain`.

    All trials of a search cost nearly the same, so trials stand for cost. `forecast` is the last forecast made.
    """

    def __init__(self, strategy: Strategy, min_expected_gain: float) -> None:
        self._strategy, self.min_expected_gain = strategy, min_expected_gain
        self.forecast: Forecast | None = None
        self.due = False
        self._checked_at = 0

    def should_stop(self, trials: int) -> bool:
        """Whether to stop after this number of trials."""
        due_for_check = trials >= max(MIN_TRIALS, self._checked_at + CHECK_EVERY)
        if self.min_expected_gain and due_for_check and isinstance(self._strategy, PredictsRegret):
            self._checked_at, self.forecast = trials, self._strategy.forecast()
            self.due = self.forecast is not None and trials * self.forecast.gain < self.min_expected_gain
        return self.due

    def final_forecast(self) -> Forecast | None:
        """Makes a last forecast after the search."""
        if isinstance(self._strategy, PredictsRegret):
            self.forecast = self._strategy.forecast() or self.forecast
        return self.forecast
