"""Candidates of a race, parsed from the command line: commands, Python functions, configs of a kernel."""

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
from tunewright.kernel.tuned import Tuned
from tunewright.measure.clock import HostTimer, Sampler, make_sampler, use_same_clock
from tunewright.model.trial import Failure, TrialRequest
from tunewright.pools.kernel_loader import load_target
from tunewright.ports import plugins
from tunewright.ports.pool import Attempt, Pool
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config, Value

MAX_NAME_LENGTH = 40
"""How many characters of a candidate are shown."""

FUNCTION = re.compile(r"(?P<place>\S+\.py|[^\W\d][\w.]*):(?P<name>[^\W\d][\w.]*)")
SHELL = {"|", "||", "&&", "&", ">", ">>", "<", "2>", "2>&1"}
"""Operators of a shell; a command that is run without one would get them as arguments."""


def shorten_names(names: Sequence[str]) -> list[str]:
    """Returns names on one line and of limited length, without the middle; equal ones are numbered."""
    flat = [" ".join(name.split()) for name in names]
    short = [_shorten(name) for name in flat]
    return [f"{name} #{short[: i + 1].count(name)}" if short.count(name) > 1 else name for i, name in enumerate(short)]


def _shorten(name: str) -> str:
    half = MAX_NAME_LENGTH // 2
    return f"{name[: half - 1]}…{name[-half:]}" if len(name) > MAX_NAME_LENGTH else name


def parse_programs(candidates: Sequence[str]) -> list[CommandCandidate | FunctionCandidate]:
    """Returns commands and functions from what was typed; mistakes are found before anything runs."""
    modules: dict[str, dict[str, Any]] = {}
    return [
        FunctionCandidate(typed, _load_function(match["place"], match["name"], modules))
        if (match := FUNCTION.fullmatch(typed))
        else CommandCandidate(typed)
        for typed in candidates
    ]


def use_one_clock(programs: Sequence[CommandCandidate | FunctionCandidate]) -> str:
    """Makes all programs use the same clock, and returns its name: the wall clock if a command is among them."""
    timers = [program.timer for program in programs if isinstance(program, FunctionCandidate)]
    if any(isinstance(program, CommandCandidate) for program in programs):
        for timer in timers:
            timer.use("wall")
        return "wall"
    return use_same_clock(timers)


