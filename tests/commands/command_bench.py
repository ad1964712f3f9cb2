"""A bench for programs of a few lines, and what is left of them."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import tunewright as tw
from tunewright.model.trial import Trial, TrialRequest


class Bench:
    """A folder with a script and an input; tries configs of commands in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.scratch = folder, folder / "scratch"
        self.scratch.mkdir()
        self.input = folder / "input.txt"
        self.input.write_text("three\none\ntwo\n")
        self.evaluators: list[Any] = []

    def script(self, text: str) -> Path:
        path = self.folder / "script.sh"
        path.write_text(text)
        return path

    def command(self, script: str, template: str = "sh {script} {n} {input} {output}", **options: Any) -> tw.Command:
        files = {"script": self.script(script), "input": self.input}
        options = {"files": files, "scratch": self.scratch, "space": tw.Space(tw.Knob("n", [1, 2])), **options}
        return tw.Command(template, **options)

    def evaluator(self, command: tw.Command) -> Any:
        kernel = command.tuned(name="subject")
        evaluator = kernel.make_evaluator(kernel.cases_like(()), self.folder / "cache")
        self.evaluators.append(evaluator)
        return evaluator

    def try_all(self, command: tw.Command) -> dict[Any, Trial]:
        """Returns the trial of each config by the value of its first knob."""
        evaluator = self.evaluator(command)
        assert command.options.space is not None
        return {next(iter(config.values())): evaluator(TrialRequest(config)) for config in command.options.space}

    def close(self) -> None:
        for evaluator in self.evaluators:
            evaluator.workload.runner.close()
        self.evaluators.clear()


def running(marker: str) -> list[int]:
    """The processes that have this text in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker in (entry / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def wait_until(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def needs(program: str):
    """Skips a test if a program is really not there; scripts/system installs it."""
    missing = shutil.which(program) is None
    return pytest.mark.skipif(missing, reason=f"{program} is not installed; scripts/system installs it")
