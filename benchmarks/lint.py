"""Does the key linter find what is wrong with keys, and nothing else? Planted faults and healthy controls.

    python benchmarks/lint.py [--quick] [--json] [--seed 1] [--only missing]

Needless fields (over-specified): stores filled by tuning on a simulated machine, in all weathers, over keys in which a
field that never changes the winner is varied; healthy ones vary fields that do, or vary them too little to say.
Missing ones (under-specified): real kernels whose faster way depends on what their key does not hold, raced under
perturbations; and keys that were tuned again after something hidden had changed, on the simulated machine. Controls
are kernels, and keys tuned again, for which nothing has changed.

What counts is a field of a store, or a sort of perturbation of a kernel: `precision` is the share of those reported
that were planted, `recall` the share of those planted that were reported. What changes the winner of a real kernel on
this machine is first found out by plain timing, without the linter: the quickest of many bursts of each way. What is
planted counts only if that shows it clearly (else it is listed as void), what shows besides counts as planted, too, and
what shows half (a change of less than a tenth) counts neither way. The linter's faults were mended with the help of
these kernels; `fresh` are some that were written afterwards.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import Any

import lint_fresh as fresh
import lint_kernels as kernels
import lint_stores as stores
import numpy as np
from figures import Goal, Report, parser
from lint_kernels import Planted

import tunewright as tw
from tunewright.kernel.tuned import Tuned
from tunewright.keylint.perturb import perturb_kernel
from tunewright.keylint.perturbations import perturbations

KINDS = ("needless", "missing", "fresh")
GOALS = tuple(Goal(f"{kind}.{figure}", ">=", 0.9) for kind in KINDS for figure in ("precision", "recall"))
APART = 1.1
"""How many times faster a way must be by plain timing, here and there, for a kernel to count as a mutant."""

BURST, BURSTS = 3e-4, 10
"""Seconds that a burst of plain timing lasts, and how many there are."""

QUICK = ("sort_kinds", "short_sums", "dot")


@dataclass
class Score:
    """What was planted and what was reported, of one kind."""

    hits: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    healthy: int = 0

    def add(self, name: str, planted: set[str], reported: set[str]) -> str:
        """Count one store or kernel; what to say of it."""
        self.hits += [f"{name}: {what}" for what in planted & reported]
        self.missed += [f"{name}: {what}" for what in planted - reported]
        self.false += [f"{name}: {what}" for what in reported - planted]
        self.healthy += not planted
        verdict = "MISSED" if planted - reported else "FALSE" if reported - planted else "ok"
        return f"  {verdict:7} {name:34} planted: {_list(planted):28} reported: {_list(reported)}"

    def plain(self) -> dict[str, Any]:
        reported, planted = len(self.hits) + len(self.false), len(self.hits) + len(self.missed)
        return {
            "precision": round(len(self.hits) / reported, 3) if reported else 1.0,
            "recall": round(len(self.hits) / planted, 3) if planted else 1.0,
            "planted": planted,
            "healthy": self.healthy,
            "missed": self.missed,
            "false": self.false,
        }


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "-"


def quickest(calls: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Seconds of the quickest of some bursts of each call, taken in turn, by the CPU clock."""
    counts, found = dict.fromkeys(calls, 1), {name: [float("inf")] for name in calls}
    for name, call in calls.items():
        call()
        while (took := _burst(call, counts[name])) < BURST and counts[name] < 4096:
            counts[name] *= 2
        found[name].append(took / counts[name])
    for _ in range(BURSTS):
        for name, call in calls.items():
            found[name].append(_burst(call, counts[name]) / counts[name])
    return {name: min(each) for name, each in found.items()}


def _burst(call: Callable[[], Any], count: int) -> float:
    began = process_time()
    for _ in range(count):
        call()
    return process_time() - began


