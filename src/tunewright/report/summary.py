"""Decisions, races and kernels in at most five lines of plain text: what Python shows of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunewright.errors import TunewrightError
from tunewright.model.decision import Decision, Evidence, Tier
from tunewright.model.key import Key
from tunewright.report import formatting
from tunewright.report.formatting import one_line

if TYPE_CHECKING:
    from tunewright.measure.race import Race, Standing

MAX_LINES = 5

MAX_SHOWN = 3
"""Decisions of a kernel, candidates of a race and ties that are listed before the rest is counted."""


def decision_text(decision: Decision) -> str:
    """Returns what was chosen, how fast it is, against the default, in how many trials, and why."""
    key = decision.key
    head = f"{key.kernel}  {key.signature} · {key.device}"
    try:
        config, evidence = decision.config, decision.evidence
    except TunewrightError as error:
        return _lines([head, f"  its record cannot be read: {error}"])
    if evidence is None:
        said = "the default; nothing is decided" if decision.tier is Tier.DEFAULT else "without evidence"
        return _lines([head, f"  {config}  ({said})"])
    origin = f"  ({decision.tier})" if decision.tier is not Tier.EXACT else ""
    lines = [
        head,
        f"  {config} · {time_text(decision.key, evidence)}{origin}",
        f"  {gain_text(decision.key, evidence)}",
        f"  {trials_text(evidence)}",
    ]
    return _lines([*lines, f"  {'; '.join(evidence.notes)}"] if evidence.notes else lines)


def time_text(key: Key, evidence: Evidence) -> str:
    """Returns the time per run with its interval: `1.91 ms ±0.6 %`."""
    spread = formatting.spread(evidence.low, evidence.high, evidence.seconds)
    return f"{formatting.measured(evidence.seconds, key)} {spread}".rstrip()


def gain_text(key: Key, evidence: Evidence) -> str:
    """Returns how the choice compares with the default: `2.06x (2.01 to 2.1) the default, which took 6.14 us`."""
    if evidence.gain is None:
        return "not compared with the default"
    if is_default(evidence):
        return "the default itself"
    took = f", which took {formatting.measured(evidence.default_seconds, key)}" if evidence.default_seconds else ""
    doubt = evidence.over_default is not None and evidence.over_default.is_inconclusive
    unsure = "; no clear difference" if doubt else ""
    return f"{formatting.gain(evidence.over_default, evidence.gain)} the default{took}{unsure}"


def is_default(evidence: Evidence) -> bool:
    """Returns whether the default itself was chosen, which is not compared with itself."""
    gain = evidence.over_default
    return evidence.gain == 1 and (gain is None or gain.low == gain.high == 1)


def trials_text(evidence: Evidence) -> str:
    """Returns how many configs were tried, how many failed, and which could not be told from the choice."""
    parts = [formatting.counted(evidence.trials, "trial")]
    if evidence.strategy:
        parts[0] += f" by {evidence.strategy}"
    if evidence.failures:
        parts[0] += f", {evidence.failures} failed"
    if evidence.ties:
        parts.append(f"within noise: {listed([str(tie.config) for tie in evidence.ties])}")
    return "; ".join(parts)


def listed(names: Sequence[str], limit: int = MAX_SHOWN) -> str:
    """Returns names with commas; of many the first few, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def kernel_text(head: str, decisions: Sequence[Decision]) -> str:
    """Returns a kernel with the decisions that this process has used, latest last."""
    if not decisions:
        return _lines([head, "  nothing is decided in this process yet"])
    shown = [f"  {decision.key.signature}: {short_verdict(decision)}" for decision in decisions[-MAX_SHOWN:]]
    rest = len(decisions) - len(shown)
    return _lines([head, *([f"  {formatting.counted(rest, 'earlier decision')}"] if rest else []), *shown])


def short_verdict(decision: Decision) -> str:
    """Returns config, time and gain of a decision."""
    evidence = decision.evidence
    if evidence is None:
        return f"{decision.config} ({'default' if decision.tier is Tier.DEFAULT else 'without evidence'})"
    gain = f" · {formatting.ratio(evidence.gain)} the default" if evidence.gain else ""
    versus = " · the default itself" if is_default(evidence) else gain
    return f"{decision.config} · {formatting.measured(evidence.seconds, decision.key)}{versus}"


def race_text(race: Race) -> str:
    """Returns who leads a race, how the others compare, and whether it was settled."""
    head = f"race of {formatting.counted(len(race.standings), 'candidate')}"
    if race.is_empty:
        reasons = [f"{number}: {failure.reason}" for number, failure in race.failed]
        return _lines([f"{head}: none was timed", *([f"  {listed(reasons)}"] if reasons else [])])
    leader = race.standings[race.leader]
    rounds = formatting.counted(len(leader.samples), "round")
    end = "settled" if race.settled else "not settled"
    clock = f", {race.clock} clock" if race.clock else ""
    lines = [f"{head}: number {race.leader} leads with {formatting.seconds(_center(leader))}"]
    others = [number for number in range(len(race.standings)) if number != race.leader]
    others.sort(key=lambda number: race.standings[number].ratio)
    lines += [f"  {_standing_text(race, number)}" for number in others[:MAX_SHOWN]]
    more = f"; {len(others) - MAX_SHOWN} more were slower" if len(others) > MAX_SHOWN else ""
    return _lines([*lines, f"  {end} after {rounds}, to within {100 * race.margin:g} %{clock}{more}"])


def _standing_text(race: Race, number: int) -> str:
    standing = race.standings[number]
    if number in race.failures:
        return f"number {number} failed: {race.failures[number].reason}"
    if not standing.samples:
        return f"number {number} was not timed"
    ratio = f"{formatting.ratio(standing.ratio)} the leader's time ({standing.low:.3g} to {standing.high:.3g})"
    if standing.left is not None:
        return f"number {number}: {ratio}, out after round {standing.left}"
    return f"number {number}: {ratio}" + (", a tie" if number in race.ties else "")


def _center(standing: Standing) -> float:
    ordered = sorted(standing.samples)
    return ordered[len(ordered) // 2] if ordered else math.inf


def _lines(lines: Sequence[str]) -> str:
    """Returns at most five lines, none of them long, without control characters."""
    return "\n".join(_indented(line) for line in lines[:MAX_LINES])


def _indented(line: str) -> str:
    return " " * (len(line) - len(line.lstrip(" "))) + one_line(line)
