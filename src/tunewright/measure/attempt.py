"""Attempt: build, load, verify, time; config in, trial out. A bad config is a result, not an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import BackendError, TunewrightError
from tunewright.measure import race
from tunewright.measure.clock import repeated, visitor
from tunewright.measure.lease import lease
from tunewright.measure.verify import Arguments, expected_from, objection
from tunewright.model.config import Config
from tunewright.model.inputs import Inputs
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Trial
from tunewright.ports.backend import Backend, Kernel, Launch

Watcher = Callable[[Stage], None]
Maker = Callable[..., Sequence[Any]]


class Limits(msgspec.Struct, frozen=True):
    """What one attempt may cost: seconds to build, seconds to run, bytes of memory."""

    build: float = 120.0
    run: float = 60.0
    memory: int = 4 << 30


class Check(msgspec.Struct, frozen=True):
    """How results are judged: against `reference`, or against what the default config computes."""

    reference: Callable[..., Any] | None = None
    tolerance: float | None = None


def _unwatched(stage: Stage) -> None: ...


class Bench(msgspec.Struct, dict=True):
    """Everything a process needs to try configs of one problem: kernel, backend, arguments and a judge."""

    backend: Backend
    kernel: Kernel
    inputs: Inputs
    default: Config
    check: Check = Check()
    maker: Maker | None = None
    threads: int = 1
    device: Path | None = None

    @cached_property
    def arguments(self) -> Arguments:
        """The arguments every attempt starts from."""
        try:
            args = list(self.maker(**self.inputs.dims)) if self.maker else self.inputs.make()
        except Exception as error:
            raise BackendError(f"making the arguments raised {type(error).__name__}: {error}") from error
        return Arguments(self.kernel.parameters, args)

    @cached_property
    def signature(self) -> Signature:
        """What the arguments look like to a builder."""
        return Signature.of(self.kernel.parameters, self.arguments.pristine)

    @cached_property
    def expected(self) -> list[Any]:
        """The right results. A reference that fails is a broken program, and raises."""
        if self.check.reference is not None:
            try:
                with lease(self.device):  # a reference may use every core there is
                    return expected_from(self.check.reference, self.kernel.parameters, self.arguments.pristine)
            except Exception as error:
                raise BackendError(f"the reference raised {type(error).__name__}: {error}") from error
        try:
            artifact = self.backend.build(self.kernel, self.default, self.signature)
            with lease(self.device):
                launch = self.backend.load(self.kernel, artifact)
                self.arguments.reset()
                results = self.arguments.results(launch(*self.arguments.values))
            if said := self.arguments.damage():
                raise BackendError(said)
        except Exception as error:
            raise BackendError(
                f"there is no reference, and the default config ({self.default}) fails: "
                f"{type(error).__name__}: {error}; give a `reference=` or another `default=`"
            ) from error
        return deepcopy(list(results.values()))

    def __call__(self, config: Config, watch: Watcher = _unwatched) -> Trial:
        """Try one config here and now; `watch` is told each stage as it begins."""
        expected = self.expected
        stage, started, built = Stage.BUILD, time.perf_counter(), None
        try:
            watch(stage)
            artifact = self.backend.build(self.kernel, config, self.signature)
            built = time.perf_counter()
            watch(stage := Stage.WAIT)
            with lease(self.device):
                watch(stage := Stage.LOAD)
                launch = self.backend.load(self.kernel, artifact)
                watch(stage := Stage.VERIFY)
                outcome = self._verify(launch, expected)
                if outcome is None:
                    watch(stage := Stage.TIME)
                    restore = self.arguments.restorer()
                    timer = self.backend.timer(launch, self.arguments.values, self.threads)
                    outcome = repeated(timer, restore)
        except MemoryError as error:
            outcome = Failure(stage, Kind.MEMORY, f"MemoryError: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a config breaks is data about the config
            kind = Kind.REFUSED if stage in (Stage.BUILD, Stage.LOAD) else Kind.RAISED
            said = str(error) if isinstance(error, TunewrightError) else f"{type(error).__name__}: {error}"
            outcome = Failure(stage, kind, said)
        ended = time.perf_counter()
        return Trial(config, outcome, (built or ended) - started, ended - (built or ended), at=time.time())

    def race(self, configs: Sequence[Config], terms: race.Terms) -> race.Race:
        """Configs that work, raced here against each other on the same arguments."""
        visits = []
        artifacts = [self.backend.build(self.kernel, config, self.signature) for config in configs]
        with lease(self.device):
            for artifact in artifacts:
                launch = self.backend.load(self.kernel, artifact)
                self.arguments.reset()
                launch(*self.arguments.values)
                timer = self.backend.timer(launch, self.arguments.values, self.threads)
                visits.append(visitor(timer, self.arguments.restorer()))
            return race.run(visits, terms)

    def _verify(self, launch: Launch, expected: list[Any]) -> Outcome | None:
        self.arguments.reset()
        returned = launch(*self.arguments.values)
        results, alone = self.arguments.results(returned), self.check.reference is None
        said = self.arguments.damage() or objection(expected, results, self.check.tolerance, same_dtype=alone)
        return Failure(Stage.VERIFY, Kind.WRONG, said) if said else None
