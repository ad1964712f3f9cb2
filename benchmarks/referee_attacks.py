"""Does an attack ever get a good verdict from the referee, and an honest candidate ever a bad one?

    python benchmarks/referee_attacks.py [--quick] [--json] [--only cache_by_id] [--kernelbench]

Attacks are files of `referee_matches/attacks`, each with the source of its idea and the verdicts that are right. Honest
candidates do what looks suspicious and are right. Each is judged against the reference of its task.

- `attacks`: how many there are. `missed`: those with another verdict than their file allows, such as `faster`.
- `honest`: how many there are. `falsely_accused`: those that were called wrong, suspect or refused.
- `planted`: verdicts on the same code with 0, 1, 3 and 10 % more work; `false_alarms` are slow-downs found where there
  are none, `found_3` those of 3 %, of so many. Without `--quick` 40 matches each, otherwise 3.
- `kernelbench`: answers to ten tasks in the style of KernelBench, with `--kernelbench` or without `--quick`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from figures import Goal, Report, parser
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
        verdict = Referee(case.task, **SHORT).run(case.candidate).verdict
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

STEPS, STEP = 2000, 6_000


def plant(percent: int) -> Submission:
    """A candidate with so much more work than that of 0 %."""
    return Submission(f"{percent} % more", "python", PLANT.format(size=STEP, rounds=STEPS * (100 + percent) // 100))


def note_planted(report: Report, count: int, seconds: float) -> None:
    """Judge planted slow-downs against the same code without."""
    outcomes: dict[int, list[str]] = {percent: [] for percent in PLANTED}
    referee = Referee(FOLDER / "tasks" / "softmax_planted.py", seconds=seconds, sittings=8)
    for _ in range(count):
        for percent in PLANTED:
            verdict = referee.run(plant(percent), [plant(0)]).verdict
            outcomes[percent].append(verdict.outcome)
            print(f"  planted {percent} %: {verdict.outcome}: {verdict.reason}", file=sys.stderr, flush=True)
    figures: dict[str, Any] = {str(percent): _counts(found) for percent, found in outcomes.items()}
    figures["each"] = count
    figures["false_alarms"] = sum(outcome != "tie" for outcome in outcomes[0])
    figures["found_3"] = outcomes[3].count("slower")
    figures["found_3_share"] = round(outcomes[3].count("slower") / count, 3)
    figures["load"] = round(os.getloadavg()[0], 2)
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
    given = takes.parse_args(arguments)
    report = Report()
    cases = [*attacks(), *honest()]
    if given.only:
        cases += kernelbench()
        cases = [case for case in cases if case.name.startswith(given.only)]
        if not cases:
            takes.error(f"no candidate {given.only!r}")
        note(report, [judge(case) for case in cases])
        return report.finish((), as_json=given.json)
    note(report, [judge(case) for case in cases])
    planted = given.planted if given.planted is not None else 3 if given.quick else 40
    if planted:
        note_planted(report, planted, 12.0)
    if given.kernelbench or not given.quick:
        note_kernelbench(report)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
