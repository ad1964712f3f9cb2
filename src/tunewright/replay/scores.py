"""Scores of traces (how close to the optimum, how soon), their summaries and regret curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SettingsError
from tunewright.replay.runs import Trace
from tunewright.report.regret import RegretCurve

BUDGETS = (25, 50, 100, 200)
RESAMPLES = 1000
GRID = 200
"""Points of a curve over seconds."""

ROUNDING = 1e-12
"""Relative tolerance for rounding in comparisons with a bound."""

Array = NDArray[np.float64]


def checkpoints(budget: int) -> tuple[int, ...]:
    """Returns the numbers of evaluations at which searches are compared; the budget is the last."""
    return (*(count for count in BUDGETS if count < budget), budget)


@dataclass(frozen=True)
class TraceScore:
    """Score of one trace.

    `ratios`: optimum over the best so far, by number of evaluations; 1 is perfect, 0 if nothing has worked yet.
    `e5`, `e1`: evaluations until the best so far is within 5 % and 1 % of the optimum; infinite if never.
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
    def of(cls, trace: Trace, at: Iterable[int] = BUDGETS) -> TraceScore:
        """Returns the score of a trace."""
        best, spent = best_so_far(trace), np.cumsum(trace.costs)
        ratios = {count: trace.optimum / best[min(count, len(best)) - 1] for count in at}
        e1, e5 = (_first_true(best <= trace.optimum * bound * (1 + ROUNDING)) for bound in (1.01, 1.05))
        cpu = (trace.setup + sum(trace.cpu)) / max(1, len(trace.rows))
        return cls(trace.table, trace.kernel, ratios, e5, e1, _spent_at(spent, e5), _spent_at(spent, e1), 1e3 * cpu)


def best_so_far(trace: Trace) -> Array:
    """Returns the best time after each evaluation, or what a race would decide for; infinite while nothing works."""
    if trace.decided:
        return np.array([inf if value is None else value for value in trace.decided])
    seconds = np.array([inf if value is None else value for value in trace.seconds] or [inf])
    return np.minimum.accumulate(seconds)


def _first_true(holds: NDArray[np.bool_]) -> float:
    """Returns the position of the first True, counted from 1; infinite if there is none."""
    return float(np.argmax(holds)) + 1 if holds.any() else inf


def _spent_at(spent: Array, number: float) -> float:
    return inf if number == inf else float(spent[int(number) - 1])


def summarize(scores: Sequence[TraceScore]) -> dict[str, Any]:
    """Returns statistics over the scores of one strategy.

    Ratios are means over all runs; evaluations and seconds are medians over the runs of each table, then over tables;
    `within1` is the share of runs that came within 1 % of the optimum.
    """
    statistics: dict[str, Any] = {
        f"r{count}": float(np.mean([score.ratios[count] for score in scores])) for count in scores[0].ratios
    }
    for name in ("e5", "e1", "s5", "s1"):
        by_table: dict[str, list[float]] = defaultdict(list)
        for score in scores:
            by_table[score.table].append(getattr(score, name))
        statistics[name] = float(np.median([np.median(values) for values in by_table.values()]))
    statistics["within1"] = float(np.mean([score.e1 < inf for score in scores]))
    statistics["cpu_ms"] = float(np.mean([score.cpu_ms for score in scores]))
    statistics["runs"] = len(scores)
    return statistics


def group_scores(scores: Iterable[TraceScore], by: Callable[[TraceScore], str]) -> dict[str, list[TraceScore]]:
    """Returns scores grouped by kernel or by table, sorted by name."""
    groups: dict[str, list[TraceScore]] = defaultdict(list)
    for score in scores:
        groups[by(score)].append(score)
    return dict(sorted(groups.items()))


def regret_by_evaluations(traces: Mapping[str, Sequence[Trace]]) -> list[RegretCurve]:
    """Returns the mean regret of each strategy after each evaluation."""
    budget = max(trace.key.budget for runs in traces.values() for trace in runs)

    def regret(trace: Trace) -> Array:
        best = best_so_far(trace)
        return 1 - trace.optimum / best[np.minimum(np.arange(budget), len(best) - 1)]

    return [_mean_curve(name, runs, np.arange(1, budget + 1.0), regret) for name, runs in traces.items()]


def regret_by_seconds(traces: Mapping[str, Sequence[Trace]]) -> list[RegretCurve]:
    """Returns the mean regret of each strategy over the seconds spent on compiling and running.

    The axis ends where half of all runs have used up their evaluations; a run that ended earlier keeps its regret.
    """
    costs = [np.cumsum(trace.costs) for runs in traces.values() for trace in runs if trace.costs]
    if not costs or not min(spent[-1] for spent in costs) > 0:
        raise SettingsError("these recordings have no cost of trials; leave out --cost to compare by evaluations")
    start, end = (float(np.median([spent[i] for spent in costs])) for i in (0, -1))
    grid = np.geomspace(min(max(start, end / 1e4), end / 2), end, GRID)

    def regret(trace: Trace) -> Array:
        ratios = np.concatenate([[0.0], trace.optimum / best_so_far(trace)])
        return 1 - ratios[np.searchsorted(np.cumsum(trace.costs), grid, side="right")]

    return [_mean_curve(name, runs, grid, regret) for name, runs in traces.items()]


def _mean_curve(name: str, traces: Sequence[Trace], grid: Array, regret: Callable[[Trace], Array]) -> RegretCurve:
    """Returns the mean over tables of the mean over seeds, with a 95 % bootstrap band over the seeds of each table."""
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
    return RegretCurve(name, grid.tolist(), np.mean(means, axis=0).tolist(), low.tolist(), high.tolist())
