"""Far: the far side of a seat: lists who is installed, makes implementations ready, runs one when it is its turn."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from tunewright.bench import anchors
from tunewright.bench.calls import Call
from tunewright.bench.run import Mishap
from tunewright.bench.work import Roof
from tunewright.cases.judge import Nearness, objection
from tunewright.errors import SignatureError, TunewrightError
from tunewright.measure.clock import HostTimer, Visit, visitor
from tunewright.model.signature import Signature
from tunewright.model.trial import Kind
from tunewright.operators.contest import Entrant, Field, entrants
from tunewright.operators.operator import Implementation, Operator
from tunewright.operators.registry import Registry, installed
from tunewright.pools.child import Channel, limit_memory, settle
from tunewright.pools.isolate import resident
from tunewright.pools.loading import find
from tunewright.ports.backend import Kernel
from tunewright.sharing import wire
from tunewright.spaces.config import VARIANT, Config

PROBED, SHORT = 6, 0.1
"""Launches between two looks at the memory; seconds a launch up to which that is cheap."""

LEAST_LEAK = 32 << 10
"""Bytes a launch that are no chance."""


class Survey(msgspec.Struct, frozen=True, tag="survey"):
    """Who is installed?"""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Make an implementation ready for a call; `expected` is a file with the right result, made by who comes first."""

    call: Call
    implementation: str
    threads: int
    expected: str
    cache: str
    memory: int
    config: dict[str, Any] = {}


class Anchor(msgspec.Struct, frozen=True, tag="anchor"):
    """Make an anchor ready."""

    name: Literal["dense", "wide"]


class Use(msgspec.Struct, frozen=True, tag="use"):
    """Read this clock from now on."""

    clock: str


class Turn(msgspec.Struct, frozen=True, tag="turn"):
    """Run who was made ready under this name, for a moment."""

    name: str


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """Find what this machine can do."""

    threads: int
    dtypes: tuple[str, ...]


Asked = Survey | Ready | Anchor | Use | Turn | Measure


class Task(msgspec.Struct, frozen=True):
    """What a seat is asked; `providers` are functions that give implementations beside those installed."""

    do: Asked
    providers: tuple[str, ...] = ()


class Offer(msgspec.Struct, frozen=True):
    """An operator: the sizes of its inputs by name, its implementations, and those of them that have knobs."""

    inputs: tuple[tuple[str, ...], ...]
    implementations: tuple[str, ...]
    templates: tuple[str, ...]

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of sizes, each once."""
        return tuple(dict.fromkeys(name for array in self.inputs for name in array))


class Runner(msgspec.Struct, frozen=True):
    """Who was made ready: its config and clock, what building took, its error, the bytes of its arrays."""

    clock: str
    config: dict[str, Any] = {}
    build_seconds: float = 0.0
    error: float | None = None
    nbytes: int = 0


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a seat says: a stage that begins, or an answer."""

    stage: str | None = None
    offers: dict[str, Offer] | None = None
    absent: dict[str, str] = {}
    runner: Runner | None = None
    seconds: float | None = None
    roof: Roof | None = None
    mishap: Mishap | None = None
    broken: str | None = None
    done: bool = False


