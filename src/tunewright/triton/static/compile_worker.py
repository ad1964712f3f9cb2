"""Compiles configs in a worker process, and stores each as soon as it is done."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

from tunewright.errors import BackendError
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial, TrialRequest
from tunewright.spaces.config import Config
from tunewright.triton.static import aot
from tunewright.triton.static.artifacts import ArtifactCache, CompiledArtifact, CompileRecord
from tunewright.triton.static.kernels import KernelDeclaration, Settings
from tunewright.triton.static.resources import BlockResources, read_resources
from tunewright.triton.static.targets import TargetSpec

JOB = "job"
"""The knob that carries the number of a job: values of a Triton config may be of any type, those of a trial may not."""


@dataclass(frozen=True)
class LaunchArguments:
    """Positional and keyword arguments of a launch: values, or stubs of tensors."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class CompileJob:
    """One config to compile for one target."""

    target: TargetSpec
    config: Settings

    def unit(self, declaration: KernelDeclaration, call: LaunchArguments) -> aot.CompileUnit:
        """Binds the config to a launch, up to the compiler."""
        settings = declaration.settings(call.args, call.kwargs, self.config)
        return aot.make_unit(declaration.function, self.target, call.args, settings)


class CompileWorker:
    """Compiles the job that a request names; its trial has the compile time, since no kernel is run."""

    nbytes = 0

    def __init__(
        self, declaration: KernelDeclaration, call: LaunchArguments, jobs: Sequence[CompileJob], cache: Path
    ) -> None:
        self._declaration, self._call, self._jobs, self._cache = declaration, call, jobs, ArtifactCache(cache)

    def prepare(self) -> None:
        """Does nothing: results are not checked here."""

    def __call__(self, entry: TrialRequest, note: Callable[[Stage], None]) -> Trial:
        """Compiles one job and stores the result."""
        number = int(entry.config[JOB])
        record = self.compile(self._jobs[number])
        config = Config({JOB: number})
        if record.refused:
            return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, record.refused), record.seconds)
        return Trial(config, Timing((max(record.cpu_seconds, 1e-9),), "cpu"), record.seconds)

    def compile(self, job: CompileJob) -> CompileRecord:
        """Returns the record of a job; compiles it unless it is stored."""
        try:
            unit = job.unit(self._declaration, self._call)
        except BackendError as error:
            return self._record(job, "", (0.0, 0.0), None, str(error))
        if (record := self._cache.find(unit.key)) is not None:
            return record
        cpu_started, started = _cpu_seconds(), time.monotonic()
        kernel, error_message = None, ""
        with tempfile.TemporaryDirectory() as scratch:
            try:
                kernel = aot.compile_unit(unit, Path(scratch))
            except BackendError as error:
                error_message = str(error)
        seconds = time.monotonic() - started, _cpu_seconds() - cpu_started
        record = self._record(job, unit.key, seconds, kernel, error_message)
        if kernel is None:
            return self._cache.put(record, None)
        artifact = CompiledArtifact(unit.key, kernel.name, kernel.suffix, kernel.metadata, kernel.code)
        return self._cache.put(record, artifact)

    def _record(
        self, job: CompileJob, key: str, seconds: tuple[float, float], kernel: aot.CompiledKernel | None, error: str
    ) -> CompileRecord:
        """Returns the record of a compile; `seconds` are those of the wall clock and of the CPU."""
        resources = None
        if kernel is not None:
            block = BlockResources(kernel.shared, kernel.tensor_columns, kernel.warps)
            resources = read_resources(kernel.code, kernel.assembly, job.target, block)
        return CompileRecord(
            key=key,
            kernel=self._declaration.name,
            target=job.target.name,
            config={name: json_value(value) for name, value in job.config.items()},
            triton=triton.__version__,
            environment=aot.cache_environment(),
            seconds=seconds[0],
            cpu_seconds=seconds[1],
            resources=resources,
            refused=error,
        )


def json_value(value: Any) -> Any:
    """Returns a setting as a JSON value; text if it has none."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of its children, such as ptxas."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
