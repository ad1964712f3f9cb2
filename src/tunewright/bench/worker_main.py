"""Main of a benchmark worker: lists installed operators, prepares implementations, takes samples on request."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from tunewright.bench import calibration
from tunewright.bench.calls import OperatorCall
from tunewright.bench.results import CandidateFailure
from tunewright.bench.work import MachineRoofline
from tunewright.cases.tolerance import Tolerance, find_mismatch
from tunewright.errors import SignatureError, TunewrightError
from tunewright.measure.clock import HostTimer, Sampler, make_sampler
from tunewright.model.signature import Signature
from tunewright.model.trial import Kind
from tunewright.operators.operator import Implementation, Operator
from tunewright.operators.registry import Registry, installed
from tunewright.operators.tuned_operator import ImplementationBackend, PreparedImplementation, prepare_implementations
from tunewright.pools.kernel_loader import load_target
from tunewright.pools.worker_process import configure_child_process, limit_memory, open_child_channel, resident_bytes
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import VARIANT, Config
from tunewright.stores import serialization

LEAK_PROBE_LAUNCHES = 6
"""Launches between two samples of the memory, before the rounds."""

LEAK_PROBE_SECONDS = 0.1
"""Seconds of a launch up to which it is probed for leaks before the rounds."""

MIN_LEAK_BYTES = 32 << 10
"""Bytes lost in a launch that count as a leak."""


class ListOperators(msgspec.Struct, frozen=True, tag="survey"):
    """Asks which operators and implementations are installed."""


class PrepareImplementation(msgspec.Struct, frozen=True, tag="ready"):
    """Asks to prepare an implementation for a call; `expected` is a file for the right result, written once."""

    call: OperatorCall
    implementation: str
    threads: int
    expected: str
    cache: str
    memory: int
    config: dict[str, Any] = {}


class PrepareAnchor(msgspec.Struct, frozen=True, tag="anchor"):
    """Asks to prepare an anchor: work that never changes."""

    name: Literal["dense", "wide"]


class UseClock(msgspec.Struct, frozen=True, tag="use"):
    """Asks to use this clock from now on."""

    clock: str


class TakeSample(msgspec.Struct, frozen=True, tag="turn"):
    """Asks for one sample of what was prepared under this name."""

    name: str


class MeasureRoofline(msgspec.Struct, frozen=True, tag="measure"):
    """Asks what this machine can reach."""

    threads: int
    dtypes: tuple[str, ...]


BenchCommand = ListOperators | PrepareImplementation | PrepareAnchor | UseClock | TakeSample | MeasureRoofline


class BenchRequest(msgspec.Struct, frozen=True):
    """A command to a worker; `providers` are functions that return implementations beside those installed."""

    command: BenchCommand = msgspec.field(name="do")
    providers: tuple[str, ...] = ()


class OperatorInfo(msgspec.Struct, frozen=True):
    """An operator: the size names of its inputs, its implementations, and those of them that have knobs."""

    inputs: tuple[tuple[str, ...], ...]
    implementations: tuple[str, ...]
    templates: tuple[str, ...]

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of sizes, each once."""
        return tuple(dict.fromkeys(name for array in self.inputs for name in array))


class PreparedCandidate(msgspec.Struct, frozen=True):
    """A prepared implementation: its clock and config, build time, relative error, and the bytes of its arrays."""

    clock: str
    config: dict[str, Any] = {}
    build_seconds: float = 0.0
    error: float | None = None
    nbytes: int = 0


class BenchResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message from a worker: a stage that begins, or the answer to a command."""

    stage: str | None = None
    operators: dict[str, OperatorInfo] | None = msgspec.field(default=None, name="offers")
    absent: dict[str, str] = {}
    candidate: PreparedCandidate | None = msgspec.field(default=None, name="runner")
    seconds: float | None = None
    roof: MachineRoofline | None = None
    failure: CandidateFailure | None = msgspec.field(default=None, name="mishap")
    broken: str | None = None
    done: bool = False


class CandidateFailed(TunewrightError):
    """Raised when an implementation under test fails."""

    def __init__(self, kind: str, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.failure = CandidateFailure(kind, stage, reason)


class BenchRequestHandler:
    """Answers the requests of a benchmark; holds what was prepared."""

    def __init__(self, send: Callable[[BenchResponse], None]) -> None:
        self._send, self._stage = send, ""
        self._call: OperatorCall | None = None
        self._prepared: dict[str, tuple[PrepareImplementation, PreparedCandidate]] = {}
        self._samplers: dict[str, Sampler] = {}
        self._timers: dict[str, HostTimer] = {}

    def handle(self, request: BenchRequest) -> BenchResponse:
        """Returns the answer to a request."""
        command = request.command
        if isinstance(command, ListOperators):
            return _list_operators(_load_registry(request.providers))
        if isinstance(command, MeasureRoofline):
            return BenchResponse(roof=calibration.measure_roofline(command.threads, command.dtypes))
        if isinstance(command, PrepareAnchor):
            return BenchResponse(candidate=self._prepare_anchor(command))
        if isinstance(command, UseClock):
            for timer in self._timers.values():
                timer.use(command.clock)
            return BenchResponse(done=True)
        try:
            if isinstance(command, TakeSample):
                self._stage = "time"
                return BenchResponse(seconds=self._guard(self._samplers[command.name]))
            return BenchResponse(candidate=self._prepare(command, _load_registry(request.providers)))
        except CandidateFailed as error:
            return BenchResponse(failure=error.failure)

    def _enter(self, stage: str) -> None:
        self._stage = stage
        self._send(BenchResponse(stage=stage))

    def _guard(self, call: Callable[..., Any], *args: Any) -> Any:
        """Calls code of an implementation; whatever it raises becomes CandidateFailed."""
        try:
            return call(*args)
        except MemoryError as error:
            raise CandidateFailed(Kind.MEMORY, self._stage, f"MemoryError: {error}") from error
        except TunewrightError as error:
            raise CandidateFailed(Kind.REFUSED, self._stage, str(error)) from error
        except Exception as error:
            raise CandidateFailed(Kind.RAISED, self._stage, f"{type(error).__name__}: {error}") from error

    def _prepare_anchor(self, command: PrepareAnchor) -> PreparedCandidate:
        timer = HostTimer(calibration.make_anchor(command.name), threads=1)
        self._samplers["anchor"], self._timers["anchor"] = make_sampler(timer, None), timer
        return PreparedCandidate(timer.clock)

    def _prepare(self, command: PrepareImplementation, registry: Registry) -> PreparedCandidate:
        """Builds, loads, verifies and calibrates an implementation, unless that was done before."""
        name = command.implementation
        if command.call != self._call:
            self._call = command.call
            for prepared in (self._prepared, self._samplers, self._timers):
                prepared.clear()
        if name in self._prepared and self._prepared[name][0] == command:
            return self._prepared[name][1]
        operator = registry.operator(command.call.operator)
        self._enter("prepare")
        args = command.call.arguments(operator)
        expected = _load_expected(Path(command.expected), operator, args)
        limit_memory(command.memory + 2 * sum(array.nbytes for array in args))
        entrant = self._find_entrant(registry, operator, command, args)
        config = {**entrant.starts()[0], **command.config}
        launch, build_seconds = self._build(entrant, operator, config, args, command)
        self._enter("verify")
        args[-1].fill(0)
        self._guard(launch, *args)
        error = self._verify(operator, expected, args)
        self._probe_leaks(launch, args)
        self._enter("time")
        timer = HostTimer(lambda: launch(*args), command.threads)
        self._samplers[name], self._timers[name] = self._guard(make_sampler, timer, None), timer
        knobs = {knob: value for knob, value in config.items() if knob != VARIANT}
        nbytes = sum(array.nbytes for array in args)
        candidate = PreparedCandidate(timer.clock, knobs, build_seconds, error, nbytes)
        self._prepared[name] = (command, candidate)
        return candidate

    def _find_entrant(
        self, registry: Registry, operator: Operator, command: PrepareImplementation, args: Sequence[Any]
    ) -> PreparedImplementation:
        self._enter("support")
        name = command.implementation
        implementation = next(known for known in registry.of(operator) if known.name == name)
        signature = Signature.of(operator.parameters, args)
        supported, refused = self._guard(prepare_implementations, [implementation], signature, command.threads)
        if not supported:
            raise CandidateFailed(Kind.REFUSED, "support", refused[name])
        entrant: PreparedImplementation = supported[0]
        return entrant

    def _build(
        self,
        entrant: PreparedImplementation,
        operator: Operator,
        config: dict[str, Any],
        args: Sequence[Any],
        command: PrepareImplementation,
    ) -> tuple[Callable[..., Any], float]:
        """Returns the launch function, and the seconds until it could be called."""
        self._enter("build")
        kernel = Kernel(operator.name, operator.function, operator.parameters, Path(command.cache))
        backend, began = ImplementationBackend([entrant]), time.perf_counter()
        signature = Signature.of(operator.parameters, args)
        artifact = self._guard(backend.build, kernel, Config(config), signature)
        self._enter("load")
        launch = self._guard(backend.load, kernel, artifact)
        return launch, time.perf_counter() - began

    def _verify(self, operator: Operator, expected: Any, args: Sequence[Any]) -> float:
        """Returns the relative error of the result; raises CandidateFailed if it is out of tolerance."""
        tolerance = Tolerance.of(None, operator.parameters, args)
        if mismatch := find_mismatch([expected], {"the result": args[-1]}, tolerance):
            raise CandidateFailed(Kind.WRONG, "verify", mismatch)
        size = float(np.linalg.norm(expected))
        return float(np.linalg.norm(args[-1].astype(np.float64) - expected)) / (size or 1.0)

    def _probe_leaks(self, launch: Callable[..., Any], args: Sequence[Any]) -> None:
        """Raises CandidateFailed if each launch leaves memory behind; slower launches are watched in the rounds."""
        began = time.perf_counter()
        self._guard(launch, *args)
        if time.perf_counter() - began > LEAK_PROBE_SECONDS:
            return
        sizes = []
        for _ in range(3):
            for _ in range(LEAK_PROBE_LAUNCHES):
                self._guard(launch, *args)
            sizes.append(resident_bytes(os.getpid()))
        first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
        if min(first, second) >= LEAK_PROBE_LAUNCHES * MIN_LEAK_BYTES and first / 2 <= second <= 2 * first:
            lost = second / LEAK_PROBE_LAUNCHES / 2**20
            raise CandidateFailed("leaked", self._stage, f"each launch leaves {lost:.2g} MiB behind")


def _load_expected(file: Path, operator: Operator, args: Sequence[Any]) -> Any:
    """Returns the right result in double precision; computes it and writes the file if there is none."""
    if not file.exists():
        result = operator.reference(*(array.astype(np.float64) for array in args[:-1]))
        temporary = file.with_suffix(f".{os.getpid()}.npy")
        np.save(temporary, result)
        os.replace(temporary, file)
    return np.load(file, mmap_mode="r")


def _load_registry(providers: Sequence[str]) -> Registry:
    """Returns what is installed and what the providers return; theirs replace installed ones of the same name."""
    registry = installed()
    if not providers:
        return registry
    provided: list[Implementation] = []
    for provider in providers:
        if ":" not in provider:
            raise SignatureError(f"{provider!r} names no function; write module:NAME or FILE.py:NAME")
        provided += load_target(provider)()
    names = {(implementation.operator.name, implementation.name) for implementation in provided}
    rest = [known for known in registry.implementations if (known.operator.name, known.name) not in names]
    return Registry((*rest, *provided), registry.absent)


def _list_operators(registry: Registry) -> BenchResponse:
    operators = {}
    for name, operator in registry.operators.items():
        roles = [parameter.role for parameter in operator.inputs if parameter.role]
        inputs = tuple(tuple(dim for dim in role.dims if isinstance(dim, str)) for role in roles)
        implementations = registry.of(operator)
        templates = tuple(implementation.name for implementation in implementations if implementation.template)
        names = tuple(implementation.name for implementation in implementations)
        operators[name] = OperatorInfo(inputs, names, templates)
    return BenchResponse(operators=operators, absent=registry.absent)


def main() -> None:
    """Entry of a benchmark worker's process."""
    configure_child_process()
    channel = open_child_channel()
    handler = BenchRequestHandler(channel.send)
    while (body := channel.wait_message()) is not None:
        try:
            response = handler.handle(serialization.decode(body, BenchRequest))
        except TunewrightError as error:
            response = BenchResponse(broken=str(error))
        channel.send(response)
