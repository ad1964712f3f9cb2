"""Does an attack ever get a good verdict from the referee, and an honest candidate ever a bad one?

    python benchmarks/referee_attacks.py [--quick] [--json] [--only cache_by_id] [--kernelbench]
    python benchmarks/referee_attacks.py --planted-only [--planted 40] [--levels 0,3] [--resume FILE]

Attacks are files of `referee_matches/attacks`, each with the source of its idea and the verdicts that are right. Honest
candidates do what looks suspicious and are right. Each is judged against the reference of its task.

- `attacks`: how many there are. `missed`: those with another verdict than their file allows, such as `faster`.
- `honest`: how many there are. `falsely_accused`: those that were called wrong, suspect or refused.
- `planted`: verdicts on the same code with 0, 1, 3 and 10 % more work; `false_alarms` are slow-downs found where there
  are none, `found_3` those of 3 %, of so many. Without `--quick` 40 matches each, otherwise 3. `--levels` are those to
  run, `--resume FILE` keeps each verdict in a file and skips those that are there. `minutes`: how long they took.
- `kernelbench`: answers to ten tasks in the style of KernelBench, with `--kernelbench` or without `--quick`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from figures import Goal, Report, parser
from kept_rows import KeptRows, say_progress
from referee_matches.corpus import FOLDER, MatchCase, attacks, honest, kernelbench

from tunewright.errors import TunewrightError
from tunewright.referee import Referee, Submission

GOALS = (
    Goal("attacks", ">=", 40),
    Goal("missed", "==", 0),
    Goal("honest", ">=", 40),
    Goal("falsely_accused", "==", 0),
    Goal("planted.false_alarms", "==", 0),
    Goal("planted.found_3_share", ">=", 0.9),
    Goal("kernelbench.wrong_verdicts", "==", 0),
)
SHORT = {"seconds": 0.6, "sittings": 2}
"""How long the matches of the corpus take, besides starting processes."""

TELLING = {"seconds": 1.5, "sittings": 4}
"""The same for candidates that must be found slower, for which two sittings are too few."""

PLANTED = (0, 1, 3, 10)
"""Percent of more work."""


@dataclass(frozen=True)
class JudgedCase:
    """The verdict on a candidate of the corpus."""

    case: MatchCase
    outcome: str
    reason: str
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.outcome in self.case.verdicts

    def row(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.case.name, "outcome": self.outcome, "right": self.is_right, "reason": self.reason[:160]}

    def line(self) -> str:
        """For people."""
        mark = "ok    " if self.is_right else "MISSED"
        return f"  {mark} {self.case.name:<32}{self.outcome:<9}{self.seconds:5.1f} s  {self.reason[:100]}"


def judge(case: MatchCase) -> JudgedCase:
    """Judge one candidate; an error of the referee itself is no verdict."""
    began = time.monotonic()
    try:
        length = TELLING if case.verdicts == ("slower",) else SHORT
        verdict = Referee(case.task, **length).run(case.candidate).verdict
        outcome, reason = verdict.outcome, verdict.reason
    except TunewrightError as error:
        outcome, reason = "error", f"{type(error).__name__}: {error}"
    judged = JudgedCase(case, outcome, " ".join(reason.split()), time.monotonic() - began)
    print(judged.line(), file=sys.stderr, flush=True)
    return judged


def note(report: Report, judged: Sequence[JudgedCase]) -> None:
    """Add the figures of attacks and of honest candidates."""
    bad, good = ([each for each in judged if each.case.is_attack == attack] for attack in (True, False))
    report.figures |= {
        "attacks": len(bad),
        "missed": sum(not each.is_right for each in bad),
        "honest": len(good),
        "falsely_accused": sum(not each.is_right for each in good),
        "rows": [each.row() for each in judged],
    }
    report.lines += [each.line() for each in judged]


PLANT = """
import numpy as np
memory = np.zeros({size} + 16, np.float32)
weights = memory[-memory.ctypes.data % 64 // 4 :][:{size}]  # aligned alike in every process
weights[:] = 1.5

def softmax(x):
    total = np.float32(0)
    for _ in range({rounds}):
        total += np.dot(weights, weights)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) + total * np.float32(0)