class Truth:
    """What changes the winner of a kernel, by plain timing: clearly, or perhaps."""

    def __init__(self, one: Planted, kernel: Tuned) -> None:
        self._one, args = one, kernel.example(one.sizes)
        self.clear: set[str] = set()
        self.perhaps: set[str] = set()
        key, self._here = kernel.problem(args).key, self._times(args)
        for change in perturbations(kernel, one.sizes, args):
            if kernel.problem(made := change.make()).key == key:
                first = self._flip(made)
                again = min(first, self._flip(made)) if first > 1 else first  # one measurement of many may be off
                self.clear |= {str(change.sort)} if again > APART else set()
                self.perhaps |= {str(change.sort)} if first > 1 else set()

    def _times(self, args: Sequence[Any]) -> dict[Any, float]:
        return quickest({way: partial(self._one.function, *args, way=way) for way in self._one.ways})

    def _flip(self, args: Sequence[Any]) -> float:
        """By how much another way wins with these arguments, and loses as they were: the smaller of the two."""
        here, there = self._here, self._times(args)
        before, now = min(here, key=here.__getitem__), min(there, key=there.__getitem__)
        return min(there[before] / there[now], here[now] / here[before])


def missing_in_kernels(score: Score, report: Report, chosen: Sequence[Planted], session: tw.Session) -> None:
    for one in chosen:
        kernel, began = one.kernel(session), time.perf_counter()
        truth = Truth(one, kernel)
        planted = {str(sort) for sort in one.misses}
        if void := planted - truth.clear:
            report.figures["void"] += [f"{one.name}: {sort}" for sort in void]
            if not truth.clear:
                report.lines.append(f"  void    {one.name:34} no mutant here, by plain timing: {_list(planted)}")
                continue
        found = perturb_kernel(kernel, one.sizes)
        reported = {str(change.sort) for change in found.changes}
        said = score.add(one.name, truth.clear, reported - (truth.perhaps - truth.clear))
        by = ", ".join(f"{c.name} {c.gain.ratio:.2f}x/{c.reverse.ratio:.2f}x" for c in found.changes)
        note = "; not clear here: " + ", ".join(sorted(void)) if void else ""
        report.lines.append(f"{said}  ({by or 'none'}{note}; {time.perf_counter() - began:.1f} s)")
        for trouble in found.troubles:
            report.lines.append(f"          {one.name}: {trouble.name}: {trouble.config} fails: {trouble.reason[:90]}")


def needless_in_stores(score: Score, report: Report, seed: int, *, quick: bool) -> None:
    for stored in stores.OVER[:: 19 if quick else 1]:
        began = time.perf_counter()
        said = score.add(stored.name, stored.planted, stores.reported(stored, seed))
        report.lines.append(f"{said}  ({time.perf_counter() - began:.1f} s)")


def missing_in_histories(score: Score, report: Report, seed: int, *, quick: bool) -> None:
    for again in stores.AGAIN[:: 5 if quick else 1]:
        report.lines.append(score.add(again.name, again.planted, stores.contradicted(again, seed)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, lint, count."""
    takes = parser(__doc__)
    takes.add_argument("--seed", type=int, default=1, help="of the simulated machines")
    takes.add_argument("--only", choices=KINDS, help="one kind of fault")
    given = takes.parse_args(arguments)
    report = Report({"void": []})
    wanted = [given.only] if given.only else KINDS[:2] if given.quick else KINDS
    scores = {kind: Score() for kind in wanted}
    if "needless" in scores:
        report.lines.append("needless fields, in stores tuned on a simulated machine")
        needless_in_stores(scores["needless"], report, given.seed, quick=given.quick)
    if "missing" in scores:
        report.lines.append("missing ones, in keys tuned again on a simulated machine")
        missing_in_histories(scores["missing"], report, given.seed, quick=given.quick)
        report.lines.append("missing ones, in real kernels perturbed (gain there / here)")
        chosen = [one for one in (*kernels.MUTANTS, *kernels.CONTROLS) if not given.quick or one.name in QUICK]
        with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
            missing_in_kernels(scores["missing"], report, chosen, tw.Session(cache=folder, pool="serial"))
    if "fresh" in scores:
        report.lines.append("missing ones, in real kernels that are new to the linter")
        with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
            missing_in_kernels(scores["fresh"], report, fresh.FRESH, tw.Session(cache=folder, pool="serial"))
    for kind, score in scores.items():
        report.figures[kind] = one = score.plain()
        report.lines.append(
            f"{kind}: precision {one['precision']}, recall {one['recall']}: {one['planted']} planted, "
            f"{one['healthy']} healthy, {len(one['missed'])} missed, {len(one['false'])} reported falsely"
        )
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
