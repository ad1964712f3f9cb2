"""Does hostile data ever change a config, run code, crash a process or show a secret? Is honest data refused?

    python benchmarks/hostile.py [--quick] [--json] [--only NAME] [--module configuration] [--jobs 2]

Each case of `hostile_corpus` runs in a process of its own, in an empty folder, with an empty home and no setting. An
attack plants a file, a record, an answer or a setting, and then uses the library as a victim would.

- `wrong_configs`: a config was used that no honest tuning chose. `code_runs`: planted code ran. `crashes`: a process
  died by a signal, hung, or raised another error than those of the library. `leaks`: a planted secret was printed,
  logged or sent. `losses`: records were deleted that must stay.
- `refused`: honest cases that did not work.

A case that this machine cannot run, as without root, counts as skipped.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from figures import Goal, Report, parser
from hostile_corpus import load_cases
from hostile_corpus.case import (
    CODE_RUN,
    CRASH,
    HELD,
    LEAK,
    LOSS,
    REFUSED,
    SECRET,
    SKIPPED,
    WRONG_CONFIG,
    Case,
    Finding,
    NotPossibleHere,
    Workspace,
)

from tunewright.errors import TunewrightError

COUNTS = {
    "wrong_configs": WRONG_CONFIG,
    "code_runs": CODE_RUN,
    "crashes": CRASH,
    "leaks": LEAK,
    "losses": LOSS,
    "refused": REFUSED,
}
"""Figures that must be 0, and the outcome that each counts."""

GOALS = tuple(Goal(figure, "==", 0) for figure in COUNTS)
MAX_SECONDS = 60.0
"""A case that takes longer hangs."""

MAX_BYTES = 6 << 30
"""Address space of a process: what asks for more fails instead of filling the machine."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended."""

    module: str
    name: str
    honest: bool
    outcome: str
    reason: str
    seconds: float

    def line(self) -> str:
        """For people."""
        kind = "honest" if self.honest else "attack"
        where = f"{self.module}.{self.name}"
        return f"  {self.outcome:<13}{kind:<7} {where:<64}{self.seconds:5.1f} s  {self.reason[:160]}"


def run(cases: Sequence[Case], jobs: int) -> Iterator[Verdict]:
    """Runs all cases, each in a child of its own, some at once; in the order in which they end."""
    waiting = list(cases)
    running: dict[Any, Child] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            child = Child(waiting.pop(0))
            running[child.process.sentinel] = child
        ended = wait(list(running), timeout=1.0)
        late = [sentinel for sentinel, child in running.items() if child.elapsed > MAX_SECONDS]
        for sentinel in {*ended, *late}:
            yield running.pop(sentinel).verdict(hangs=sentinel not in ended)


class Child:
    """A process that runs one case, in a folder of its own; the processes that it started die with it."""

    def __init__(self, case: Case) -> None:
        fork = multiprocessing.get_context("fork")
        self._case, self._began = case, time.monotonic()
        self._temporary = tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True)
        self._top = Path(self._temporary.name)
        self._top.chmod(0o755)  # another user may come here, too
        self._receiver, sender = fork.Pipe(duplex=False)
        self.process = fork.Process(target=_run_apart, args=(case, self._top, sender))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forking beside threads
            self.process.start()
        sender.close()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def verdict(self, *, hangs: bool) -> Verdict:
        """How the case ended; what still runs of it is stopped."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.join()
        finding = self._judge(hangs)
        self._temporary.cleanup()
        case = self._case
        return Verdict(case.module, case.name, case.honest, *finding, round(self.elapsed, 2))

    def _judge(self, hangs: bool) -> Finding:
        if (self._top / "planted").exists():
            return Finding(CODE_RUN, "planted code ran")
        output = (self._top / "output").read_text(errors="replace")
        if SECRET in output:
            return Finding(LEAK, next(line for line in output.splitlines() if SECRET in line))
        finding = self._received()
        if hangs or finding is None:
            why = f"hung for {self.elapsed:.0f} s" if hangs else f"died with exit code {self.process.exitcode}"
            return Finding(CRASH, f"{why}: {output.strip()[-300:]}")
        if self._case.honest and finding.outcome not in (HELD, SKIPPED, LEAK):
            return Finding(REFUSED, f"{finding.outcome}: {finding.reason}")
        return finding

    def _received(self) -> Finding | None:
        try:
            return Finding(*self._receiver.recv()) if self._receiver.poll() else None
        except EOFError:
            return None


def _run_apart(case: Case, top: Path, sender: Any) -> None:
    os.setsid()
    output = os.open(top / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # Also where the one who started us has replaced them.
    sys.stdout, sys.stderr = (open(stream, "w", buffering=1, closefd=False) for stream in (1, 2))  # noqa: SIM115
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, force=True)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, resource.RLIM_INFINITY))
    for name in [name for name in os.environ if name.startswith(("TUNEWRIGHT_", "XDG_"))]:
        del os.environ[name]
    for name in ("home", "work"):
        (top / name).mkdir()
    os.environ["HOME"] = str(top / "home")
    os.chdir(top / "work")
    sender.send(tuple(find(case, Workspace(top / "work", top / "planted"))))


def find(case: Case, workspace: Workspace) -> Finding:
    """Runs a case in this process. An error of the library is a refusal, any other is a crash."""
    try:
        return case.function(workspace)
    except NotPossibleHere as reason:
        return Finding(SKIPPED, str(reason))
    except TunewrightError as error:
        said = f"{type(error).__name__}: {error}"
        return Finding(LEAK if SECRET in said else REFUSED if case.honest else HELD, said)
    except Exception as error:
        logging.exception("raised")
        return Finding(LEAK if SECRET in str(error) else CRASH, f"{type(error).__name__}: {error}")


def note(report: Report, verdicts: Sequence[Verdict]) -> None:
    """Adds the figures, and a row for each case, those that failed first."""
    ran = [verdict for verdict in verdicts if verdict.outcome != SKIPPED]
    counts = Counter(verdict.outcome for verdict in verdicts)
    honest = sum(verdict.honest for verdict in ran)
    report.figures |= {"cases": len(ran) - honest, "honest": honest, "skipped": counts[SKIPPED]}
    report.figures |= {figure: counts[outcome] for figure, outcome in COUNTS.items()}
    report.lines.append(", ".join(f"{name} {value}" for name, value in report.figures.items()))
    ordered = sorted(verdicts, key=lambda verdict: (verdict.outcome in (HELD, SKIPPED), verdict.module, verdict.name))
    report.figures["rows"] = [asdict(verdict) for verdict in ordered]
    report.lines += [verdict.line() for verdict in ordered]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases and counts."""
    takes = parser(__doc__)
    takes.add_argument("--only", metavar="NAME", help="cases of this name")
    takes.add_argument("--module", metavar="NAME", help="cases of this module")
    takes.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="how many run at once")
    given = takes.parse_args(arguments)
    cases = [case for case in load_cases() if given.module in (None, case.module)]
    cases = [case for case in cases if (case.name == given.only if given.only else case.quick or not given.quick)]
    if not cases:
        takes.error("no such case; leave out --only and --module to run all")
    verdicts = []
    for verdict in run(cases, given.jobs):
        verdicts.append(verdict)
        print(verdict.line(), file=sys.stderr, flush=True)
    report = Report()
    note(report, verdicts)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
