"""Candidates of a race, parsed from the command line: commands, Python functions, configs of a kernel."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from tunewright.errors import SettingsError, TunewrightError
from tunewright.kernel.tuned import Tuned
from tunewright.measure.clock import HostTimer, Sampler, make_sampler, use_same_clock
from tunewright.model.trial import Failure, TrialRequest
from tunewright.pools.command_times import (
    WALL,
    ProcessTimes,
    cannot_run,
    choose_clock,
    describe_failure,
    split_command,
    time_command,
)
from tunewright.pools.kernel_loader import C_FUNCTION, FUNCTION, load_target
from tunewright.ports import plugins
from tunewright.ports.pool import Attempt, Pool
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config, Value

MAX_NAME_LENGTH = 40
"""How many characters of a candidate are shown."""

WARM_UPS, LONG_WARM_UP = 2, 1.0
"""Warm-up runs of a command, and the seconds after which no other one is made."""


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
    return [_parse_program(typed, modules) for typed in candidates]


def _parse_program(typed: str, modules: dict[str, dict[str, Any]]) -> CommandCandidate | FunctionCandidate:
    if match := FUNCTION.fullmatch(typed):
        return FunctionCandidate(typed, _load_function(match["place"], match["name"], modules))
    if match := C_FUNCTION.fullmatch(typed):
        return FunctionCandidate(typed, _load_c_function(match["place"], match["name"]))
    return CommandCandidate(typed)


def _load_c_function(place: str, name: str) -> Any:
    """Compiles a C file and returns its function of that name, which takes no arguments."""
    from tunewright.gate.c_functions import load_function  # noqa: PLC0415 - an extension

    try:
        return load_function(Path(place), name)
    except TunewrightError as error:
        raise click.UsageError(str(error)) from error


def use_one_clock(programs: Sequence[CommandCandidate | FunctionCandidate]) -> str:
    """Makes all programs use the same clock, and returns its name: the wall clock if commands and functions race."""
    timers = [program.timer for program in programs if isinstance(program, FunctionCandidate)]
    commands = [program for program in programs if isinstance(program, CommandCandidate)]
    if commands:
        clock = WALL if timers else choose_clock([times for command in commands for times in command.warm_ups])
        for timer in timers:
            timer.use(clock)
        for command in commands:
            command.clock = clock
        return clock
    return use_same_clock(timers)


class CommandCandidate:
    """A command line, run without a shell, and timed from its start to its end.

    By the wall clock, less the time that it waited for a processor if a single task did all its work: other programs
    do not count then.
    """

    def __init__(self, typed: str) -> None:
        self.typed, self.clock = typed, WALL
        self.warm_ups: list[ProcessTimes] = []
        try:
            self.words = split_command(typed)
        except SettingsError as error:
            raise click.UsageError(str(error)) from error

    def ready(self) -> Sampler:
        """Returns a sampler, after warm-up runs that read the program from the disk; one, if it takes long."""
        while len(self.warm_ups) < WARM_UPS and sum(times.wall for times in self.warm_ups) < LONG_WARM_UP:
            self.warm_ups.append(self._run())
        return self

    def __call__(self) -> float:
        """Runs the command once, and returns its seconds."""
        return self._run().seconds(self.clock)

    def _run(self) -> ProcessTimes:
        with tempfile.TemporaryFile() as errors:
            try:
                status, times = time_command(self.words, errors)
            except OSError as error:
                raise click.UsageError(str(cannot_run(self.typed, str(error.strerror)))) from error
            if status:
                raise click.ClickException(describe_failure(self.typed, status, errors))
        return times


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
