"""Verdicts: what follows from the launches of a match. The same rules judge a match and check its transcript."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log, sqrt

import msgspec
import numpy as np

from tunewright.measure.race import TIE_MARGINS
from tunewright.referee.draws import FRESH, REPEAT
from tunewright.stats import MIN_SAMPLES, SURE, UNKNOWN, student_t_from_normal, trimmed_mean, trimmed_mean_error

FASTER, TIE, SLOWER, WRONG, SUSPECT, REFUSED = "faster", "tie", "slower", "wrong", "suspect", "refused"
CHECKED = "checked"
"""Right as far as was seen, and not timed."""

EXIT_STATUSES = {FASTER: 0, TIE: 10, SLOWER: 11, WRONG: 12, SUSPECT: 13, REFUSED: 14, CHECKED: 15}
"""The exit status of `tunewright referee run` for each outcome."""

PHYSICS_SLACK = 0.5
"""A launch in less than this share of the least time that the machine needs is suspect."""

CACHED_RATIO = 0.6
"""A candidate that needs less than this share of the time for inputs it had before keeps results."""

MIN_REPEATS = 4
"""Repeated inputs from which that can be told."""

CONTRADICTION = 1.1
"""A candidate that takes less CPU time and so many times the wall time is suspect."""


class LaunchRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One drawn launch: nanoseconds of each contestant by both clocks, and whether results were compared."""

    sitting: int
    kind: str
    shape: int
    seed: int
    swap: int
    wall: tuple[int, ...]
    cpu: tuple[int, ...]
    checked: bool = True
    inputs: str = ""


