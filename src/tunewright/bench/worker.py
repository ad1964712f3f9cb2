"""Benchmark workers: processes that hold prepared implementations, with deadlines and a memory limit."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tunewright.bench.worker_main import (
    BenchCommand,
    BenchRequest,
    BenchResponse,
    CandidateFailed,
    ListOperators,
    MeasureRoofline,
    PrepareAnchor,
    PrepareImplementation,
)
from tunewright.errors import BackendError, SettingsError
from tunewright.measure.evaluator import Limits
from tunewright.model.trial import Kind
from tunewright.pools.worker_process import POLL_SECONDS, START_TIMEOUT, WorkerProcess, describe_exit
from tunewright.stores import serialization

LEAK_BYTES = 64 << 20
"""Growth of a worker over the rounds that counts as a leak, if it grows in most of its samples."""


@dataclass(frozen=True)
class Build:
    """Where implementations come from: an interpreter, folders to search first, and functions that provide more."""

    python: str = sys.executable
    paths: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()

    @classmethod
    def from_path(cls, place: str, providers: tuple[str, ...] = ()) -> Build:
        """Returns the build at a checkout (its `src`, if it has one), an environment, or an interpreter."""
        path = Path(place)
        if path.is_file() and os.access(path, os.X_OK):
            return cls(str(path.absolute()), (), providers)
        if (path / "bin" / "python").exists():
            return cls(str((path / "bin" / "python").absolute()), (), providers)
        if not path.is_dir():
            raise SettingsError(f"no build at {place}; name a checkout, an environment, or its bin/python")
        source = path / "src" if (path / "src").is_dir() else path
        return cls(sys.executable, (str(source.resolve()),), providers)

    def search_path(self) -> str:
        """The value of PYTHONPATH: for another interpreter only its own folders, since ours are not made for it."""
        ours = [entry or os.getcwd() for entry in sys.path] if self.python == sys.executable else []
        return os.pathsep.join([*self.paths, *ours])


def choose_processors(threads: int, repeat: int = 0) -> tuple[int, ...]:
    """Returns as many of our processors as there are threads; others in another repeat."""
    ours = sorted(os.sched_getaffinity(0))
    return tuple(sorted({ours[(repeat * threads + i) % len(ours)] for i in range(threads)}))


@dataclass
class BenchWorker:
    """The parent's side of a worker process: sends requests, and waits no longer than the limits allow."""

    build: Build
    limits: Limits
    processors: tuple[int, ...] = (0,)
    stage: str = ""
    _sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._process = WorkerProcess.spawn(
            "tunewright.bench.worker_main",
            python=self.build.python,
            threads=len(self.processors),
            search_path=self.build.search_path(),
        )
        # All that are compared run on the same processors, which others may keep busier than the rest.
        os.sched_setaffinity(self._process.pid, self.processors)

    def request(self, command: BenchCommand) -> BenchResponse:
        """Returns the answer; raises CandidateFailed if the implementation fails, and closes the worker if it must."""
        self.stage = ""
        self._process.start_timer()
        self._process.send(BenchRequest(command, self.build.providers))  # if it is dead, receiving says how
        if isinstance(command, PrepareImplementation):
            self._sizes.clear()
        while True:
            response = self._receive(command)
            if response.stage is not None:
                self.stage = response.stage
                self._process.start_timer()
                if self.stage == "support":  # the arguments, made before, are not the candidate's
                    self._process.reset_memory()
                continue
            if response.broken is not None:
                self.close()
                raise BackendError(response.broken)
            if response.failure is not None:
                failure = response.failure
                raise CandidateFailed(failure.kind, failure.stage, failure.reason)
            return response

    def _receive(self, command: BenchCommand) -> BenchResponse:
        """Returns the next message, before the deadline of the present stage."""
        while (body := self._process.channel.pop_message()) is None:
            try:
                alive = self._process.receive(POLL_SECONDS)
            except TimeoutError:
                allowed = self._allowed_seconds(command)
                if self._process.elapsed > allowed:
                    self.close()
                    raise CandidateFailed(Kind.HUNG, self.stage or "time", f"no end within {allowed:g} s") from None
                continue
            if not alive:
                raise self._exit_error(command)
        return serialization.decode(body, BenchResponse)

    def _allowed_seconds(self, command: BenchCommand) -> float:
        is_starting = isinstance(command, PrepareImplementation | PrepareAnchor) and not self.stage
        if is_starting or self.stage == "prepare" or isinstance(command, ListOperators | MeasureRoofline):
            return START_TIMEOUT  # imports and the reference are not the candidate's doing
        return self.limits.build if self.stage in ("build", "support") else self.limits.run

    def _exit_error(self, command: BenchCommand) -> CandidateFailed | BackendError:
        """Returns the error for a process that died."""
        exit_text, tail = describe_exit(self._process.wait()), self._process.output_tail()
        memory = self._process.memory_reason(self.limits.memory)
        stage = self.stage or "time"
        self.close()
        if stage == "prepare" or isinstance(command, ListOperators | MeasureRoofline):
            return BackendError(f"a process ended before it could try anything ({exit_text}){tail}")
        return CandidateFailed(Kind.MEMORY if memory else Kind.CRASHED, stage, memory or f"{exit_text}{tail}")

    def check_leak(self) -> None:
        """Samples the worker's memory after a round; raises CandidateFailed if it has kept growing."""
        self._sizes.append(self._process.resident_bytes())
        growth = [late - early for early, late in zip(self._sizes, self._sizes[1:], strict=False)]
        total = self._sizes[-1] - self._sizes[0]
        if total > LEAK_BYTES and sum(step > 0 for step in growth) > len(growth) / 2:
            raise CandidateFailed("leaked", "time", f"it grew by {total >> 20:,} MiB in {len(growth)} rounds")

    @property
    def closed(self) -> bool:
        """Whether the worker was ended."""
        return self._process.closed

    def close(self) -> None:
        """Kills the process and whatever it started."""
        if not self.closed:
            self._process.close()