class CommandCandidate:
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

    def _unknown(self, reason: str) -> click.UsageError:
        return click.UsageError(
            f"cannot run {self.typed!r}: {reason}; a command is typed in quotes with its arguments ('python a.py'), "
            "a Python function as FILE.py:NAME"
        )

    def ready(self) -> Sampler:
        """Returns a sampler, after a warm-up run that reads the program from the disk."""
        self()
        return self

    def __call__(self) -> float:
        """Runs the command once, and returns its seconds."""
        with tempfile.TemporaryFile() as errors:
            process, began = None, time.perf_counter()
            try:
                with _defer_interrupt():
                    # Ctrl-C must reach this process alone, which then kills what the command started.
                    process = subprocess.Popen(
                        self.words,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=errors,
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
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
                raise click.ClickException(self._describe_failure(status, errors.read().decode(errors="replace")))
        return took

    def _describe_failure(self, status: int, errors: str) -> str:
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        ending = f"ended with exit status {status}" if status > 0 else f"was killed by {signal.Signals(-status).name}"
        last = f": {lines[-1]}" if lines else ""
        wrapped = f"sh -c {shlex.quote(f'{self.typed} || true')}"
        return f"{self.typed!r} {ending}{last}. Run it by itself to see more; if it may fail, race: {wrapped}"


@contextlib.contextmanager
def _defer_interrupt() -> Iterator[None]:
    """Delays Ctrl-C: a process interrupted while it is being started could not be killed."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received:
        signal.raise_signal(signal.SIGINT)


class FunctionCandidate:
    """A Python function without arguments, called in this process, and timed by the CPU or the wall clock."""

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
        except ValueError:  # a builtin without a signature
            pass

    def ready(self) -> Sampler:
        """Returns a sampler whose samples are long enough for the clock."""
        self.timer = HostTimer(self.call, threads=1)
        with self._name_errors():
            sample = make_sampler(self.timer, None)

        def silent_sample() -> float:
            with self._name_errors():
                return sample()

        return silent_sample

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Raises errors with the name of the function; what it prints is discarded, like a command's output."""
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            try:
                yield
            except (Exception, SystemExit) as error:
                message = f"{self.typed} raised {type(error).__name__}: {error}"
                raise click.ClickException(
                    f"{message}. Call it by itself to see more; only what returns is raced"
                ) from error


def _load_function(place: str, name: str, modules: dict[str, dict[str, Any]]) -> Any:
    """Returns the object of that name in a file or module, which is loaded once for all its functions."""
    if place not in modules:
        path = Path(place).resolve()
        if place.endswith(".py") and not path.is_file():
            raise click.UsageError(f"no file {place}; a function is named as FILE.py:NAME or module:NAME")
        sys.path.insert(0, str(path.parent) if place.endswith(".py") else "")
        try:
            with contextlib.redirect_stdout(sys.stderr):  # standard output is for the command's answer
                modules[place] = load_target(f"{path if place.endswith('.py') else place}:__dict__")
        except TunewrightError as error:
            hint = "a function is named as FILE.py:NAME or module:NAME, a command may begin with ./"
            raise click.UsageError(f"{error}; {hint}") from error
        except Exception as error:
            raise click.UsageError(f"loading {place} raised {type(error).__name__}: {error}") from error
    first, *rest = name.split(".")
    function = modules[place].get(first)
    for part in rest:
        function = getattr(function, part, None)
    if function is None:
        available = ", ".join(name for name, value in modules[place].items() if inspect.isfunction(value)) or "none"
        raise click.UsageError(f"{place} defines no {name!r}; its functions: {available}")
    return function


def parse_config(kernel: Tuned, typed: str) -> Config:
    """Returns the config typed as VW=8,MR=4; other knobs have the value of the default, or their first."""
    # With commas between knobs, values may contain blanks, as compiler flags do.
    pairs = [part.strip().partition("=") for part in re.split("," if "," in typed else r"\s+", typed.strip())]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.UsageError(f"cannot read the config {typed!r}; write VW=8,MR=4, or default, or decided")
    values, space, default = {name: text for name, _, text in pairs}, kernel.full_space, dict(kernel.default)
    chosen = values.get(VARIANT, default.get(VARIANT))
    own = [knob for variant in space.variants if variant.name == chosen for knob in variant.knobs]
    allowed = {knob.name: knob.values for knob in (*space.knobs, *own)}
    if chosen != default.get(VARIANT):
        default = {knob.name: knob.values[0] for knob in own} | {knob.name: default[knob.name] for knob in space.knobs}
    config = space.require(default | {name: _parse_value(allowed.get(name, ()), text) for name, text in values.items()})
    if config not in kernel.space:
        raise click.UsageError(
            f"{typed} changes numerics and is not allowed; allow it in the declaration: @tune(numerics=...)"
        )
    return config


def _parse_value(allowed: Sequence[Value], text: str) -> Value:
    """Returns the allowed value that is written like `text`; the text itself if there is none."""
    by_text = {str(value).lower() if isinstance(value, bool) else str(value): value for value in allowed}
    return by_text.get(text, by_text.get(text.lower(), text))


def require_working(configs: dict[Config, str], attempt: Attempt, session: Session) -> None:
    """Raises if a config fails verification: a race itself does not check results."""
    pool: Pool = plugins.load("pools", session.settings.pool_name)(1)
    try:
        for trial in pool.run(attempt, map(TrialRequest, configs)):
            if isinstance(failure := trial.outcome, Failure):
                message = f"{configs[trial.config]} does not work: {failure.kind} at {failure.stage}: {failure.reason}"
                raise click.ClickException(f"{message}. Race without this one")
    finally:
        pool.close()