"""
"""A candidate in which almost all time is spent in `rounds` equal steps."""

STEPS, STEP = 3000, 6_000
PLANTED_MATCH = {"seconds": 3.2, "sittings": 8}


def plant(percent: int) -> Submission:
    """A candidate with so much more work than that of 0 %."""
    return Submission(f"{percent} % more", "python", PLANT.format(size=STEP, rounds=STEPS * (100 + percent) // 100))


def note_planted(report: Report, count: int, levels: Sequence[int], kept: KeptRows) -> None:
    """Judge planted slow-downs against the same code without, the levels in turn."""
    referee = Referee(FOLDER / "tasks" / "softmax_planted.py", **PLANTED_MATCH)
    left = [(number, percent) for number in range(count) for percent in levels if (str(percent), number) not in kept]
    began = time.monotonic()
    for done, (number, percent) in enumerate(left, 1):
        start = time.monotonic()
        verdict = referee.run(plant(percent), [plant(0)]).verdict
        load, seconds = os.getloadavg()[0], time.monotonic() - start
        kept.add(str(percent), number, outcome=verdict.outcome, ratio=verdict.ratio, seconds=seconds, load=load)
        found = f"{verdict.outcome}: {verdict.reason}; {seconds:.1f} s, load {load:.1f}"
        say_progress(f"  planted {percent} % #{number}: {found}", began, done, len(left))
    rows = {percent: list(kept.of(str(percent), count)) for percent in levels}
    outcomes = {percent: [row["outcome"] for row in own] for percent, own in rows.items()}
    figures: dict[str, Any] = {str(percent): _counts(found) for percent, found in outcomes.items()}
    figures["each"] = count
    if 0 in outcomes:
        figures["false_alarms"] = sum(outcome != "tie" for outcome in outcomes[0])
    if 3 in outcomes:
        figures["found_3"] = outcomes[3].count("slower")
        figures["found_3_share"] = round(outcomes[3].count("slower") / count, 3)
    every = [row for own in rows.values() for row in own]
    figures["load"] = round(max(row["load"] for row in every), 2)
    figures["minutes"] = round(sum(row["seconds"] for row in every) / 60, 1)
    report.figures["planted"] = figures
    report.lines.append(f"planted: {figures}")


def _counts(outcomes: Iterable[str]) -> dict[str, int]:
    found = list(outcomes)
    return {outcome: found.count(outcome) for outcome in sorted(set(found))}


def note_kernelbench(report: Report) -> None:
    """Judge answers to tasks in the style of KernelBench; nothing if torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        report.lines.append("torch is not installed: no tasks in the style of KernelBench")
        return
    judged = [judge(case) for case in kernelbench()]
    report.figures["kernelbench"] = {
        "answers": len(judged),
        "tasks": len({each.case.task for each in judged}),
        "wrong_verdicts": sum(not each.is_right for each in judged),
        "rows": [each.row() for each in judged],
    }
    report.lines += [each.line() for each in judged]


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge attacks and honest candidates, count."""
    takes = parser(__doc__)
    takes.add_argument("--only", metavar="NAME", help="candidates whose name begins so")
    takes.add_argument("--kernelbench", action="store_true", help="tasks in the style of KernelBench, also if quick")
    takes.add_argument("--planted", type=int, help="matches for each planted slow-down (default: 40, with --quick 3)")
    takes.add_argument("--planted-only", action="store_true", help="nothing but planted slow-downs")
    takes.add_argument("--levels", default=",".join(map(str, PLANTED)), help="percent that are planted")
    takes.add_argument("--resume", type=Path, metavar="FILE", help="keep verdicts on planted slow-downs, and continue")
    given = takes.parse_args(arguments)
    report = Report()
    planted = given.planted if given.planted is not None else 3 if given.quick else 40
    levels = [int(text) for text in given.levels.split(",")]
    if given.planted_only:
        note_planted(report, planted, levels, KeptRows(given.resume))
        return report.finish(_goals_of(report), as_json=given.json)
    cases = [*attacks(), *honest()]
    if given.only:
        cases += kernelbench()
        cases = [case for case in cases if case.name.startswith(given.only)]
        if not cases:
            takes.error(f"no candidate {given.only!r}")
        note(report, [judge(case) for case in cases])
        return report.finish((), as_json=given.json)
    note(report, [judge(case) for case in cases])
    if planted:
        note_planted(report, planted, levels, KeptRows(given.resume))
    if given.kernelbench or not given.quick:
        note_kernelbench(report)
    return report.finish(_goals_of(report), as_json=given.json)


def _goals_of(report: Report) -> list[Goal]:
    """The goals of what was run."""
    planted = report.figures.get("planted", {})
    known = {*report.figures, *(f"planted.{name}" for name in planted)}
    return [goal for goal in GOALS if goal.figure in known or goal.figure.partition(".")[0] == "kernelbench" in known]


if __name__ == "__main__":
    sys.exit(main())
