"""What a case of the corpus is, what it is given and what it returns."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SECRET = "hunter2-do-not-print"
"""What attacks plant as a password or token: a case whose output has it, leaks."""

HELD = "held"
WRONG_CONFIG = "wrong_config"
CODE_RUN = "code_run"
CRASH = "crash"
LEAK = "leak"
LOSS = "loss"
REFUSED = "refused"
SKIPPED = "skipped"


class Finding(NamedTuple):
    """How a case ended: one of the words above, and why."""

    outcome: str
    reason: str = ""


def held(reason: str = "") -> Finding:
    """Nothing happened that an attacker wants; for an honest case: it worked."""
    return Finding(HELD, reason)


class NotPossibleHere(Exception):
    """Raised by a case that this machine cannot run, as without root or a compiler."""


@dataclass(frozen=True)
class Workspace:
    """What a case is given: an empty folder, which is also the current one, and a file that planted code writes."""

    folder: Path
    marker: Path

    @property
    def python(self) -> str:
        """Python source that shows that it ran."""
        return f"open({str(self.marker)!r}, 'w').close()\n"

    @property
    def c(self) -> str:
        """C source of a library that shows that it was loaded."""
        body = f'FILE *file = fopen("{self.marker}", "w"); if (file) fclose(file);'
        return f"#include <stdio.h>\n__attribute__((constructor)) static void planted(void) {{ {body} }}\n"

    @property
    def shell(self) -> str:
        """A shell command that shows that it ran."""
        return f"touch {shlex.quote(str(self.marker))}"

    def run(
        self, *command: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; what it prints is searched for the secret, as all output of a case is.

        `tunewright` and `python` are those of this process. A command that dies by a signal crashes, and so does
        `tunewright` if it shows a traceback.
        """
        ours = {"tunewright": (sys.executable, "-m", "tunewright"), "python": (sys.executable,)}
        program = ours.get(command[0], (command[0],))
        done = subprocess.run(
            [*program, *command[1:]],
            env={**os.environ, **(environ or {})},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
        )
        print(done.stdout, done.stderr, sep="\n", flush=True)
        if done.returncode < 0 or (command[0] == "tunewright" and "Traceback (most recent" in done.stderr):
            raise ChildProcessError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr[-300:]}")
        return done


Function = Callable[[Workspace], Finding]


@dataclass(frozen=True)
class Case:
    """An attack, or an honest use. `quick` ones run with `--quick`, too."""

    name: str
    module: str
    honest: bool
    quick: bool
    function: Function


CASES: list[Case] = []


def attack(function: Function | None = None, /, *, quick: bool = True) -> Callable[[Function], Function] | Function:
    """Declares a function to be an attack."""
    return _declare(function, honest=False, quick=quick)


def honest(function: Function | None = None, /, *, quick: bool = True) -> Callable[[Function], Function] | Function:
    """Declares a function to be an honest use, which must not be refused."""
    return _declare(function, honest=True, quick=quick)


def _declare(function: Function | None, *, honest: bool, quick: bool) -> Callable[[Function], Function] | Function:
    def declare(function: Function) -> Function:
        module = function.__module__.rpartition(".")[2]
        CASES.append(Case(function.__name__, module, honest, quick, function))
        return function

    return declare if function is None else declare(function)
