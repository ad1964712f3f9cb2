"""Prebuilds Triton kernels for GPUs that are not installed: drops configs by the resource model, compiles the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from tunewright.errors import BackendError
from tunewright.measure.evaluator import Evaluator, Limits
from tunewright.model.trial import Failure, TrialRequest
from tunewright.pools.process import ProcessPool
from tunewright.pools.worker import IsolatedAttempt
from tunewright.spaces.config import Config
from tunewright.triton.static.artifacts import ArtifactCache, CompileRecord
from tunewright.triton.static.compile_worker import JOB, CompileJob, CompileWorker, LaunchArguments, json_value
from tunewright.triton.static.kernels import KernelDeclaration, Settings
from tunewright.triton.static.model import ResourceModel
from tunewright.triton.static.resources import CompiledResources, find_misfits
from tunewright.triton.static.targets import TargetSpec, find_target

RUNG = 1
"""The kind of evidence: real compiles, nothing run on a GPU."""


class PrebuildResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One config on one target: kept or dropped, why, and its resources if it was compiled.

    `by` is what decided: the model before compiling, the compiler, or how its process ended (`hung`: at its deadline).
    """

    target: str
    config: dict[str, Any]
    keep: bool
    by: str
    reasons: list[str] = []
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    resources: CompiledResources | None = None
    key: str = ""
    digest: str = ""


@dataclass
class PrebuildPlan:
    """Jobs to compile, the most expensive first, and configs that were dropped before."""

    declaration: KernelDeclaration
    call: LaunchArguments
    jobs: list[CompileJob]
    dropped: list[PrebuildResult] = field(default_factory=list)
    modelled: bool = True

    @property
    def total(self) -> int:
        """Configs times targets."""
        return len(self.jobs) + len(self.dropped)


def plan_prebuild(
    declaration: KernelDeclaration,
    call: LaunchArguments,
    targets: Sequence[str | TargetSpec],
    *,
    max_configs: int | None = None,
    model: bool = True,
) -> PrebuildPlan:
    """Checks every config for every target; `max_configs` takes a random sample, the same at every call."""
    configs = list(declaration.configs)
    if max_configs is not None and max_configs < len(configs):
        chosen = np.random.default_rng(0).choice(len(configs), max_configs, replace=False)
        configs = [configs[i] for i in sorted(chosen.tolist())]
    jobs: list[tuple[float, CompileJob]] = []
    plan = PrebuildPlan(declaration, call, [], modelled=False)
    for target in [find_target(name) if isinstance(name, str) else name for name in targets]:
        resource_model = ResourceModel(declaration, target, (call.args, call.kwargs))
        for config in configs:
            reasons = _missing_options(target, config) + (resource_model.objections(config) if model else [])
            plan.modelled = plan.modelled or (model and resource_model.estimate(config) is not None)
            if reasons:
                plan.dropped.append(PrebuildResult(target.name, _json_config(config), False, "model", reasons))
            else:
                jobs.append((resource_model.cost(config), CompileJob(target, config)))
    jobs.sort(key=lambda pair: -pair[0])
    plan.jobs = [job for _, job in jobs]
    return plan


def _missing_options(target: TargetSpec, config: Settings) -> list[str]:
    """Returns the launch options of a config that the target does not have."""
    vendor_options = ("maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "launch_pdl")
    missing = [name for name in vendor_options if config.get(name) and name not in target.options]
    missing += ["num_ctas"] if (config.get("num_ctas") or 1) > 1 and "num_ctas" not in target.options else []
    return [f"{target} has no {name}" for name in missing]


def _json_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json_value(value) for name, value in config.items()}


def prebuild(plan: PrebuildPlan, cache: Path, *, width: int = 2, deadline: float = 60.0) -> Iterator[PrebuildResult]:
    """Yields dropped rows first, then compiles as they finish, each in a process that can be killed.

    Finished compiles are stored in `cache`; an interrupted run resumes where it stopped.
    """
    yield from plan.dropped
    artifacts, waiting = ArtifactCache(cache), {}
    for number, job in enumerate(plan.jobs):
        try:
            key = job.unit(plan.declaration, plan.call).key
        except BackendError as error:
            yield PrebuildResult(job.target.name, _json_config(job.config), False, "compiler", [str(error)])
            continue
        if (record := artifacts.find(key)) is not None:
            yield _row(record, job.target)
        else:
            waiting[number] = key
    yield from _compile_waiting(plan, artifacts, waiting, (cache, width, deadline))


def _compile_waiting(
    plan: PrebuildPlan, artifacts: ArtifactCache, waiting: dict[int, str], settings: tuple[Path, int, float]
) -> Iterator[PrebuildResult]:
    cache, width, deadline = settings
    worker = CompileWorker(plan.declaration, plan.call, plan.jobs, cache)
    # A worker only calls its evaluator; being forked, it has kernel and arguments in memory.
    attempt = IsolatedAttempt(lambda: cast(Evaluator, worker), (), cache, limits=Limits(build=deadline), judged=False)
    requests = (TrialRequest(Config({JOB: number})) for number in waiting)
    for trial in ProcessPool(width).run(attempt, requests):
        number = int(trial.config[JOB])
        job = plan.jobs[number]
        record = artifacts.find(waiting[number])
        if record is not None:
            yield _row(record, job.target)
        elif isinstance(trial.outcome, Failure):
            reasons = [f"the compiler: {trial.outcome.reason}"]
            config, kind = _json_config(job.config), str(trial.outcome.kind)
            yield PrebuildResult(job.target.name, config, False, kind, reasons, trial.build_seconds)


def _row(record: CompileRecord, target: TargetSpec) -> PrebuildResult:
    if record.resources is None:
        reasons = [f"it does not compile: {record.refused}"]
        return PrebuildResult(
            record.target, record.config, False, "compiler", reasons, record.seconds, record.cpu_seconds
        )
    reasons = find_misfits(record.resources, target)
    return PrebuildResult(
        record.target, record.config, not reasons, "compiler", reasons, record.seconds, record.cpu_seconds,
        record.resources, record.key, record.digest,
    )  # fmt: skip


def kept_artifacts(rows: Iterable[PrebuildResult], cache: Path) -> Iterator[bytes]:
    """Yields the artifacts of rows that are kept, as bytes for a bundle or for Triton's cache."""
    artifacts = ArtifactCache(cache)
    return (artifacts.read(row.key) for row in rows if row.keep)


class PrebuildProgress:
    """Progress of a prebuild: counts, the best row so far, and the time left."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.compiled = total, 0, 0
        self.kept = 0
        self.best: PrebuildResult | None = None
        self._started = time.monotonic()

    def note(self, row: PrebuildResult) -> None:
        """Adds a row."""
        self.done += 1
        self.compiled += row.by != "model"
        self.kept += row.keep
        if row.keep and row.resources and (self.best is None or _rank(row) > _rank(self.best)):
            self.best = row

    @property
    def left(self) -> float | None:
        """An upper bound of the seconds left, since the most expensive jobs come first; None before the first."""
        if not self.compiled:
            return None
        return (self.total - self.done) * (time.monotonic() - self._started) / self.compiled


def _rank(row: PrebuildResult) -> tuple[float, int]:
    assert row.resources is not None
    return row.resources.occupancy, -row.resources.registers
