"""The workload of a command: each run has new files; what it writes is checked outside of the time that counts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tunewright.cases.validation import VARIES
from tunewright.commands.checks import Outputs, SameOutputs, digests
from tunewright.commands.files import InputFiles
from tunewright.commands.runner import Job, Run, Runner
from tunewright.errors import BackendError
from tunewright.measure.kernel_workload import TimingOptions
from tunewright.model.trial import median
from tunewright.ports.candidate import WrongResult
from tunewright.spaces.config import Config
from tunewright.stores.file_lock import exclusive_lock

if TYPE_CHECKING:
    from tunewright.commands.backend import Command

LONG_SECONDS = 0.5
"""Runs that take longer are not repeated where one would do."""

SAMPLE_SECONDS, MAX_RUNS = 0.01, 5
"""A sample of a short command has several runs: about so many seconds, and at most so many runs."""

CHECKED_SHARE = 0.25
"""Outputs of every run are checked if that takes at most this share of the time of a run."""

MIN_TIMEOUT, TIMEOUT_FACTOR = 10.0, 20.0
"""Without `timeout=`, a run may take so many seconds, or so many times as long as the default config."""


class Clock(NamedTuple):
    """The name of what a command is measured by."""

    clock: str


class CommandRun(msgspec.Struct):
    """A run of a config: its times, where it wrote its outputs, and what placeholders of a check stand for."""

    config: Config
    run: Run
    outputs: Outputs
    results: Sequence[str]
    inputs: Mapping[str, Path]

    def values(self) -> dict[str, object]:
        """Knobs, inputs as they were given, and outputs."""
        return {**self.config, **self.inputs, **self.outputs}


class CommandWorkload:
    """A command with its files: runs configs one at a time through a guardian process."""

    def __init__(self, command: Command, name: str, default: Config, timing: TimingOptions) -> None:
        self.command, self.name, self.lock = command, name, timing.device
        self._default, self._threads = default, timing.threads
        self._check = command.make_check()
        self._inputs = InputFiles(command.input_paths, frozenset(command.options.constant))
        self._timeout = command.options.timeout
        self._default_seconds: float | None = None
        self._root: Path | None = None

    @property
    def oracle_seconds(self) -> float:
        """Nothing: contents never change."""
        return 0.0

    @cached_property
    def runner(self) -> Runner:
        """Runs commands; made when the first one runs."""
        scratch = self.command.options.scratch
        return Runner(None if scratch is None else Path(scratch))

    def prepare(self) -> None:
        """Keeps the inputs, and runs the default config. Raises BackendError if that fails and nothing else decides."""
        if self._default_seconds is not None:
            return
        with exclusive_lock(self.lock):
            try:
                run = self.run(self._default)
                self._check.learn(run)
            except (BackendError, WrongResult) as error:
                if isinstance(self._check, SameOutputs):
                    raise BackendError(
                        f"the default config ({self._default}) fails, and others are compared with it: {error}; "
                        "give another `default=`, or a `check=`"
                    ) from error
                self._default_seconds = 0.0
                return
        self._default_seconds = run.run.seconds
        if self._timeout is None:
            self._timeout = max(MIN_TIMEOUT, TIMEOUT_FACTOR * run.run.seconds)

    def renew(self) -> None:
        """Does nothing: every run has new files."""

    def build(self, config: Config) -> Config:
        """Returns the config: a command needs no build."""
        return config

    def load(self, config: Config, artifact: Config) -> ProgramCandidate:
        """Returns the config, ready to run."""
        return ProgramCandidate(self, config)

    def run(self, config: Config) -> CommandRun:
        """Runs a config once on new files. Raises BackendError if it fails, WrongResult if it changes a constant."""
        command, runner = self.command, self.runner
        if self._root != runner.root:  # the first run, or the guardian was killed
            self._inputs.keep(runner.root / "inputs")
            self._root = runner.root
        runner.empty()
        self._inputs.put_into(runner.folder)
        words, variables = command.fill(config, command.names_in_folder, self._threads)
        stdin = runner.folder / command.names_in_folder[command.options.stdin] if command.options.stdin else None
        try:
            run = runner.run(Job(words, variables, stdin, self._timeout))
        except BackendError as error:
            raise BackendError(f"{error}{command.hint()}") from error
        self._inputs.require_unchanged()
        outputs = {name: runner.folder / command.names_in_folder[name] for name in command.outputs}
        streams = {"stdout": run.stdout, "stderr": run.stderr}
        inputs = {name: self._inputs.kept(name) for name in command.input_paths}
        return CommandRun(config, run, {**outputs, **streams}, list(outputs) or ["stdout"], inputs)

    def check(self, run: CommandRun) -> None:
        """Raises WrongResult if the outputs of the latest run are wrong."""
        self._check(run, self.runner)


class ProgramCandidate:
    """A config of a command: each launch is a run of the program."""

    def __init__(self, workload: CommandWorkload, config: Config) -> None:
        self._workload, self._config = workload, config
        self._seconds = self._check_seconds = 0.0
        self._unchecked = self._hurried = False
        self.launches, self.launch_seconds = 0, 0.0
        self.first_sample = 0.0, "wall"
        self.timers = [Clock(workload.command.metric.clock)]

    def hurry(self) -> None:
        """Makes samples of one run."""
        self._hurried = True

    def verify(self, seconds: float = inf) -> tuple[str | None, str]:
        """Returns what is wrong with outputs, and their fingerprint; that of one run if it takes long."""
        prints, metric = [], self._workload.command.metric
        for _ in range(2):
            try:
                run = self._run(checked=True)
            except WrongResult as error:
                return str(error), ""
            prints.append("-".join(text[:16] for text in digests(run).values()))
            if self.launches == 1:
                self.launch_seconds = run.run.seconds
                self.first_sample = metric.cost(run.run), metric.clock
            if self._seconds > min(LONG_SECONDS, seconds / 2):
                break
        return None, prints[0] if len(set(prints)) == 1 else VARIES

    def sample(self, draw: int, *, audited: bool) -> float:
        """Returns the cost of a run: the median of some if they are short. Files are new, whatever the draw."""
        metric, costs = self._workload.command.metric, []
        runs = 1 if self._hurried else min(MAX_RUNS, max(1, ceil(SAMPLE_SECONDS / max(self._seconds, 1e-6))))
        for _ in range(runs):
            costs.append(metric.cost(self._run(checked=audited).run))
        return median(costs)

    def check(self, draw: int, *, launches: int) -> str | None:
        """Runs some more times; not at all if runs take long and the outputs of every one so far were checked."""
        began = time.perf_counter()
        if self._seconds > LONG_SECONDS and not self._unchecked:
            return None
        for _ in range(launches):
            try:
                self._run(checked=True)
            except WrongResult as error:
                return str(error)
            if time.perf_counter() - began > LONG_SECONDS:
                break
        return None

    def _run(self, *, checked: bool) -> CommandRun:
        """Runs once; checks the outputs if asked to, or if that is quick."""
        self.launches += 1
        done = self._workload.run(self._config)
        self._seconds = done.run.seconds
        if not checked and self._check_seconds > CHECKED_SHARE * self._seconds:
            self._unchecked = True
            return done
        began = time.perf_counter()
        self._workload.check(done)
        self._check_seconds = time.perf_counter() - began
        return done
