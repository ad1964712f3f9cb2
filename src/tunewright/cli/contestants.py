"""Contestants: from what a person types to what can be raced: commands, Python functions, configs of a kernel."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from tunewright.errors import TunewrightError
from tunewright.fronts.tuned import Tuned
from tunewright.measure.clock import HostTimer, Visit, alike, visitor
from tunewright.model.trial import Entry, Failure
from tunewright.pools.loading import find
from tunewright.ports import plugins
from tunewright.ports.pool import Attempt, Pool
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config, Value

WIDTH = 40
"""Letters of a contestant that are shown."""

FUNCTION = re.compile(r"(?P<place>\S+\.py|[^\W\d][\w.]*):(?P<name>[^\W\d][\w.]*)")
SHELL = {"|", "||", "&&", "&", ">", ">>", "<", "2>", "2>&1"}
"""What only a shell understands; without one it would be an argument."""


def shortened(names: Sequence[str]) -> list[str]:
    """Names on one line and of some width, the middle left out; those that look the same are numbered."""
    flat = [" ".join(name.split()) for name in names]
    short = [f"{name[: WIDTH // 2 - 1]}…{name[-WIDTH // 2 :]}" if len(name) > WIDTH else name for name in flat]
    return [f"{name} #{short[: i + 1].count(name)}" if short.count(name) > 1 else name for i, name in enumerate(short)]


def programs(contestants: Sequence[str]) -> list[Command | Function]:
    """What was typed, as commands and functions; mistakes are found before anything runs."""
    modules: dict[str, dict[str, Any]] = {}
    return [
        Function(typed, _found(found["place"], found["name"], modules))
        if (found := FUNCTION.fullmatch(typed))
        else Command(typed)
        for typed in contestants
    ]


def one_clock(raced: Sequence[Command | Function]) -> str:
    """Have all be timed by the same clock, once they are ready: the wall, if there are commands among them."""
    timers = [one.timer for one in raced if isinstance(one, Function)]
    if any(isinstance(one, Command) for one in raced):
        for timer in timers:
            timer.use("wall")
        return "wall"
    return alike(timers)


class Command:
    """A command line, run without a shell; timed by the wall clock, from its start to its end."""

    def __init__(self, typed: str) -> None:
        self.typed = typed
        try:
            self.words = shlex.split(typed)
        except ValueError as error:
            raise click.UsageError(f"cannot read the command {typed!r}: {error}") from error
        if operators := SHELL.intersection(self.words):
            raise click.UsageError(f"{typed!r}: {min(operators)} needs a shell; write: sh -c {shlex.quote(typed)}")
        if not self.words or shutil.which(self.words[0]) is None:
            raise self._unknown("there is no such command")

    def _unknown(self, why: str) -> click.UsageError:
        return click.UsageError(
            f"cannot run {self.typed!r}: {why}; a command is typed in quotes with its arguments ('python a.py'), "
            "a Python function as FILE.py:NAME"
        )

    def ready(self) -> Visit:
        """Visits, after a run that does not count: it reads the program from the disk."""
        self()
        return self

    def __call__(self) -> float:
        """Run it once."""
        with tempfile.TemporaryFile() as said:
            process, began = None, time.perf_counter()
            try:
                with _uninterrupted():
                    # A session of its own: the terminal's Ctrl-C is for us, and we end whatever the command started.
                    process = subprocess.Popen(
                        self.words,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=said,
                        start_new_session=True,
                    )
                status = process.wait()
                took = time.perf_counter() - began
            except OSError as error:
                raise self._unknown(str(error.strerror)) from error
            finally:
                if process is not None and process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if status:
                said.seek(max(0, said.seek(0, os.SEEK_END) - 4096))
                raise click.ClickException(self._failed(status, said.read().decode(errors="replace")))
        return took

    def _failed(self, status: int, said: str) -> str:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        how = f"ended with exit status {status}" if status > 0 else f"was killed by {signal.Signals(-status).name}"
        last = f": {lines[-1]}" if lines else ""
        wrapped = f"sh -c {shlex.quote(f'{self.typed} || true')}"
        return f"{self.typed!r} {how}{last}. Run it by itself to see more; if it may fail, race: {wrapped}"


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C meanwhile takes effect afterwards: a process whose start it broke off would be known to nobody."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came:
        signal.raise_signal(signal.SIGINT)


class Function:
    """A Python function without arguments, called here; timed by the clock that is honest for it."""

    def __init__(self, typed: str, call: Any) -> None:
        self.typed, self.call = typed, call
        if not callable(call):
            raise click.UsageError(f"{typed} cannot be called: it is {call!r}; name a function")
        if isinstance(call, Tuned):
            raise click.UsageError(f"{typed} is a kernel; race its configs: tunewright race --kernel {typed} ...")
        if inspect.iscoroutinefunction(call):
            raise click.UsageError(
                f"{typed} is a coroutine; race a function that runs it: asyncio.run({call.__name__}())"
            )
        try:
            inspect.signature(call).bind()
        except TypeError as error:
            raise click.UsageError(
                f"{typed}: {error}; write a function without arguments that calls it, and race that"
            ) from error
        except ValueError:  # a builtin that does not tell
            pass

    def ready(self) -> Visit:
        """Visits, each long enough for the clock."""
        self.timer = HostTimer(self.call, threads=1)
        with self._blamed():
            visit = visitor(self.timer, None)

        def quiet() -> float:
            with self._blamed():
                return visit()

        return quiet

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """Name whoever raises; what it prints is discarded, as a command's is."""
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            try:
                yield
            except (Exception, SystemExit) as error:
                said = f"{self.typed} raised {type(error).__name__}: {error}"
                raise click.ClickException(
                    f"{said}. Call it by itself to see more; only what returns is raced"
                ) from error


