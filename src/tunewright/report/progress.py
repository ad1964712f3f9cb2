"""Progress of a search as a live line: best so far, gain over the default, rate, failures, time left."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from tunewright.errors import SpaceError
from tunewright.model.decision import Decision, Problem
from tunewright.model.event import DecisionMade, Event, FinalRaceStarted, SearchStarted, TrialFinished
from tunewright.model.trial import Failure, Trial
from tunewright.report import formatting


class SearchStatus:
    """The state of a running search, and its description."""

    def __init__(self, started: SearchStarted) -> None:
        self.started = started
        self.since = time.monotonic()
        self.done = self.tried = 0
        self.best: Trial | None = None
        self.default: float | None = None
        self.failures: Counter[str] = Counter()

    def add(self, event: TrialFinished) -> None:
        """Adds a trial."""
        trial = event.trial
        self.done += 1
        self.tried += not event.replayed
        if isinstance(trial.outcome, Failure):
            self.failures[str(trial.outcome.kind)] += 1
            return
        if trial.config == self.started.problem.default:
            self.default = trial.seconds
        if self.best is None or trial.seconds < self.best.seconds:
            self.best = trial

    @property
    def share(self) -> float:
        """The share of the budget that is spent, from 0 to 1."""
        parts = [0.0]
        if self.started.trials:
            parts.append(self.done / self.started.trials)
        if self.started.seconds:
            parts.append((time.monotonic() - self.since) / self.started.seconds)
        return min(1.0, max(parts))

    @property
    def left(self) -> float | None:
        """The estimated seconds left; None if unknown."""
        spent = time.monotonic() - self.since
        guesses = []
        if self.started.seconds:
            guesses.append(self.started.seconds - spent)
        if self.started.trials and self.tried:
            guesses.append((self.started.trials - self.done) * spent / self.tried)
        return max(0.0, min(guesses)) if guesses else None

    def summary(self) -> str:
        """Returns how many trials were made in which time."""
        return f"{formatting.counted(self.done, 'trial')} in {formatting.clock(time.monotonic() - self.since)}"

    def short_line(self, race: FinalRaceStarted | None = None) -> str:
        """Returns what fits on a narrow terminal: the best so far, trials, failures, and the time left."""
        spent = formatting.clock(time.monotonic() - self.since)
        parts = ["no result yet"]
        if self.best is not None:
            gain = f" ({formatting.ratio(self.default / self.best.seconds)} the default)" if self.default else ""
            parts = [f"best {formatting.measured(self.best.seconds, self.started.problem.key)}{gain}"]
        parts.append(formatting.counted(self.done, "trial"))
        if self.failures:
            parts.append(f"{self.failures.total()} failed")
        if race is not None:
            racing = (
                "racing the program" if race.program else f"racing {formatting.counted(race.finalists, 'finalist')}"
            )
            return " · ".join([racing, *parts, spent])
        return " · ".join([*parts, f"{formatting.clock(self.left)} left" if self.left else spent])

    def line(self) -> str:
        """Returns a description in one line."""
        spent = time.monotonic() - self.since
        parts = [formatting.counted(self.done, "trial"), formatting.clock(spent)]
        if self.tried and spent:
            parts.append(f"{self.tried / spent:.1f}/s")
        if self.best is not None:
            gain = f" ({formatting.ratio(self.default / self.best.seconds)} the default)" if self.default else ""
            best = formatting.measured(self.best.seconds, self.started.problem.key)
            parts.append(f"best {best}{gain}")
        if self.failures:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.failures.most_common())
            parts.append(f"failed {self.failures.total()} ({kinds})")
        if self.left is not None:
            parts.append(f"{formatting.clock(self.left)} left")
        return " · ".join(parts)


def heading(problem: Problem) -> str:
    """Returns what is tuned, on which device and with which toolchain."""
    key = problem.key
    tools = ", ".join(f"{name} {version}" for name, version in list(key.toolchain.items())[:2])
    return f"{key.kernel}  {key.signature} · {key.device} · {tools} · {_size(problem)}"


def _size(problem: Problem) -> str:
    try:
        if problem.space.combinations <= 10**8:
            return formatting.counted(problem.space.size, "config")
    except SpaceError:  # ranges are not enumerated
        pass
    return "a large space"


def verdict(decision: Decision) -> str:
    """Describes a decision in one line."""
    evidence = decision.evidence
    if evidence is None:
        return f"{decision.config}  (the default; there is no decision)"
    if evidence.rule is not None:
        return " · ".join([f"{decision.config}", *evidence.notes])
    measured = formatting.measured(evidence.seconds, decision.key)
    parts = [f"{decision.config}", f"{measured} {formatting.spread(evidence.low, evidence.high, evidence.seconds)}"]
    if evidence.gain and evidence.gain != 1:
        parts.append(f"{formatting.gain(evidence.over_default, evidence.gain)} the default")
    if evidence.end_to_end is not None:
        parts.append(f"end to end {formatting.gain(evidence.end_to_end)}")
    if evidence.resolution is not None:
        parts.append(
            f"resolution {100 * evidence.resolution:.1f} %" if evidence.resolution < 1 else "the race was inconclusive"
        )
    if evidence.ties:
        parts.append(f"{formatting.counted(len(evidence.ties), 'other')} within noise")
    return " · ".join(parts + list(evidence.notes))


def _describe_race(event: FinalRaceStarted) -> str:
    if event.program:
        return "racing the whole program with and without the winner, for at most two minutes"
    if event.finalists == 1:
        return "judging the only finalist, which an earlier run tried"
    return f"racing {formatting.counted(event.finalists, 'finalist')} against each other, including the default"


class Progress:
    """A listener that shows progress on a terminal; elsewhere it prints only with `speak`."""

    shows_progress = True

    def __init__(self, *, speak: bool = False) -> None:
        self._speak = speak
        self._status: SearchStatus | None = None
        self._live: Any = None
        self._last_line_at = 0.0

    def __call__(self, event: Event) -> None:
        """Shows an event."""
        if isinstance(event, SearchStarted):
            self._status = SearchStatus(event)
            self._begin(event)
        elif isinstance(event, TrialFinished) and self._status is not None:
            self._status.add(event)
            self._show()
        elif isinstance(event, FinalRaceStarted):
            if self._live is None and self._status is not None:
                self._print(self._status.line())
            self.stop()
            self._print(_describe_race(event))
        elif isinstance(event, DecisionMade):
            self.stop()
            self._print(f"decided  {verdict(event.decision)}" + ("" if event.kept else " · not kept"))
            evidence = event.decision.evidence
            for complaint in evidence.conditions.complaints() if evidence and evidence.conditions else ():
                self._print(f"  while the finalists raced, {complaint}")

    def _begin(self, event: SearchStarted) -> None:
        self._print(heading(event.problem))
        if event.resumed:
            self._print(f"{formatting.counted(event.resumed, 'trial')} of an earlier run are reused")
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only on a terminal
            from rich.live import Live  # noqa: PLC0415 - only on a terminal

            self._live = Live(console=Console(stderr=True), refresh_per_second=8, get_renderable=self._renderable)
            self._live.start()

    def _renderable(self) -> Any:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only on a terminal
        from rich.table import Table  # noqa: PLC0415 - only on a terminal

        assert self._status is not None
        grid = Table.grid(padding=(0, 2))
        grid.add_row(ProgressBar(total=1.0, completed=self._status.share, width=30), self._status.line())
        return grid

    def _show(self) -> None:
        assert self._status is not None
        if self._live is None and self._speak and time.monotonic() - self._last_line_at > 5:
            self._last_line_at = time.monotonic()
            self._print(self._status.line())

    def _print(self, text: str) -> None:
        if self._speak or sys.stderr.isatty():
            sys.stderr.write(text + "\n")

    def stop(self) -> None:
        """Restores the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None