class Incident(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong with the candidate: `outcome` is wrong, suspect or refused; the rest names the launch."""

    outcome: str
    reason: str
    kind: str = ""
    shape: int = -1
    seed: int = 0
    swap: int = 0


class MatchRules(msgspec.Struct, frozen=True):
    """How a match is judged: the margin, the clock, the least seconds of each shape, and why no time counts, if so."""

    margin: float = 0.01
    clock: str = "cpu"
    least_seconds: tuple[float, ...] = ()
    untimed: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """The candidate's time over a baseline's, with a 95 % interval."""

    against: str
    ratio: float
    low: float
    high: float


class RefereeVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a match and its reason; `ratio` is the candidate's time over that of the fastest baseline."""

    outcome: str
    reason: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    failing: Incident | None = None

    @property
    def exit_status(self) -> int:
        """The exit status of the command line."""
        return EXIT_STATUSES[self.outcome]


def judge(
    records: Sequence[LaunchRecord], incidents: Sequence[Incident], rules: MatchRules, baselines: Sequence[str]
) -> RefereeVerdict:
    """Returns the verdict on the candidate, which is contestant 0; the baselines follow it."""
    for outcome in (REFUSED, SUSPECT, WRONG):
        for incident in incidents:
            if incident.outcome == outcome:
                return RefereeVerdict(outcome, incident.reason, failing=incident if incident.kind else None)
    if rules.untimed:
        count = sum(record.checked for record in records)
        return RefereeVerdict(CHECKED, f"right in {count} launches; checked, not timed: {rules.untimed}")
    if reason := find_impossible(records, rules) or find_cached(records, rules):
        return RefereeVerdict(SUSPECT, reason)
    clocked = [Comparison(name, *compare(records, number, rules.clock)) for number, name in enumerate(baselines, 1)]
    best = max(clocked, key=lambda each: each.ratio)
    outcome, reason = _outcome(best, rules)
    if outcome == FASTER and rules.clock == "cpu":
        low = compare(records, 1 + clocked.index(best), "wall")[1]
        if low > CONTRADICTION:
            outcome, reason = SUSPECT, f"it takes less CPU time, but {low:.2f} times the wall time at least"
    return RefereeVerdict(outcome, reason, best.ratio, best.low, best.high, tuple(clocked))


def _outcome(best: Comparison, rules: MatchRules) -> tuple[str, str]:
    shown = f"{best.ratio:.3f} ({best.low:.3f} to {best.high:.3f}) times the {rules.clock} time of {best.against}"
    if best.high >= exp(UNKNOWN):
        return TIE, f"there were too few launches to compare it with {best.against}"
    if best.high < 1 and best.ratio < 1 / (1 + TIE_MARGINS * rules.margin):
        return FASTER, shown
    if best.low > 1 and best.ratio > 1 + TIE_MARGINS * rules.margin:
        return SLOWER, shown
    return TIE, shown


def compare(records: Sequence[LaunchRecord], baseline: int, clock: str) -> tuple[float, float, float]:
    """Returns the candidate's time over a baseline's with a 95 % interval, from launches on new inputs.

    Each sitting has processes of its own, in which the same code may be a little faster or slower all the time. The
    error is that between sittings, or within them if that is larger, with the degrees of freedom that sittings allow.
    """
    centers, errors = [], []
    for sitting in sorted({record.sitting for record in records}):
        own = [record for record in records if record.sitting == sitting and record.kind == FRESH]
        if (summary := _summarize(own, baseline, clock)) is not None:
            centers.append(summary[0])
            errors.append(summary[1])
    if not centers:
        return 1.0, exp(-UNKNOWN), exp(UNKNOWN)
    ordered = np.sort(np.array(centers))
    count, center = len(ordered), float(trimmed_mean(ordered))
    within = sqrt(sum(error**2 for error in errors)) / count
    between, freedom = trimmed_mean_error(ordered) if count > 1 else (within, 1)
    reach = student_t_from_normal(max(freedom, 1), SURE) * max(within, between)
    return exp(center), exp(center - min(reach, UNKNOWN)), exp(center + min(reach, UNKNOWN))


def _summarize(records: Sequence[LaunchRecord], baseline: int, clock: str) -> tuple[float, float] | None:
    """Returns the mean log ratio of a sitting over its shapes, and its error; None with too few launches."""
    by_shape: dict[int, list[float]] = defaultdict(list)
    for record in records:
        times = getattr(record, clock)
        by_shape[record.shape].append(log(max(times[0], 1)) - log(max(times[baseline], 1)))
    # The first launch of a shape in a process is not like the others.
    tables = [np.sort(np.array(values[1:])) for values in by_shape.values()]
    if not tables or min(map(len, tables)) < MIN_SAMPLES:
        return None
    center = float(np.mean([trimmed_mean(table) for table in tables]))
    return center, sqrt(sum(trimmed_mean_error(table)[0] ** 2 for table in tables)) / len(tables)


def find_impossible(records: Sequence[LaunchRecord], rules: MatchRules) -> str | None:
    """Returns why the candidate is faster than the machine allows; None if it is not.

    If a baseline is as fast, the least time was measured wrongly, by a machine that was busy then.
    """
    for shape, least in enumerate(rules.least_seconds):
        fresh = [getattr(r, rules.clock) for r in records if r.shape == shape and r.kind == FRESH]
        if len(fresh) < MIN_SAMPLES:
            continue
        seconds, *baselines = (float(np.median(times)) * 1e-9 for times in zip(*fresh, strict=True))
        if seconds < PHYSICS_SLACK * least <= min(baselines):
            return f"it takes {seconds:.3g} s, but this machine needs {least:.3g} s for the bytes and operations"
    return None


def find_cached(records: Sequence[LaunchRecord], rules: MatchRules) -> str | None:
    """Returns why the candidate seems to keep results of earlier inputs; None if it does not."""
    ratios = []
    for contestant in (0, 1):
        own = {kind: _log_times(records, contestant, kind, rules.clock) for kind in (FRESH, REPEAT)}
        if min(len(times) for times in own.values()) < MIN_REPEATS:
            return None
        ratios.append(exp(float(np.median(own[REPEAT]) - np.median(own[FRESH]))))
    if ratios[0] < CACHED_RATIO * min(ratios[1], 1.0):
        return f"it needs {ratios[0]:.2f} times as long for inputs that it had before: it keeps results"
    return None


def _log_times(records: Sequence[LaunchRecord], contestant: int, kind: str, clock: str) -> list[float]:
    """Returns log times relative to the median of new inputs of the same shape."""
    medians: dict[int, float] = {}
    for shape in {record.shape for record in records}:
        times = [getattr(r, clock)[contestant] for r in records if r.shape == shape and r.kind == FRESH]
        medians[shape] = float(np.median(times)) if times else 0.0
    return [
        log(max(getattr(record, clock)[contestant], 1) / max(medians[record.shape], 1))
        for record in records
        if record.kind == kind and medians[record.shape]
    ]