def _found(place: str, name: str, modules: dict[str, dict[str, Any]]) -> Any:
    """The object of that name in a file or module, which is loaded once for all its functions."""
    if place not in modules:
        path = Path(place).resolve()
        if place.endswith(".py") and not path.is_file():
            raise click.UsageError(f"no file {place}; a function is named as FILE.py:NAME or module:NAME")
        sys.path.insert(0, str(path.parent) if place.endswith(".py") else "")
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what the program prints is not our answer
                modules[place] = find(f"{path if place.endswith('.py') else place}:__dict__")
        except TunewrightError as error:
            hint = "a function is named as FILE.py:NAME or module:NAME, a command may begin with ./"
            raise click.UsageError(f"{error}; {hint}") from error
        except Exception as error:
            raise click.UsageError(f"loading {place} raised {type(error).__name__}: {error}") from error
    first, *rest = name.split(".")
    found = modules[place].get(first)
    for part in rest:
        found = getattr(found, part, None)
    if found is None:
        offered = ", ".join(n for n, value in modules[place].items() if inspect.isfunction(value)) or "none"
        raise click.UsageError(f"{place} defines no {name!r}; its functions: {offered}")
    return found


def config_of(kernel: Tuned, typed: str) -> Config:
    """The config typed as VW=8,MR=4; what is not said is as in the default, or else first."""
    # Values may hold blanks, as compiler flags do, if commas part them.
    pairs = [part.strip().partition("=") for part in re.split("," if "," in typed else r"\s+", typed.strip())]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.UsageError(f"cannot read the config {typed!r}; write VW=8,MR=4, or default, or decided")
    given, space, default = {name: text for name, _, text in pairs}, kernel.offered, dict(kernel.default)
    chosen = given.get(VARIANT, default.get(VARIANT))
    own = [knob for variant in space.variants if variant.name == chosen for knob in variant.knobs]
    offered = {knob.name: knob.values for knob in (*space.knobs, *own)}
    if chosen != default.get(VARIANT):
        default = {knob.name: knob.values[0] for knob in own} | {knob.name: default[knob.name] for knob in space.knobs}
    config = space.require(default | {name: _value(offered.get(name, ()), text) for name, text in given.items()})
    if config not in kernel.space:
        raise click.UsageError(
            f"{typed} changes numerics, and is left out; allow it in the declaration: @tune(numerics=...)"
        )
    return config


def _value(offered: Sequence[Value], text: str) -> Value:
    """The value offered that is written like that; the text itself if none is."""
    written = {str(value).lower() if isinstance(value, bool) else str(value): value for value in offered}
    return written.get(text, written.get(text.lower(), text))


def require_working(configs: dict[Config, str], attempt: Attempt, session: Session) -> None:
    """Only what gives right results is raced; a race itself does not look."""
    pool: Pool = plugins.load("pools", session.settings.pool_name)(1)
    try:
        for trial in pool.run(attempt, map(Entry, configs)):
            if isinstance(failure := trial.outcome, Failure):
                said = f"{configs[trial.config]} does not work: {failure.kind} at {failure.stage}: {failure.reason}"
                raise click.ClickException(f"{said}. Race it without this one")
    finally:
        pool.close()
