"""Functions of this process, raced in it: for closures, which no other process can import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tunewright.errors import SettingsError
from tunewright.gate import function_main
from tunewright.gate.verdict import Pair
from tunewright.pools.command_times import ProcessTimes


class CallContest:
    """Two functions that are called in this process.

    Where memory lies stays the same from pair to pair, so differences of about 1 % may be due to that.
    """

    def __init__(self, first: Callable[[], Any], second: Callable[[], Any]) -> None:
        self._calls = (first, second)
        for call in self._calls:
            try:
                function_main.require_no_arguments(getattr(call, "__name__", repr(call)), call)
            except function_main.CannotCall as error:
                raise SettingsError(str(error)) from error
        self._count = 0

    def draw(self, swap: bool, seconds: float) -> Sequence[Pair]:
        """Times a burst of calls of each."""
        self._count = self._count or max(map(function_main.calibrate, self._calls))
        if swap:
            second = self._sample(1)
            return [(self._sample(0), second)]
        first = self._sample(0)
        return [(first, self._sample(1))]

    def _sample(self, number: int) -> ProcessTimes:
        times = function_main.measure(self._calls[number], self._count)
        return ProcessTimes(times["wall"] or 0.0, times["cpu"] or 0.0, times["own_cpu"] or 0.0, times["delay"])
