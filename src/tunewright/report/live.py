"""A line about a search that takes more than two seconds: on a terminal or in a notebook, and nowhere else."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from tunewright.model.event import Event, FinalRaceStarted
    from tunewright.report.progress import SearchStatus

DELAY = 2.0
"""Seconds after which a search is shown."""

PERIOD = 0.5
"""Seconds between two updates."""


class SearchSession(Protocol):
    """What is needed of a session: its settings and its list of listeners."""

    @property
    def settings(self) -> Any: ...
    @property
    def listeners(self) -> list[Any]: ...


Session = TypeVar("Session", bound=SearchSession)
Params = ParamSpec("Params")
Result = TypeVar("Result")


def shows_progress(
    tune: Callable[Concatenate[Session, Params], Result],
) -> Callable[Concatenate[Session, Params], Result]:
    """Returns the method of a session that searches, with a line of progress while it does."""

    @wraps(tune)
    def shown(session: Session, /, *args: Params.args, **options: Params.kwargs) -> Result:
        with progress_line(session):
            return tune(session, *args, **options)

    return shown


@contextmanager
def progress_line(session: SearchSession) -> Iterator[None]:
    """Shows a line while the block searches, if somebody may look at it and nothing else shows the search."""
    screen = find_screen() if _is_wanted(session) else None
    if screen is None:
        yield
        return
    line = ProgressLine(screen)
    session.listeners.append(line)
    try:
        yield
    finally:
        session.listeners.remove(line)
        line.close()


def _is_wanted(session: SearchSession) -> bool:
    """Returns whether the settings allow it: never in a mode for production, nor beside another display."""
    shown = any(getattr(listener, "shows_progress", False) for listener in session.listeners)
    return bool(session.settings.progress) and session.settings.mode == "tune" and not shown


class Screen(Protocol):
    """Where a line is shown."""

    def show(self, text: str) -> None:
        """Replaces the line."""
        ...

    def end(self, text: str) -> None:
        """Leaves one last line, or none if `text` is empty."""
        ...


def find_screen() -> Screen | None:
    """Returns the notebook or the terminal of this process; None in a service, a pipe or a log."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and getattr(shell, "kernel", None) is not None:
        return NotebookScreen()
    try:
        return TerminalScreen(sys.stderr.fileno()) if sys.stderr.isatty() else None
    except (AttributeError, OSError, ValueError):  # replaced, closed, or without a file
        return None


class TerminalScreen:
    """The last line of a terminal; written without a lock that a forked process could inherit."""

    def __init__(self, file: int) -> None:
        self._file, self._length = file, 0

    def show(self, text: str) -> None:
        """Replaces the line."""
        text = text[: self._columns() - 1]
        self._write("\r" + text.ljust(self._length) + "\r" + text)
        self._length = len(text)

    def end(self, text: str) -> None:
        """Leaves one last line, or none if `text` is empty."""
        self.show("")
        self._write("\r" + (f"{text}\n" if text else ""))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._file).columns or 80
        except OSError:
            return 80

    def _write(self, text: str) -> None:
        try:
            os.write(self._file, text.encode(sys.stderr.encoding or "utf-8", "replace"))
        except OSError:
            self._length = 0  # the terminal is gone; the search goes on


class NotebookScreen:
    """One output of the running cell, which is updated."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Replaces the text."""
        content = {"text/plain": text}
        if self._handle is None:
            self._handle = import_module("IPython.display").display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def end(self, text: str) -> None:
        """Leaves one last line, or an empty one."""
        self.show(text)


class ProgressLine:
    """A listener that shows the search of its own thread, once it has lasted long enough, until it is closed."""

    def __init__(self, screen: Screen, delay: float = DELAY, period: float = PERIOD) -> None:
        self._screen, self._delay, self._period = screen, delay, period
        self._thread, self._lock, self._over = threading.get_ident(), threading.Lock(), threading.Event()
        self._status: SearchStatus | None = None
        self._race: FinalRaceStarted | None = None
        self._last = ""
        self._is_shown = False
        self._ticker: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Takes in an event; those of other searches in the same session come from other threads."""
        from tunewright.model.event import (  # noqa: PLC0415 - only for tuning
            DecisionMade,
            FinalRaceStarted,
            SearchStarted,
            TrialFinished,
        )
        from tunewright.report.progress import SearchStatus  # noqa: PLC0415 - as above
        from tunewright.report.summary import short_verdict  # noqa: PLC0415 - as above

        if threading.get_ident() != self._thread:
            return
        with self._lock:
            if isinstance(event, SearchStarted):
                self._status = SearchStatus(event)
                self._start()
            elif isinstance(event, TrialFinished) and self._status is not None:
                self._status.add(event)
            elif isinstance(event, FinalRaceStarted):
                self._race = event
            elif isinstance(event, DecisionMade) and self._status is not None:
                trials = self._status.summary()
                self._last = f"{event.decision.key.kernel}: {short_verdict(event.decision)} · {trials}"

    def _start(self) -> None:
        if self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, name="tunewright progress", daemon=True)
            self._ticker.start()

    def _tick(self) -> None:
        self._over.wait(self._delay)
        while not self._over.is_set():
            with self._lock:
                text = self._text()
            self._is_shown = True
            self._screen.show(text)
            self._over.wait(self._period)

    def _text(self) -> str:
        """Returns what is shown now."""
        from tunewright.report.formatting import one_line  # noqa: PLC0415 - only for tuning

        assert self._status is not None
        return one_line(f"tuning {self._status.started.problem.key.kernel}: {self._status.short_line(self._race)}", 400)

    def close(self) -> None:
        """Ends the display: with one line about the decision if the search was shown and decided, else with none."""
        from tunewright.report.formatting import one_line  # noqa: PLC0415 - only for tuning

        self._over.set()
        if self._ticker is not None:
            self._ticker.join()
        if self._is_shown:
            self._screen.end(one_line(self._last, 400))