class Stumbled(TunewrightError):
    """An implementation failed, in a way that it can tell itself."""

    def __init__(self, kind: str, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.mishap = Mishap(kind, stage, reason)


class Far:
    """What a seat has made ready, and how it answers."""

    def __init__(self, say: Callable[[Note], None]) -> None:
        self._say, self._stage = say, ""
        self._call: Call | None = None
        self._known: dict[str, tuple[Ready, Runner]] = {}
        self._visits: dict[str, Visit] = {}
        self._timers: dict[str, HostTimer] = {}

    def answer(self, task: Task) -> Note:
        """Do what is asked."""
        do = task.do
        if isinstance(do, Survey):
            return _surveyed(_registry(task.providers))
        if isinstance(do, Measure):
            return Note(roof=anchors.roof(do.threads, do.dtypes))
        if isinstance(do, Anchor):
            return Note(runner=self._anchored(do))
        if isinstance(do, Use):
            for timer in self._timers.values():
                timer.use(do.clock)
            return Note(done=True)
        try:
            if isinstance(do, Turn):
                self._stage = "time"
                return Note(seconds=self._guarded(self._visits[do.name]))
            return Note(runner=self._readied(do, _registry(task.providers)))
        except Stumbled as stumbled:
            return Note(mishap=stumbled.mishap)

    def _enter(self, stage: str) -> None:
        self._stage = stage
        self._say(Note(stage=stage))

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """What a call into somebody's implementation returns; whatever it raises is data."""
        try:
            return call(*args)
        except MemoryError as error:
            raise Stumbled(Kind.MEMORY, self._stage, f"MemoryError: {error}") from error
        except TunewrightError as error:
            raise Stumbled(Kind.REFUSED, self._stage, str(error)) from error
        except Exception as error:
            raise Stumbled(Kind.RAISED, self._stage, f"{type(error).__name__}: {error}") from error

    def _anchored(self, do: Anchor) -> Runner:
        timer = HostTimer(anchors.work(do.name), threads=1)
        self._visits["anchor"], self._timers["anchor"] = visitor(timer, None), timer
        return Runner(timer.clock)

    def _readied(self, do: Ready, registry: Registry) -> Runner:
        """Built, loaded, judged, calibrated; at once if that is done already."""
        name = do.implementation
        if do.call != self._call:
            self._call = do.call
            for held in (self._known, self._visits, self._timers):
                held.clear()
        if name in self._known and self._known[name][0] == do:
            return self._known[name][1]
        operator = registry.operator(do.call.operator)
        self._enter("prepare")
        args = do.call.arguments(operator)
        expected = _expected(Path(do.expected), operator, args)
        limit_memory(do.memory + 2 * sum(array.nbytes for array in args))
        entrant = self._entrant(registry, operator, do, args)
        config = {**entrant.starts()[0], **do.config}
        launch, took = self._built(entrant, operator, config, args, do)
        self._enter("verify")
        args[-1].fill(0)
        self._guarded(launch, *args)
        error = self._judged(operator, expected, args)
        self._probe(launch, args)
        self._enter("time")
        timer = HostTimer(lambda: launch(*args), do.threads)
        self._visits[name], self._timers[name] = self._guarded(visitor, timer, None), timer
        said = {knob: value for knob, value in config.items() if knob != VARIANT}
        runner = Runner(timer.clock, said, took, error, sum(array.nbytes for array in args))
        self._known[name] = (do, runner)
        return runner

    def _entrant(self, registry: Registry, operator: Operator, do: Ready, args: Sequence[Any]) -> Entrant:
        self._enter("support")
        one = next(one for one in registry.of(operator) if one.name == do.implementation)
        signature = Signature.of(operator.parameters, args)
        ready, refused = self._guarded(entrants, [one], signature, do.threads)
        if not ready:
            raise Stumbled(Kind.REFUSED, "support", refused[one.name])
        entrant: Entrant = ready[0]
        return entrant

    def _built(
        self, entrant: Entrant, operator: Operator, config: dict[str, Any], args: Sequence[Any], do: Ready
    ) -> tuple[Callable[..., Any], float]:
        """A launch, and the seconds until it could be launched."""
        self._enter("build")
        kernel = Kernel(operator.name, operator.function, operator.parameters, Path(do.cache))
        field, began = Field([entrant]), time.perf_counter()
        signature = Signature.of(operator.parameters, args)
        artifact = self._guarded(field.build, kernel, Config(config), signature)
        self._enter("load")
        launch = self._guarded(field.load, kernel, artifact)
        return launch, time.perf_counter() - began

    def _judged(self, operator: Operator, expected: Any, args: Sequence[Any]) -> float:
        """The relative error of the result; one that is not right is told as in a tuning run."""
        near = Nearness.of(None, operator.parameters, args)
        if said := objection([expected], {"the result": args[-1]}, near):
            raise Stumbled(Kind.WRONG, "verify", said)
        size = float(np.linalg.norm(expected))
        return float(np.linalg.norm(args[-1].astype(np.float64) - expected)) / (size or 1.0)

    def _probe(self, launch: Callable[..., Any], args: Sequence[Any]) -> None:
        """Whether each launch leaves memory behind; rounds look on, for what is slower."""
        began = time.perf_counter()
        self._guarded(launch, *args)
        if time.perf_counter() - began > SHORT:
            return
        seen = []
        for _ in range(3):
            for _ in range(PROBED):
                self._guarded(launch, *args)
            seen.append(resident(os.getpid()))
        first, second = seen[1] - seen[0], seen[2] - seen[1]
        if min(first, second) >= PROBED * LEAST_LEAK and first / 2 <= second <= 2 * first:
            raise Stumbled("leaked", self._stage, f"each launch leaves {second / PROBED / 2**20:.2g} MiB behind")


def _expected(file: Path, operator: Operator, args: Sequence[Any]) -> Any:
    """The right result in double precision, from the file, or for it."""
    if not file.exists():
        right = operator.reference(*(array.astype(np.float64) for array in args[:-1]))
        fresh = file.with_suffix(f".{os.getpid()}.npy")
        np.save(fresh, right)
        os.replace(fresh, file)
    return np.load(file, mmap_mode="r")


def _registry(providers: Sequence[str]) -> Registry:
    """What is installed, and what these functions give; who is named twice is taken from them."""
    here = installed()
    if not providers:
        return here
    given: list[Implementation] = []
    for provider in providers:
        if ":" not in provider:
            raise SignatureError(f"{provider!r} names no function; write module:NAME or FILE.py:NAME")
        given += find(provider)()
    own = {(one.operator.name, one.name) for one in given}
    rest = [one for one in here.implementations if (one.operator.name, one.name) not in own]
    return Registry((*rest, *given), here.absent)


def _surveyed(registry: Registry) -> Note:
    offers = {}
    for name, operator in registry.operators.items():
        roles = [parameter.role for parameter in operator.inputs if parameter.role]
        inputs = tuple(tuple(dim for dim in role.dims if isinstance(dim, str)) for role in roles)
        every = registry.of(operator)
        templates = tuple(one.name for one in every if one.template)
        offers[name] = Offer(inputs, tuple(one.name for one in every), templates)
    return Note(offers=offers, absent=registry.absent)


def main() -> None:
    """Entry of a seat's process: the socket's number is the only argument; its search path is the first message."""
    settle()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    far = Far(channel.send)
    while (body := channel.wait()) is not None:
        try:
            note = far.answer(wire.decode(body, Task))
        except TunewrightError as error:
            note = Note(broken=str(error))
        channel.send(note)
