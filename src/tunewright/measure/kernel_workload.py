"""The workload of a kernel with a backend: its cases, sets of arguments with different contents, and options."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from tunewright.cases.arguments import Arguments
from tunewright.cases.inputs import Inputs
from tunewright.cases.validation import PreparedCase
from tunewright.errors import BackendError
from tunewright.measure.case_check import CaseSets
from tunewright.measure.clock import Regime
from tunewright.measure.judge import Judge, KernelJudge
from tunewright.measure.kernel_candidate import KernelCandidate
from tunewright.ports.backend import Backend, Kernel, Launch
from tunewright.spaces.config import Config

SETS = 2
"""Sets of arguments that are rotated through samples, at different addresses and with different contents."""

MAX_ROTATED_BYTES = 256 << 20
"""Arguments larger than this have one set only, to save memory; their contents change all the same."""


class CheckOptions(msgspec.Struct, frozen=True):
    """How results are verified: against `reference`, or against the results of the default config."""

    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    precise: bool = True


class TimingOptions(msgspec.Struct, frozen=True):
    """How a kernel is timed: number of threads, cache regime, and the lock file of a device that runs one at a time."""

    threads: int = 1
    regime: Regime = Regime.HOT
    device: Path | None = None


class KernelWorkload(msgspec.Struct, dict=True):
    """Everything a process needs to run configs of a kernel: backend, kernel, cases and options."""

    backend: Backend
    kernel: Kernel
    cases: tuple[Inputs, ...]
    default: Config
    check: CheckOptions = CheckOptions()
    timing: TimingOptions = TimingOptions()
    make: Callable[[Inputs], Sequence[Any]] = Inputs.make

    max_sets: ClassVar[int] = SETS
    is_prepared = False

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.kernel.name

    @property
    def lock(self) -> Path | None:
        """The lock file of the device."""
        return self.timing.device

    @property
    def may_compile(self) -> bool:
        """Whether a config may be compiled when it is launched first."""
        return bool(getattr(self.backend, "compiles_at_launch", False))

    @cached_property
    def judge(self) -> Judge:
        """Knows what results are right; a worker replaces it by one in another process."""
        return KernelJudge(self)

    @property
    def oracle_seconds(self) -> float:
        """About how long the expected results of new contents take."""
        return self.judge.seconds

    def prepare_case(self, number: int, seed: int) -> PreparedCase:
        """Returns a new set of arguments of a case; seed 0 is the first, others differ in contents."""
        inputs, parameters = self.cases[number], self.kernel.parameters
        try:
            args = self.make(msgspec.structs.replace(inputs, seed=inputs.seed + seed))
        except Exception as error:
            raise BackendError(f"making the arguments raised {type(error).__name__}: {error}") from error
        constants = self._constants(number) if seed else None
        arguments = Arguments(parameters, args, seed=seed, structured=not inputs.args, constants=constants)
        return PreparedCase(parameters, arguments, self.check.tolerance, weight=inputs.weight)

    def _constants(self, number: int) -> Arguments | None:
        """Returns the arguments whose constant inputs all sets of a case share."""
        has_constants = any(p.role is not None and p.role.constant for p in self.kernel.parameters)
        return self.first_sets[number].arguments if has_constants else None

    @cached_property
    def first_sets(self) -> list[PreparedCase]:
        """The first set of each case."""
        return [self.prepare_case(number, 0) for number in range(len(self.cases))]

    @cached_property
    def sets(self) -> list[CaseSets]:
        """The sets of arguments of each case, by seed."""
        return [self._rotation(number, case) for number, case in enumerate(self.first_sets)]

    def _rotation(self, number: int, first: PreparedCase) -> CaseSets:
        rotates = 0 < first.arguments.nbytes <= MAX_ROTATED_BYTES
        return {0: first} | {
            seed: self.prepare_case(number, seed) for seed in range(1, self.max_sets if rotates else 1)
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(case.arguments.nbytes for sets in self.sets for case in sets.values())

    def prepare(self) -> None:
        """Makes the arguments and computes the expected results. Raises BackendError if the reference fails."""
        _ = self.sets
        if not self.is_prepared:
            self.judge.prepare()
            self.is_prepared = True

    def renew(self) -> None:
        """Replaces the sets by others that no candidate has seen; constant inputs stay."""
        if not any(case.arguments.has_arrays for case in self.first_sets):
            return
        self.sets = [
            {seed: self.prepare_case(number, seed) for seed in (1 + secrets.randbelow(1 << 30) for _ in sets)}
            for number, sets in enumerate(self.sets)
        ]

    def build(self, config: Config) -> list[Any]:
        """Returns the artifact for each case; cases with the same signature share one."""
        cases = {str(case.signature): case for case in self.first_sets}
        artifacts = {text: self._build(config, case) for text, case in cases.items()}
        return [artifacts[str(case.signature)] for case in self.first_sets]

    def _build(self, config: Config, case: PreparedCase) -> Any:
        """Returns the artifact for a case; a backend that compiles at the first call is called once."""
        artifact = self.backend.build(self.kernel, config, case.signature)
        if warm_up := getattr(self.backend, "warm_up", None):
            case.arguments.reset()
            warm_up(artifact, case.arguments.values)
        return artifact

    def load(self, config: Config, artifact: Sequence[Any]) -> KernelCandidate:
        """Loads the artifacts in this process."""
        launches = [self._load_for(part, sets) for part, sets in zip(artifact, self.sets, strict=True)]
        return KernelCandidate(self.backend, launches, self.sets, self.judge, self.timing)

    def _load_for(self, artifact: Any, sets: CaseSets) -> list[Launch]:
        """Returns the launch, and more of it at other addresses if the backend can do that; as many as sets."""
        relocate = getattr(self.backend, "relocate", None)
        others = [relocate(self.kernel, artifact) for _ in range(1, len(sets))] if relocate else []
        return [self.backend.load(self.kernel, artifact), *others]
