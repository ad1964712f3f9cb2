"""Is a kernel that cheats ever chosen, and an honest one ever refused? In Python, C, torch and Triton.

    python benchmarks/referee.py [--quick] [--json] [--only memo_prefix] [--lang c] [--repeats 1] [--jobs 2]

A cheat has one honest way to compute, its default, and a faster one that is wrong: always, later, now and then, for
other arguments, or only if nobody looks. Honest kernels do what looks suspicious, and is right: they keep what was
declared constant, cache scratch memory, vary within their tolerance, write in place. Each is tuned by itself in a
process, with a store and a cache of its own; its trials run in a worker process, as they do by default. Calls on
tensors (`torch`) and Triton kernels are tried in the process itself, as their front ends do; Triton's on a fake driver,
which computes, and whose times are made up.

- `chosen`: cheats that became the decision. `caught`: cheats that failed, in their trial or in the final race. Those
  neither chosen nor caught did not gain from cheating; `errors` are tunings that ended without a decision.
- `refused`: honest kernels of which a config failed, or that were not decided at all.
- `cost_ratio`: tuning time with verification during timing over that without; geometric mean.

Each kernel is tuned three times: one that is chosen or refused once counts. `--quick` tunes once, and leaves out what
does nearly the same as another.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from multiprocessing.connection import wait
from typing import Any

# One thread, as workers have it: numpy reads these when it is imported.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from figures import Goal, Report, parser
from referee_corpus import is_left_out, load_cases
from referee_corpus.case import Case, Tuning

from tunewright.errors import TunewrightError
from tunewright.model.trial import Failure, Trial

GROUPS = (("python", "c"), ("torch", "triton"))
"""Languages whose cases are judged together: torch is not loaded while kernels of the first are judged."""

LANGUAGES = tuple(language for group in GROUPS for language in group)
GOALS = (
    *(Goal(f"{language}.{figure}", "==", 0) for language in LANGUAGES for figure in ("chosen", "refused", "errors")),
    *(Goal(f"{language}.{figure}", ">=", 25) for language in LANGUAGES for figure in ("cheats", "honest")),
    Goal("cost_ratio", "<=", 1.15),
)
MAX_SECONDS = 180.0
"""A tuning that takes longer counts as an error."""

WORST = ("chosen", "refused", "error", "caught", "not faster", "accepted")
"""Outcomes, those that count most first."""


@dataclass(frozen=True)
class Verdict:
    """How the tuning of a case ended."""

    name: str
    language: str
    cheats: bool
    outcome: str
    reason: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """For people."""
        return f"  {self.outcome:<11}{self.language:<7} {self.name:<28}{self.seconds:5.1f} s  {self.reason[:120]}"


def judge(case: Case, seed: int) -> tuple[str, str]:
    """Tune a case in this process; the outcome and the reason."""
    notes = _Notes()
    try:
        tuning = case.tune(case, seed)
    except TunewrightError as error:
        return "error" if case.cheat else "refused", f"{type(error).__name__}: {error}"
    if not case.cheat:
        return _judge_honest(tuning, notes)
    decision = tuning.decision
    cheats = [trial for trial in tuning.trials if case.cheat in trial.config.values()]
    failed = _first_failure(cheats) or notes.failure(f"={case.cheat} failed")
    if case.cheat in decision.config.values():
        gain = decision.evidence and decision.evidence.gain
        return "chosen", f"{decision.config}, gain {gain or 1:.2f}"
    return ("caught", failed) if failed else ("not faster", "")


def _judge_honest(tuning: Tuning, notes: _Notes) -> tuple[str, str]:
    tried = {trial.config for trial in tuning.trials}
    untried = [str(config) for config in tuning.configs if config not in tried]
    reason = _first_failure(tuning.trials) or notes.failure(" failed") or (f"untried: {untried[0]}" if untried else "")
    return ("refused", reason) if reason else ("accepted", "")


def _first_failure(trials: Iterable[Trial]) -> str:
    failures = [(trial.config, trial.outcome) for trial in trials if isinstance(trial.outcome, Failure)]
    return next((f"{config}: {each.kind} at {each.stage}: {each.reason}" for config, each in failures), "")


class _Notes(logging.Handler):
    """What the library warns of; a config that fails in the final race is a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: list[str] = []
        logger = logging.getLogger("tunewright")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())

    def failure(self, words: str) -> str:
        """A warning with these words, or of a race that ended by a crash."""
        return next((text for text in self._texts if words in text or "crashed or hung" in text), "")


def run(cases: Sequence[Case], seeds: Sequence[int], jobs: int) -> Iterator[Verdict]:
    """Judge all cases, each in a child of its own, some at once; in the order in which they end."""
    waiting = [(case, seed) for seed in seeds for case in cases]
    running: dict[Any, Child] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            child = Child(*waiting.pop(0))
            running[child.process.sentinel] = child
        ended = wait(list(running), timeout=1.0)
        late = [sentinel for sentinel, child in running.items() if child.elapsed > MAX_SECONDS]
        for sentinel in {*ended, *late}:
            yield running.pop(sentinel).verdict()


