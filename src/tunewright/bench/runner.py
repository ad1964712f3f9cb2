"""A whole benchmark: lists operators, measures the roofline, repeats all comparisons, and returns the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from tunewright.backends.host import cpu, python_toolchain
from tunewright.bench.calls import OperatorCall
from tunewright.bench.results import SCHEMA, BenchRun, CallComparison, Cell
from tunewright.bench.rounds import (
    ANCHOR,
    BenchCandidate,
    RepeatResult,
    RoundOptions,
    WorkerGroup,
    run_repeat,
    samples_of,
)
from tunewright.bench.work import CallWork, MachineRoofline
from tunewright.bench.worker import BenchWorker, Build, choose_processors
from tunewright.bench.worker_main import ListOperators, MeasureRoofline, OperatorInfo
from tunewright.errors import PluginError, TunewrightError
from tunewright.measure.evaluator import Limits
from tunewright.measure.noise import ConditionsMonitor
from tunewright.operators.dispatch import dispatch
from tunewright.version import __version__

ProgressCallback = Callable[[str], None]
"""Called with what is done next."""

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8}
"""Bytes of an element, where they are not four."""


class BenchPlan(msgspec.Struct, frozen=True):
    """How a benchmark is run; with `isolated`, each implementation has a process of its own."""

    limits: Limits = Limits()
    options: RoundOptions = RoundOptions()
    repeats: int = 3
    isolated: bool = False
    build: Build = Build()
    budget: str | None = None

    def start_workers(self, folder: Path, repeat: int) -> WorkerGroup:
        """Returns the workers of one repeat."""
        return WorkerGroup(self.limits, folder, choose_processors(self.options.threads, repeat), self.isolated)


class AvailableOperators(NamedTuple):
    """The operators of a build by name; and why some installed packages provide nothing."""

    operators: dict[str, OperatorInfo]
    absent: dict[str, str]


def list_operators(build: Build, limits: Limits) -> AvailableOperators:
    """Asks a build for its operators."""
    worker = BenchWorker(build, limits)
    try:
        response = worker.request(ListOperators())
        return AvailableOperators(response.operators or {}, response.absent)
    finally:
        worker.close()


def select_implementations(available: AvailableOperators, call: OperatorCall, names: Sequence[str]) -> list[str]:
    """Returns the implementations of a call's operator among those named; all of them for `all`."""
    implementations = available.operators[call.operator].implementations
    return [name for name in implementations if "all" in names or name in names]


def _no_implementation(
    available: AvailableOperators, calls: Sequence[OperatorCall], names: Sequence[str]
) -> PluginError:
    """Returns the error for names that no operator has."""
    operators = dict.fromkeys(call.operator for call in calls)
    known = "; ".join(f"{name} has {', '.join(available.operators[name].implementations)}" for name in operators)
    reasons = "".join(f" ({name}: {available.absent[name]})" for name in names if name in available.absent)
    return PluginError(f"no implementation {', '.join(names)}{reasons}; {known}")


def run_benchmark(
    plan: BenchPlan,
    available: AvailableOperators,
    calls: Sequence[OperatorCall],
    names: Sequence[str],
    on_progress: ProgressCallback,
) -> BenchRun:
    """Compares the named implementations at all calls."""
    selected = [(call, own) for call in calls if (own := select_implementations(available, call, names))]
    if not selected:
        raise _no_implementation(available, calls, names)
    runners = [_CallRunner(plan, call, available.operators[call.operator], own) for call, own in selected]
    monitor = ConditionsMonitor()
    on_progress("measuring what this machine can do")
    roof = _measure_roofline(plan, tuple(dict.fromkeys(call.dtype for call in calls)))
    with TemporaryDirectory(prefix="tunewright-bench-") as folder:
        for repeat in range(plan.repeats):
            with plan.start_workers(Path(folder), repeat) as workers:
                for number, runner in enumerate(runners, 1):
                    on_progress(f"repeat {repeat + 1} of {plan.repeats} · {number} of {len(runners)} · {runner.call}")
                    runner.run_repeat(workers)
    complaints = tuple(monitor.stop().complaints())
    return BenchRun(
        schema=SCHEMA,
        version=__version__,
        at=time.time(),
        machine=str(cpu()),
        toolchain=python_toolchain(),
        threads=plan.options.threads,
        isolated=plan.isolated,
        roof=roof,
        comparisons=tuple(runner.comparison() for runner in runners),
        complaints=complaints,
    )


class _CallRunner:
    """Collects the repeats of one call."""

    def __init__(self, plan: BenchPlan, call: OperatorCall, operator: OperatorInfo, names: Sequence[str]) -> None:
        self.plan, self.call = plan, call
        self.candidates = [
            BenchCandidate(name, name, plan.build, _tuned_config(plan, call, name, operator)) for name in names
        ]
        elements = sum(prod(call.sizes[name] for name in array) for array in operator.inputs)
        nbytes = ITEM_BYTES.get(call.dtype, 4) * elements
        self.anchor = "dense" if CallWork.of(call, nbytes).is_dense else "wide"
        self.results: list[dict[str, RepeatResult]] = []
        self.clock = ""

    def run_repeat(self, workers: WorkerGroup) -> None:
        """Runs one more repeat of the candidates that have not failed."""
        failed = {name for results in self.results for name, result in results.items() if result.failure}
        working = [candidate for candidate in self.candidates if candidate.name not in failed]
        options = msgspec.structs.replace(self.plan.options, seed=self.plan.options.seed + len(self.results))
        results, clock = run_repeat(workers, self.call, working, options, self.anchor) if working else ({}, "")
        self.results.append(results)
        self.clock = self.clock or clock

    def comparison(self) -> CallComparison:
        """Returns the result of all repeats."""
        prepared = [result.prepared for results in self.results for result in results.values() if result.prepared]
        work = CallWork.of(self.call, max((candidate.nbytes for candidate in prepared), default=0))
        cells = tuple(self._cell(candidate.name) for candidate in self.candidates)
        return CallComparison(self.call, cells, work, self.clock, self.anchor, samples_of(self.results, ANCHOR))

    def _cell(self, name: str) -> Cell:
        own = [results[name] for results in self.results if name in results]
        failure = next((result.failure for result in own if result.failure), None)
        prepared = [result.prepared for result in own if result.prepared]
        if failure or not prepared:
            return Cell(name, failure=failure)
        build_seconds = max(candidate.build_seconds for candidate in prepared)  # later repeats find it in the cache
        first = prepared[0]
        return Cell(name, samples_of(self.results, name), None, first.config, build_seconds, first.error)


def _measure_roofline(plan: BenchPlan, dtypes: tuple[str, ...]) -> MachineRoofline:
    worker = BenchWorker(plan.build, plan.limits, choose_processors(plan.options.threads))
    try:
        return worker.request(MeasureRoofline(plan.options.threads, dtypes)).roof or MachineRoofline()
    finally:
        worker.close()


def _tuned_config(plan: BenchPlan, call: OperatorCall, name: str, operator: OperatorInfo) -> dict[str, Any]:
    """Tunes an implementation with knobs and returns its config; empty without a budget, or where none works."""
    if plan.budget is None or name not in operator.templates:
        return {}
    operation = dispatch(call.operator, only=name, threads=plan.options.threads, budget=plan.budget)
    try:
        return dict(operation.decide(*call.arguments(operation.operator)[:-1]).config)
    except TunewrightError:
        return {}  # its cell will say what is wrong
