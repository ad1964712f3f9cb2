"""Comparing: what became faster or slower beyond the noise, between two runs or two builds, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

import msgspec

from tunewright.bench.doubt import ALARMS, Estimate, estimate, ratios
from tunewright.bench.run import Bout, Cell, Mishap, Run
from tunewright.errors import StoreError

MARGIN = 0.01
"""A change too small to be told."""


class Change(msgspec.Struct, frozen=True):
    """A cell seen twice: its time afterwards over that before, with an interval; or who failed.

    `verdict` is slower, faster, same, broken (it ran before, and does not now), failing (both times) or mended.
    """

    call: str
    implementation: str
    verdict: str
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    reason: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """All changes, what the least was that could have been told of the others, and what spoils the comparison."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def regressed(self) -> bool:
        """Whether anything is slower, or broken."""
        return any(change.verdict in ("slower", "broken") for change in self.changes)

    @property
    def unchanged(self) -> list[Change]:
        """Those of which nothing is known but that they changed little."""
        return [change for change in self.changes if change.verdict == "same"]

    @property
    def resolution(self) -> float:
        """What the unchanged may have changed by at most: the farthest end of their intervals."""
        return max((max(change.high - 1, 1 / change.low - 1) for change in self.unchanged), default=0.0)


def runs(before: Run, after: Run, margin: float = MARGIN, alarms: float = ALARMS) -> Comparison:
    """Two runs, each cell by its time over that of the anchor in the same rounds: so far, sessions are alike."""
    later = {str(bout.call): bout for bout in after.bouts}
    pairs = [
        (str(bout.call), cell, other, bout, later[str(bout.call)])
        for bout, cell in before.cells()
        if str(bout.call) in later and (other := later[str(bout.call)].cell(cell.implementation)) is not None
    ]
    if not pairs:
        raise StoreError("the two runs have no cell in common; compare runs of the same operators, shapes and dtypes")
    both = sum(bool(cell.samples and other.samples) for _, cell, other, _, _ in pairs)
    found = []
    for name, cell, other, bout, bout_after in pairs:
        if changed := broken(name, cell.implementation, cell.mishap, other.mishap):
            found.append(changed)
        elif cell.samples and other.samples:
            apart = _anchored(bout_after, other).less(_anchored(bout, cell))
            found.append(judged(name, cell.implementation, apart, margin, alarms / both))
    return Comparison(tuple(found), tuple(_doubts(before, after)))


def _anchored(bout: Bout, cell: Cell) -> Estimate:
    return estimate(ratios(cell.samples, bout.anchors))


def judged(call: str, implementation: str, apart: Estimate, margin: float, alarms: float) -> Change:
    """A change that is larger than the margin, and beyond doubt; else none."""
    ratio, low, high = apart.bounds(alarms)
    beyond = abs(log(ratio)) > log(1 + margin)
    verdict = "slower" if low > 1 and beyond else "faster" if high < 1 and beyond else "same"
    return Change(call, implementation, verdict, ratio, low, high)


def broken(call: str, implementation: str, before: Mishap | None, after: Mishap | None) -> Change | None:
    """What there is to say of mishaps: new ones, old ones, and those that are gone; None if there is none."""
    if (before is None) == (after is None):
        return None if before is None else Change(call, implementation, "failing", reason=str(after))
    return Change(call, implementation, "broken" if after else "mended", reason=str(after or before))


def _doubts(before: Run, after: Run) -> Iterable[str]:
    """Why the two may not be comparable."""
    if before.machine != after.machine:
        yield f"other machines: {before.machine}, then {after.machine}; the anchor makes up for little of that"
    if before.toolchain != after.toolchain:
        yield f"the anchor ran on {_said(before.toolchain)}, then on {_said(after.toolchain)}: its own time may differ"
    if before.threads != after.threads:
        yield f"on {before.threads} threads, then on {after.threads}"
    if any(len(bout.anchors) < 3 for run in (before, after) for bout in run.bouts):
        yield "fewer than three sittings: what differs from process to process is hardly seen; bench --sittings 5"
    for name, run in (("before", before), ("after", after)):
        yield from (f"{name}: {complaint}" for complaint in run.complaints)


def _said(versions: dict[str, str]) -> str:
    return " ".join(f"{name} {version}" for name, version in versions.items())


def told(found: Comparison, names: Sequence[str] = ("before", "after")) -> list[str]:
    """The comparison in lines: what changed, then how much the rest can have."""
    lines = []
    for change in sorted(found.changes, key=lambda one: -abs(log(one.ratio))):
        label = f"{change.call}  {change.implementation}"
        if change.verdict in ("slower", "faster"):
            spread = 100 * (change.high - change.low) / 2
            lines.append(f"{label}   {100 * (change.ratio - 1):+.1f} % ±{spread:.1f}   {change.verdict}")
        elif change.verdict != "same":
            lines.append(f"{label}   {change.verdict}: {change.reason}")
    if count := len(found.unchanged):
        rest = f"{count} other{'s' if count > 1 else ''}" if lines else f"all {count}" if count > 1 else "the one cell"
        bound = 100 * found.resolution
        lines.append(f"{rest}   no change beyond {bound:.1f} %" if bound < 1000 else f"{rest}   nothing can be told")
    return lines