class Child:
    """A process that judges one case, in a folder of its own; workers die with it."""

    def __init__(self, case: Case, seed: int) -> None:
        fork = multiprocessing.get_context("fork")
        self._case, self._began = case, time.monotonic()
        self._folder = tempfile.TemporaryDirectory(prefix="referee-")
        self._receiver, sender = fork.Pipe(duplex=False)
        self.process = fork.Process(target=_judge_apart, args=(case, seed, self._folder.name, sender))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forking beside threads
            self.process.start()
        sender.close()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def verdict(self) -> Verdict:
        """What it found; it is ended if it has not."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        try:
            outcome, reason = self._receiver.recv() if self._receiver.poll() else self._without()
        except EOFError:
            outcome, reason = self._without()
        self._folder.cleanup()
        case = self._case
        return Verdict(case.name, case.language, bool(case.cheat), outcome, reason, round(self.elapsed, 2))

    def _without(self) -> tuple[str, str]:
        reason = f"no verdict after {self.elapsed:.0f} s, exit code {self.process.exitcode}"
        return "error" if self._case.cheat else "refused", reason


def _judge_apart(case: Case, seed: int, folder: str, sender: Any) -> None:
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("TUNEWRIGHT_")]:
        del os.environ[name]
    os.environ["XDG_CONFIG_HOME"] = os.environ["TUNEWRIGHT_CACHE"] = folder
    sender.send(judge(case, seed))


def worst(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """One verdict of each case: that which counts most."""
    found: dict[tuple[str, str], Verdict] = {}
    for verdict in sorted(verdicts, key=lambda verdict: WORST.index(verdict.outcome)):
        found.setdefault((verdict.language, verdict.name), verdict)
    return list(found.values())


def note(report: Report, verdicts: Sequence[Verdict]) -> None:
    """Add the figures of each language, and a row for each case."""
    for language in LANGUAGES:
        mine = [verdict for verdict in verdicts if verdict.language == language]
        if not mine:
            continue
        counts = Counter(verdict.outcome for verdict in mine)
        cheats = sum(verdict.cheats for verdict in mine)
        names = ("chosen", "caught", "not faster", "refused")
        report.figures[language] = figures = {"cheats": cheats, "honest": len(mine) - cheats}
        figures |= {name.replace(" ", "_"): counts[name] for name in names} | {"errors": counts["error"]}
        report.lines.append(f"{language}: " + ", ".join(f"{name} {value}" for name, value in figures.items()))
    ordered = sorted(verdicts, key=lambda verdict: (WORST.index(verdict.outcome), verdict.language))
    report.figures["rows"] = [asdict(verdict) for verdict in ordered]
    report.lines += [verdict.line() for verdict in ordered]


def note_cost(report: Report) -> None:
    """Add what verification during timing costs."""
    from referee_corpus.costs import COSTS

    ratios = {name: measure() for name, measure in COSTS.items()}
    report.figures["costs"] = {name: round(ratio, 3) for name, ratio in ratios.items()}
    report.figures["cost_ratio"] = round(exp(sum(map(log, ratios.values())) / len(ratios)), 3)
    report.lines.append(f"verification during timing takes {report.figures['cost_ratio']:.2f} times as long as none")


def select(given: Any, shared: str) -> Iterator[list[Case]]:
    """The cases that were asked for, by groups; what processes share is in a folder."""
    for group in GROUPS:
        languages = [language for language in group if given.lang in (None, language)]
        cases = load_cases(*languages) if languages else []
        if given.only:
            cases = [case for case in cases if case.name == given.only]
        elif given.quick:
            cases = [case for case in cases if not is_left_out(case)]
        if any(case.language == "triton" for case in cases):
            from referee_corpus.triton_launches import prepare

            prepare(shared)
        yield cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune cheats and honest kernels, count."""
    takes = parser(__doc__)
    takes.add_argument("--only", metavar="NAME", help="cases of this name")
    takes.add_argument("--lang", choices=LANGUAGES, help="cases in this language")
    takes.add_argument("--repeats", type=int, help="how often each is tuned (default: 3, with --quick 1)")
    takes.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="how many are tuned at once")
    given = takes.parse_args(arguments)
    repeats = given.repeats or (1 if given.quick else 3)
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="referee-") as shared:
        for cases in select(given, shared):
            for verdict in run(cases, range(repeats), given.jobs):
                verdicts.append(verdict)
                print(verdict.line(), file=sys.stderr, flush=True)
    if not verdicts:
        takes.error(f"no case {given.only!r}" if given.only else f"nothing for {given.lang} is installed")
    report = Report()
    note(report, worst(verdicts))
    if given.only is None and given.lang not in GROUPS[1]:
        note_cost(report)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
