"""Progress: a live line while a search runs: best so far, against the default, rate, failures, time left."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from tunewright.model.decision import Decision, Problem
from tunewright.model.event import Decided, Event, Final, Started, Tried
from tunewright.model.trial import Failure, Trial
from tunewright.report import words


class Standing:
    """What is known of a search at one moment; the words every view of it shares."""

    def __init__(self, started: Started) -> None:
        self.started = started
        self.since = time.monotonic()
        self.done = self.tried = 0
        self.best: Trial | None = None
        self.default: float | None = None
        self.failures: Counter[str] = Counter()

    def note(self, event: Tried) -> None:
        """Take one more trial into account."""
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
        """How much of the budget is spent, from 0 to 1."""
        parts = [0.0]
        if self.started.trials:
            parts.append(self.done / self.started.trials)
        if self.started.seconds:
            parts.append((time.monotonic() - self.since) / self.started.seconds)
        return min(1.0, max(parts))

    @property
    def left(self) -> float | None:
        """Seconds left, as far as that can be told."""
        spent = time.monotonic() - self.since
        guesses = []
        if self.started.seconds:
            guesses.append(self.started.seconds - spent)
        if self.started.trials and self.tried:
            guesses.append((self.started.trials - self.done) * spent / self.tried)
        return max(0.0, min(guesses)) if guesses else None

    def line(self) -> str:
        """One line for people."""
        spent = time.monotonic() - self.since
        parts = [words.counted(self.done, "trial"), words.clock(spent)]
        if self.tried and spent:
            parts.append(f"{self.tried / spent:.1f}/s")
        if self.best is not None:
            gain = f" ({words.ratio(self.default / self.best.seconds)} the default)" if self.default else ""
            parts.append(f"best {words.seconds(self.best.seconds)}{gain}")
        if self.failures:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.failures.most_common())
            parts.append(f"failed {self.failures.total()} ({kinds})")
        if self.left is not None:
            parts.append(f"{words.clock(self.left)} left")
        return " · ".join(parts)


def heading(problem: Problem) -> str:
    """What is being tuned, where, with what."""
    key = problem.key
    tools = ", ".join(f"{name} {said}" for name, said in list(key.toolchain.items())[:2])
    return f"{key.kernel}  {key.signature} · {key.device} · {tools} · {_size(problem)}"


def _size(problem: Problem) -> str:
    return words.counted(problem.space.size, "config") if problem.space.combinations <= 10**8 else "a large space"


def verdict(decision: Decision) -> str:
    """A decision in a line."""
    evidence = decision.evidence
    if evidence is None:
        return f"{decision.config}  (the default; nothing was decided)"
    parts = [
        f"{decision.config}",
        f"{words.seconds(evidence.seconds)} {words.spread(evidence.low, evidence.high, evidence.seconds)}",
    ]
    if evidence.gain and evidence.gain != 1:
        parts.append(f"{words.gain(evidence.over_default, evidence.gain)} the default")
    if evidence.end_to_end is not None:
        parts.append(f"end to end {words.gain(evidence.end_to_end)}")
    if evidence.resolution is not None:
        parts.append(
            f"told to {100 * evidence.resolution:.1f} %" if evidence.resolution < 1 else "the race told nothing"
        )
    if evidence.ties:
        parts.append(f"{words.counted(len(evidence.ties), 'other')} within noise")
    return " · ".join(parts + list(evidence.notes))


def _racing(event: Final) -> str:
    if event.program:
        return "racing the whole program with the winner against the same without it, two minutes at most"
    return f"racing {words.counted(event.finalists, 'finalist')} against each other, the default among them"


class Progress:
    """A listener that draws on a terminal, and stays silent elsewhere unless asked to speak."""

    def __init__(self, *, speak: bool = False) -> None:
        self._speak = speak
        self._standing: Standing | None = None
        self._live: Any = None
        self._said = 0.0

    def __call__(self, event: Event) -> None:
        """Draw what changed."""
        if isinstance(event, Started):
            self._standing = Standing(event)
            self._begin(event)
        elif isinstance(event, Tried) and self._standing is not None:
            self._standing.note(event)
            self._show()
        elif isinstance(event, Final):
            if self._live is None and self._standing is not None:
                self._say(self._standing.line())
            self.stop()
            self._say(_racing(event))
        elif isinstance(event, Decided):
            self.stop()
            self._say(f"decided  {verdict(event.decision)}" + ("" if event.kept else " · not kept"))
            evidence = event.decision.evidence
            for complaint in evidence.conditions.complaints() if evidence and evidence.conditions else ():
                self._say(f"  while the finalists raced, {complaint}")

    def _begin(self, event: Started) -> None:
        self._say(heading(event.problem))
        if event.resumed:
            self._say(f"{words.counted(event.resumed, 'trial')} of an earlier run will not be repeated")
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only where someone looks
            from rich.live import Live  # noqa: PLC0415 - only where someone looks

            self._live = Live(console=Console(stderr=True), refresh_per_second=8, get_renderable=self._drawing)
            self._live.start()

    def _drawing(self) -> Any:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only where someone looks
        from rich.table import Table  # noqa: PLC0415 - only where someone looks

        assert self._standing is not None
        grid = Table.grid(padding=(0, 2))
        grid.add_row(ProgressBar(total=1.0, completed=self._standing.share, width=30), self._standing.line())
        return grid

    def _show(self) -> None:
        assert self._standing is not None
        if self._live is None and self._speak and time.monotonic() - self._said > 5:
            self._said = time.monotonic()
            self._say(self._standing.line())

    def _say(self, text: str) -> None:
        if self._speak or sys.stderr.isatty():
            sys.stderr.write(text + "\n")

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None
