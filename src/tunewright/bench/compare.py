"""Comparison of two runs or two builds: what became faster or slower beyond the noise, and by how much."""

from __future__ import annotations

from collections.abc import Iterable
from math import log

import msgspec

from tunewright.bench.intervals import ALARMS, Estimate, estimate, log_ratios
from tunewright.bench.results import BenchRun, CallComparison, CandidateFailure, Cell
from tunewright.errors import StoreError

MARGIN = 0.01
"""The share up to which a change is not reported."""


class CellChange(msgspec.Struct, frozen=True):
    """A cell of both runs: its time after over its time before, with an interval; or its failure.

    `verdict` is slower, faster, same, broken (it ran before, and fails now), failing (in both) or mended.
    """

    call: str
    implementation: str
    verdict: str
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    reason: str = ""


class RunComparison(msgspec.Struct, frozen=True):
    """The changes of all cells, and notes on what makes the runs hard to compare."""

    changes: tuple[CellChange, ...]
    notes: tuple[str, ...] = ()

    @property
    def regressed(self) -> bool:
        """Whether any cell is slower or broken."""
        return any(change.verdict in ("slower", "broken") for change in self.changes)

    @property
    def unchanged(self) -> list[CellChange]:
        """Cells without a change beyond the noise."""
        return [change for change in self.changes if change.verdict == "same"]

    @property
    def resolution(self) -> float:
        """The largest change that an unchanged cell may hide: the farthest end of their intervals."""
        return max((max(change.high - 1, 1 / change.low - 1) for change in self.unchanged), default=0.0)


def compare_runs(before: BenchRun, after: BenchRun, margin: float = MARGIN, alarms: float = ALARMS) -> RunComparison:
    """Compares two runs; each cell by its time over that of the anchor in the same rounds."""
    later = {str(comparison.call): comparison for comparison in after.comparisons}
    pairs = [
        (old, old_cell, new, new_cell)
        for old, old_cell in before.cells()
        if (new := later.get(str(old.call))) is not None and (new_cell := new.cell(old_cell.implementation)) is not None
    ]
    if not pairs:
        raise StoreError("the two runs have no cell in common; compare runs of the same operators, shapes and dtypes")
    measured = sum(bool(old_cell.samples and new_cell.samples) for _, old_cell, _, new_cell in pairs)
    changes = []
    for old, old_cell, new, new_cell in pairs:
        call, implementation = str(old.call), old_cell.implementation
        if change := failure_change(call, implementation, old_cell.failure, new_cell.failure):
            changes.append(change)
        elif old_cell.samples and new_cell.samples:
            log_ratio = _over_anchor(new, new_cell).minus(_over_anchor(old, old_cell))
            changes.append(judge_change(call, implementation, log_ratio, margin, alarms / measured))
    return RunComparison(tuple(changes), tuple(_caveats(before, after)))


def _over_anchor(comparison: CallComparison, cell: Cell) -> Estimate:
    return estimate(log_ratios(cell.samples, comparison.anchors))


def judge_change(call: str, implementation: str, log_ratio: Estimate, margin: float, alarms: float) -> CellChange:
    """Returns a change as slower or faster if it is beyond the margin and the noise; else as the same."""
    ratio, low, high = log_ratio.bounds(alarms)
    is_large = abs(log(ratio)) > log(1 + margin)
    verdict = "slower" if low > 1 and is_large else "faster" if high < 1 and is_large else "same"
    return CellChange(call, implementation, verdict, ratio, low, high)


def failure_change(
    call: str, implementation: str, before: CandidateFailure | None, after: CandidateFailure | None
) -> CellChange | None:
    """Returns the change of a cell that failed before or after; None if it failed in neither."""
    if (before is None) == (after is None):
        return None if before is None else CellChange(call, implementation, "failing", reason=str(after))
    return CellChange(call, implementation, "broken" if after else "mended", reason=str(after or before))


def _caveats(before: BenchRun, after: BenchRun) -> Iterable[str]:
    """Why the two runs may not be comparable."""
    if before.machine != after.machine:
        yield f"different machines: {before.machine}, then {after.machine}; the anchor corrects little of that"
    if before.toolchain != after.toolchain:
        old, new = _versions(before.toolchain), _versions(after.toolchain)
        yield f"the anchor ran on {old}, then on {new}: its own time may differ"
    if before.threads != after.threads:
        yield f"on {before.threads} threads, then on {after.threads}"
    if any(len(comparison.anchors) < 3 for run in (before, after) for comparison in run.comparisons):
        yield "fewer than three repeats: differences between processes are hardly seen; bench --repeats 5"
    for name, run in (("before", before), ("after", after)):
        yield from (f"{name}: {complaint}" for complaint in run.complaints)


def _versions(toolchain: dict[str, str]) -> str:
    return " ".join(f"{name} {version}" for name, version in toolchain.items())


def describe_changes(comparison: RunComparison) -> list[str]:
    """Returns the comparison in lines: the changes, largest first, then how much the rest can have changed."""
    lines = []
    for change in sorted(comparison.changes, key=lambda change: -abs(log(change.ratio))):
        label = f"{change.call}  {change.implementation}"
        if change.verdict in ("slower", "faster"):
            spread = 100 * (change.high - change.low) / 2
            lines.append(f"{label}   {100 * (change.ratio - 1):+.1f} % ±{spread:.1f}   {change.verdict}")
        elif change.verdict != "same":
            lines.append(f"{label}   {change.verdict}: {change.reason}")
    if count := len(comparison.unchanged):
        rest = f"{count} other{'s' if count > 1 else ''}" if lines else f"all {count}" if count > 1 else "the one cell"
        bound = 100 * comparison.resolution
        lines.append(f"{rest}   no change beyond {bound:.1f} %" if bound < 1000 else f"{rest}   too noisy to tell")
    return lines
