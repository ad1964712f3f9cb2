"""Checks: whether what a command wrote is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tunewright.backends.host import digest, function_digest
from tunewright.commands.files import NO_FILE, path_digest
from tunewright.commands.runner import Job, Runner
from tunewright.commands.template import CommandTemplate
from tunewright.errors import BackendError, SpaceError
from tunewright.model.key import CHECKED_BY_DEFAULT
from tunewright.ports.candidate import WrongResult
from tunewright.spaces.config import Config

SAME = "same"

UNCHECKED = "nothing: outputs are not checked"

CHECK_SECONDS = 600.0
"""The limit of a check by a command."""

Outputs = Mapping[str, Path]
"""Where a run wrote each of its outputs, `stdout` and `stderr`."""

CheckFunction = Callable[[Outputs], object]
"""Returns False or raises if outputs are wrong; returns None or True if they are right."""


class FinishedRun(Protocol):
    """A run whose outputs are to be checked."""

    config: Config
    outputs: Outputs
    results: Sequence[str]
    """The names of the outputs that are compared: those declared, else `stdout`."""

    def values(self) -> Mapping[str, object]:
        """What placeholders of a check stand for: knobs, inputs as they were given, outputs."""
        ...


class Check(Protocol):
    """Decides whether the outputs of a run are right."""

    @property
    def by(self) -> str:
        """What it checks by, for a key."""
        ...

    def learn(self, run: FinishedRun) -> None:
        """Is called with a run of the default config."""
        ...

    def __call__(self, run: FinishedRun, runner: Runner) -> None:
        """Raises WrongResult if outputs are wrong."""
        ...


def make_check(given: str | CheckFunction | None) -> Check:
    """Returns the check for `check=`: "same", a function, a command, or None."""
    if given == SAME:
        return SameOutputs()
    if given is None:
        return NoCheck()
    if isinstance(given, str):
        return CommandCheck(given)
    if not callable(given):
        raise SpaceError(f'check= is "same", a function of the outputs, a command or None, not {given!r}')
    return FunctionCheck(given)


def digests(run: FinishedRun) -> dict[str, str]:
    """Returns the digests of the outputs that are compared. Raises WrongResult for one that is not there."""
    found = {name: path_digest(run.outputs[name]) for name in run.results}
    if missing := [name for name, text in found.items() if text == NO_FILE]:
        raise WrongResult(f"it wrote no {{{missing[0]}}}")
    return found


class SameOutputs:
    """Outputs must equal those of the default config byte for byte."""

    def __init__(self) -> None:
        self._expected: dict[str, str] = {}
        self._default: Config | None = None

    @property
    def by(self) -> str:
        """The default config."""
        return f"{CHECKED_BY_DEFAULT}, byte for byte"

    def learn(self, run: FinishedRun) -> None:
        """Keeps digests of the outputs of the default config."""
        self._expected, self._default = digests(run), run.config

    def __call__(self, run: FinishedRun, runner: Runner) -> None:
        """Raises WrongResult if an output differs."""
        found = digests(run)
        for name, text in self._expected.items():
            if found[name] != text and run.config == self._default:
                raise WrongResult(
                    f"{{{name}}} differs from run to run even with the default config; "
                    "give a check= that says what is right: a function of the outputs, or a command"
                )
            if found[name] != text:
                size = f"{run.outputs[name].stat().st_size:,} bytes" if run.outputs[name].is_file() else "a folder"
                raise WrongResult(
                    f"{{{name}}} ({size}) differs from what the default config writes; "
                    "if that may be, give a check= that says what is right"
                )


class FunctionCheck:
    """A function says whether outputs are right."""

    def __init__(self, function: CheckFunction) -> None:
        self._function = function

    @property
    def by(self) -> str:
        """A digest of the function."""
        return digest(function_digest(self._function))[:12]

    def learn(self, run: FinishedRun) -> None:
        """Needs nothing of the default config."""

    def __call__(self, run: FinishedRun, runner: Runner) -> None:
        """Raises WrongResult if the function returns False or raises."""
        digests(run)
        try:
            verdict = self._function(dict(run.outputs))
        except Exception as error:
            raise WrongResult(f"the check raised {type(error).__name__}: {error}".removesuffix(": ")) from error
        if verdict is not None and not verdict:
            raise WrongResult(f"the check returned {verdict!r}")


class CommandCheck:
    """A command says whether outputs are right, by its exit status. A shell runs it; values cannot become code."""

    def __init__(self, text: str) -> None:
        self.template = CommandTemplate(text, shell=True)

    @property
    def by(self) -> str:
        """The command."""
        return self.template.text

    def learn(self, run: FinishedRun) -> None:
        """Needs nothing of the default config."""

    def __call__(self, run: FinishedRun, runner: Runner) -> None:
        """Raises WrongResult if the command fails."""
        digests(run)
        values = run.values()
        job = Job(self.template.fill(values), self.template.variables(values), timeout=CHECK_SECONDS)
        try:
            runner.run(job, "check")
        except BackendError as error:
            raise WrongResult(f"the check {self.template.text!r} failed: {error}") from error


class NoCheck:
    """Any output that is there is right."""

    by = UNCHECKED

    def learn(self, run: FinishedRun) -> None:
        """Needs nothing of the default config."""

    def __call__(self, run: FinishedRun, runner: Runner) -> None:
        """Raises WrongResult if an output is missing."""
        digests(run)
