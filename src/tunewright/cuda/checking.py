"""Says of each config of a CUDA kernel whether it is right, wrong or does not fit; nothing is timed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.cases.validation import Content, PreparedCase
from tunewright.cuda.backend import Cuda
from tunewright.cuda.launch import EmulatedLaunch, describe_faults
from tunewright.cuda.resources import DoesNotFit, KernelResources
from tunewright.errors import BackendError
from tunewright.kernel.workloads import make_workload
from tunewright.measure.judge import KernelJudge
from tunewright.measure.kernel_workload import KernelWorkload
from tunewright.spaces.config import Config

if TYPE_CHECKING:
    from tunewright.emulator import Emulation, Options, PtxFault
    from tunewright.kernel.tuned import Tuned


class CheckOutcome(StrEnum):
    """What became of a config."""

    RIGHT = "right"
    WRONG = "wrong"
    MISFIT = "does not fit"
    BROKEN = "does not compile"
    UNKNOWN = "not executed"


@dataclass
class CheckedConfig:
    """A config and what was found: the reason if it is not right, faults, resources, and what was executed."""

    config: Config
    outcome: CheckOutcome = CheckOutcome.RIGHT
    reason: str = ""
    faults: list[PtxFault] = field(default_factory=list)
    resources: KernelResources | None = None
    occupancy: float = 0.0
    emulation: Emulation | None = None
    orders: list[str] = field(default_factory=list)


def check_configs(
    tuned: Tuned, args: Sequence[Any], configs: Iterable[Config], options: Options | None = None
) -> Iterator[CheckedConfig]:
    """Compiles configs of a kernel and executes them on arguments like `args`; yields what was found of each.

    Results are compared with the reference, or without one with the results of the default config.
    """
    from tunewright.emulator.launch import EVERYTHING  # noqa: PLC0415 - an extension of its own

    if not isinstance(tuned.backend, Cuda):
        raise BackendError(f"{tuned.name} is no CUDA kernel; declare it with backend=tw.Cuda(...)")
    workload = make_workload(tuned, tuned.cases_like(args), tuned.kernel.cache)
    assert isinstance(workload, KernelWorkload)
    check = _Check(tuned.backend, workload, options or EVERYTHING)
    check.judge.expected(Content(0))  # what is wrong with the reference is no config's fault
    for config in configs:
        yield check(config)


class _Check:
    """Checks one config after the other on the same arguments."""

    def __init__(self, backend: Cuda, workload: KernelWorkload, options: Options) -> None:
        self._backend, self._workload, self._options = backend, workload, options
        self.judge = KernelJudge(workload)
        self._case: PreparedCase = workload.first_sets[0]

    def __call__(self, config: Config) -> CheckedConfig:
        found = CheckedConfig(config)
        kernel, target = self._workload.kernel, self._backend.target
        try:
            artifact = self._backend.build(kernel, config, self._case.signature)
        except DoesNotFit as error:
            found.outcome, found.reason = CheckOutcome.MISFIT, str(error)
            return found
        except BackendError as error:
            found.outcome, found.reason = CheckOutcome.BROKEN, str(error)
            return found
        launch = self._backend.load_emulated(kernel, artifact)
        found.resources = launch.build.resources
        found.occupancy = found.resources.occupancy(target, artifact.shape)
        try:
            self._execute(launch, found)
        except BackendError as error:  # an instruction that the emulator does not know, among others
            found.outcome, found.reason = CheckOutcome.UNKNOWN, str(error)
        return found

    def _execute(self, launch: EmulatedLaunch, found: CheckedConfig) -> None:
        """Runs all orders of warps, the first with the check for races, until something is wrong."""
        from tunewright.emulator.scheduler import ORDERS  # noqa: PLC0415 - an extension of its own

        for number, order in enumerate(ORDERS):
            options = replace(self._options, order=order, races=number == 0)
            self._case.arguments.reset()
            values = self._case.arguments.values
            done = launch.execute(values, options)
            found.emulation = found.emulation or done
            found.orders.append(order)
            if done.faults:
                found.outcome, found.faults, found.reason = (
                    CheckOutcome.WRONG,
                    done.faults,
                    describe_faults(done.faults),
                )
                return
            results = self._case.run(lambda *args, done=done: launch.store(done, args))
            if wrong := launch.find_misuse(done) or self._compare(results, found.emulation):
                found.outcome, found.reason = CheckOutcome.WRONG, wrong
                return

    def _compare(self, results: Mapping[str, Any], first: Emulation) -> str | None:
        if first.whole:
            return self.judge.compare(Content(0), results)
        names = [parameter.name for parameter in self._workload.kernel.parameters]
        written = dict(zip(names, first.written, strict=False))
        wanted = dict(zip(results, self.judge.expected(Content(0)).values, strict=False))
        shown = {name: _where_written(value, wanted.get(name), written.get(name)) for name, value in results.items()}
        return self.judge.compare(Content(0), shown)


def _where_written(value: Any, wanted: Any, written: Any) -> Any:
    """Returns results with the expected ones where no executed block stored any."""
    if not isinstance(value, np.ndarray) or written is None or np.shape(wanted) != value.shape:
        return value
    chosen = written.reshape(-1, value.dtype.itemsize).any(axis=1).reshape(value.shape)
    return np.where(chosen, value, np.asarray(wanted).astype(value.dtype))
