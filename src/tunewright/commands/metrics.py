"""Metrics of commands: what a run costs."""

from __future__ import annotations

import re
from math import isfinite
from typing import Literal, Protocol

import msgspec

from tunewright.errors import BackendError, SpaceError
from tunewright.model.key import PRINTED_COST


class MeasuredRun(Protocol):
    """What metrics are made of."""

    @property
    def seconds(self) -> float: ...
    @property
    def cpu_seconds(self) -> float: ...
    def printed(self) -> str:
        """Standard output, then standard error."""
        ...


class Metric(Protocol):
    """What a run costs; lower is better."""

    @property
    def clock(self) -> str:
        """The name of what it is measured by."""
        ...

    def cost(self, run: MeasuredRun) -> float:
        """Returns the cost of a run. Raises BackendError if the run does not say it."""
        ...

    def mode(self) -> dict[str, str]:
        """Returns how it is said in a key."""
        ...


class Seconds(msgspec.Struct, frozen=True):
    """The time from the start of a command to its end, by the wall clock."""

    @property
    def clock(self) -> str:
        """The wall clock."""
        return "wall"

    def cost(self, run: MeasuredRun) -> float:
        """Returns seconds."""
        return run.seconds

    def mode(self) -> dict[str, str]:
        """Returns the unit."""
        return {"metric": "seconds"}


class CpuSeconds(msgspec.Struct, frozen=True):
    """The CPU time of a command and of the processes that it waited for."""

    @property
    def clock(self) -> str:
        """CPU time."""
        return "cpu"

    def cost(self, run: MeasuredRun) -> float:
        """Returns seconds, at least one microsecond."""
        return max(run.cpu_seconds, 1e-6)

    def mode(self) -> dict[str, str]:
        """Returns the unit."""
        return {"metric": "CPU seconds"}


class Regex:
    """A number that a command prints: the first group of the last match of `pattern`.

    With `best="high"` its inverse is the cost. Costs are kept where times are, in millionths, so that no limit of a
    race depends on the unit. `unit` is for people.

    Example: `Regex(r"([0-9.]+) MB/s", best="high", unit="MB/s")`
    """

    clock = "printed"

    def __init__(self, pattern: str, *, best: Literal["high", "low"], unit: str = "") -> None:
        try:
            self._pattern = re.compile(pattern, re.MULTILINE)
        except re.error as error:
            raise SpaceError(f"{pattern!r} is no regular expression: {error}") from error
        if not self._pattern.groups:
            raise SpaceError(f'{pattern!r} has no group: put the number in parentheses, as in "([0-9.]+) MB/s"')
        if best not in ("high", "low"):
            raise SpaceError(f'best= is "high" or "low", not {best!r}')
        self.best, self.unit = best, unit

    def cost(self, run: MeasuredRun) -> float:
        """Returns the number, or its inverse if high is better, in millionths."""
        found = None
        for found in self._pattern.finditer(run.printed()):  # noqa: B007 - the last one counts
            pass
        if found is None:
            raise BackendError(f"nothing that it printed matches the metric {self._pattern.pattern!r}")
        text = (found.group(1) or "").strip()
        try:
            value = float(text.replace(",", ""))
        except ValueError as error:
            raise BackendError(f"the metric found {text!r}, which is no number; make the group narrower") from error
        if not isfinite(value) or value <= 0:
            raise BackendError(f"the metric found {text}; it must be a positive number")
        return PRINTED_COST / value if self.best == "high" else PRINTED_COST * value

    def mode(self) -> dict[str, str]:
        """Returns the pattern, which way is better, and the unit."""
        unit = {"unit": self.unit} if self.unit else {}
        return {"metric": f"{self.best}est {self._pattern.pattern}", **unit}
