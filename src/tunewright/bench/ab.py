"""A/B comparison of two builds: both run in turn in one session, each in processes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tunewright.bench.calls import OperatorCall
from tunewright.bench.compare import MARGIN, CellChange, RunComparison, failure_change, judge_change
from tunewright.bench.intervals import ALARMS, estimate, log_ratios
from tunewright.bench.rounds import BenchCandidate, RepeatResult, run_repeat, samples_of
from tunewright.bench.runner import BenchPlan, ProgressCallback
from tunewright.bench.worker import Build

BEFORE, AFTER = "before", "after"


def compare_builds(
    plan: BenchPlan,
    builds: tuple[Build, Build],
    cells: Sequence[tuple[OperatorCall, str]],
    on_progress: ProgressCallback,
    margin: float = MARGIN,
) -> RunComparison:
    """Compares two builds at the same calls, in alternating rounds, with new processes in every repeat.

    Samples close in time are compared, so disturbances of the machine strike both. What a process does to its kernel
    for its whole life, such as where its memory lies, differs between repeats, and is part of the interval.
    """
    results: list[list[dict[str, RepeatResult]]] = [[] for _ in cells]
    with TemporaryDirectory(prefix="tunewright-bench-") as folder:
        for repeat in range(plan.repeats):
            with plan.start_workers(Path(folder), repeat) as workers:
                for number, (call, name) in enumerate(cells):
                    if any(result.failure for own in results[number] for result in own.values()):
                        continue
                    place = f"repeat {repeat + 1} of {plan.repeats} · {number + 1} of {len(cells)}"
                    on_progress(f"{place} · {call}  {name}")
                    sides = [BenchCandidate(BEFORE, name, builds[0]), BenchCandidate(AFTER, name, builds[1])]
                    options = msgspec.structs.replace(plan.options, seed=plan.options.seed + repeat)
                    # The side prepared first has other memory, and meets a colder machine.
                    sides = sides if repeat % 2 else sides[::-1]
                    results[number].append(run_repeat(workers, call, sides, options)[0])
    changes = (_change(cell, own, margin, len(cells)) for cell, own in zip(cells, results, strict=True))
    return RunComparison(tuple(changes))


def _change(
    cell: tuple[OperatorCall, str], results: Sequence[dict[str, RepeatResult]], margin: float, count: int
) -> CellChange:
    call, name = str(cell[0]), cell[1]
    before, after = (
        next((own[side].failure for own in results if side in own and own[side].failure), None)
        for side in (BEFORE, AFTER)
    )
    if change := failure_change(call, name, before, after):
        return change
    log_ratio = estimate(log_ratios(samples_of(results, AFTER), samples_of(results, BEFORE)))
    return judge_change(call, name, log_ratio, margin, ALARMS / count)
