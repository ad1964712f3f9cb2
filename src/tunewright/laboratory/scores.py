"""Scores: how near a trace comes to the optimum, how soon; and what many of them come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SettingsError
from tunewright.laboratory.replays import Trace
from tunewright.report.regret import Curve

BUDGETS = (25, 50, 100, 200)
RESAMPLES = 1000
GRID = 200
"""Points of a curve over seconds."""

LITTLE = 1e-12
"""By how much rounding may hide that a bound is kept."""

Array = NDArray[np.float64]


def marks(budget: int) -> tuple[int, ...]:
    """The evaluations at which searches of this budget are compared; the budget itself is the last."""
    return (*(mark for mark in BUDGETS if mark < budget), budget)


@dataclass(frozen=True)
class Score:
    """One trace, judged.

    `ratios`: optimum over the best so far, after so many evaluations; 1 is perfect, 0 where nothing has worked.
    `e5`, `e1`: evaluations until the best so far is within 5 % and 1 % of the optimum; infinite if it never was.
    `s5`, `s1`: the same in seconds of compiling and running. `cpu_ms`: the strategy's own time for a proposal.
    """

    table: str
    kernel: str
    ratios: Mapping[int, float]
    e5: float
    e1: float
    s5: float = inf
    s1: float = inf
    cpu_ms: float = 0.0

    @classmethod
    def of(cls, trace: Trace, at: Iterable[int] = BUDGETS) -> Score:
        """The score of a trace."""
        best, spent = best_so_far(trace), np.cumsum(trace.costs)
        ratios = {mark: trace.optimum / best[min(mark, len(best)) - 1] for mark in at}
        soon, sooner = (_first(best <= trace.optimum * bound * (1 + LITTLE)) for bound in (1.01, 1.05))
        cpu = (trace.made + sum(trace.cpu)) / max(1, len(trace.rows))
        return cls(trace.table, trace.kernel, ratios, sooner, soon, _at(spent, sooner), _at(spent, soon), 1e3 * cpu)


def best_so_far(trace: Trace) -> Array:
    """The least seconds after each evaluation; infinite where nothing has worked yet."""
    seconds = np.array([inf if one is None else one for one in trace.seconds] or [inf])
    return np.minimum.accumulate(seconds)


def _first(holds: NDArray[np.bool_]) -> float:
    """The number of the first that holds, counted from 1; infinite if none does."""
    return float(np.argmax(holds)) + 1 if holds.any() else inf


def _at(spent: Array, number: float) -> float:
    return inf if number == inf else float(spent[int(number) - 1])


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """What many scores of one strategy come to.

    Ratios are means over all runs; evaluations and seconds are medians over the runs of each table, then over tables;
    `within1` is the share of runs that came within 1 % at all.
    """
    figures: dict[str, Any] = {
        f"r{mark}": float(np.mean([score.ratios[mark] for score in scores])) for mark in scores[0].ratios
    }
    for name in ("e5", "e1", "s5", "s1"):
        by_table: dict[str, list[float]] = defaultdict(list)
        for score in scores:
            by_table[score.table].append(getattr(score, name))
        figures[name] = float(np.median([np.median(values) for values in by_table.values()]))
    figures["within1"] = float(np.mean([score.e1 < inf for score in scores]))
    figures["cpu_ms"] = float(np.mean([score.cpu_ms for score in scores]))
    figures["runs"] = len(scores)
    return figures


def grouped(scores: Iterable[Score], by: Callable[[Score], str]) -> dict[str, list[Score]]:
    """Scores by kernel or by table, in order of name."""
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        groups[by(score)].append(score)
    return dict(sorted(groups.items()))


def over_evaluations(traces: Mapping[str, Sequence[Trace]]) -> list[Curve]:
    """Mean regret of each strategy after each evaluation."""
    budget = max(trace.stamp.budget for some in traces.values() for trace in some)

    def regret(trace: Trace) -> Array:
        best = best_so_far(trace)
        return 1 - trace.optimum / best[np.minimum(np.arange(budget), len(best) - 1)]

    return [_curve(name, some, np.arange(1, budget + 1.0), regret) for name, some in traces.items()]


def over_seconds(traces: Mapping[str, Sequence[Trace]]) -> list[Curve]:
    """Mean regret of each strategy against what compiling and running has cost so far.

    The axis ends where half of all runs have spent their evaluations; a run that ended before keeps what it had found.
    """
    every = [np.cumsum(trace.costs) for some in traces.values() for trace in some if trace.costs]
    if not every or not min(spent[-1] for spent in every) > 0:
        raise SettingsError("these recordings do not say what a trial cost; compare by evaluations: leave out --cost")
    start, end = (float(np.median([spent[place] for spent in every])) for place in (0, -1))
    grid = np.geomspace(min(max(start, end / 1e4), end / 2), end, GRID)

    def regret(trace: Trace) -> Array:
        ratios = np.concatenate([[0.0], trace.optimum / best_so_far(trace)])
        return 1 - ratios[np.searchsorted(np.cumsum(trace.costs), grid, side="right")]

    return [_curve(name, some, grid, regret) for name, some in traces.items()]


def _curve(name: str, traces: Sequence[Trace], grid: Array, regret: Callable[[Trace], Array]) -> Curve:
    """The mean over tables of the mean over seeds, with a band of 95 % by resampling the seeds of each table."""
    by_table: dict[str, list[Array]] = defaultdict(list)
    for trace in traces:
        by_table[trace.table].append(regret(trace))
    rng, means, resampled = np.random.default_rng(0), [], []
    for runs in by_table.values():
        count = len(runs)
        weights = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES) / count
        means.append(np.mean(runs, axis=0))
        resampled.append(weights @ np.array(runs))
    low, high = np.percentile(np.mean(resampled, axis=0), [2.5, 97.5], axis=0)
    return Curve(name, grid.tolist(), np.mean(means, axis=0).tolist(), low.tolist(), high.tolist())
