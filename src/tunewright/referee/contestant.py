"""A contestant as the referee sees it: a supervised process, its shared memory, and its launches."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.errors import BackendError
from tunewright.pools.worker_process import THREAD_VARIABLES, WorkerProcess
from tunewright.referee.arena import Arena, ResultArena, spaced_bytes
from tunewright.referee.messages import (
    BatchTimes,
    ChildLimits,
    ContestantSetup,
    Entry,
    LaunchBatch,
    LaunchTimes,
    MemorySizes,
    PlacedLaunch,
    SandboxReport,
    StagedLaunch,
    Started,
)
from tunewright.referee.staging import Staging
from tunewright.stores import serialization

ANSWER_SLACK = 60.0
"""Seconds that a supervisor may take beyond the limits of its contestant."""

CLOSE_SECONDS = 10.0
"""Seconds that a supervisor may take to end its contestant."""

Spec = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of an array."""


class Position(NamedTuple):
    """Where the arrays of a launch lie: the slot, and by how many blocks they are shifted."""

    slot: int
    shift: int


class Request(NamedTuple):
    """A launch to be made: arguments, shapes and dtypes of its results, named sizes, and where its arrays lie."""

    arguments: Sequence[Any]
    specs: Sequence[Spec]
    sizes: Mapping[str, int]
    position: Position


class Finished(NamedTuple):
    """A launch that ended: its times and its results, which are None if it failed."""

    times: LaunchTimes
    results: list[NDArray[Any]] | None


class Contestant:
    """A candidate or a baseline, running in a sandbox; stopped whenever it has no launch to do.

    `sizes` are the largest sets of inputs and of results, as bytes of each array.
    """

    def __init__(
        self, entry: Entry, limits: ChildLimits, sizes: tuple[Sequence[int], Sequence[int]], options: Mapping[str, Any]
    ) -> None:
        rng = np.random.default_rng()
        self._limits = limits
        interprets = "triton" in options.get("preload", ()) and not options.get("gpu")
        interpreted = {"TRITON_INTERPRET": "1"} if interprets else {}
        self._environment = clean_environment(limits.threads) | interpreted
        self._scratch = tempfile.mkdtemp(prefix="tunewright-referee-")
        self._inputs = Arena(spaced_bytes(sizes[0]), name="inputs")
        self._results = ResultArena(spaced_bytes(sizes[1]), rng)
        memory = MemorySizes(self._inputs.slot_bytes, self._results.slot_bytes, options.get("frames", 1))
        self._staging = Staging(memory)
        self._staging.poison[:] = self._results.poison
        self._process = WorkerProcess(self._start)
        search = tuple(search_path())
        readable = (*options.get("readable", ()), *search)
        rest = {name: options[name] for name in ("preload", "cpus", "without", "gpu") if name in options}
        self._process.send(ContestantSetup(entry, limits, memory, self._scratch, readable, **rest))
        self._started: Started | None = None

    def _start(self, parent_sock: socket.socket, child_sock: socket.socket, output: IO[bytes]) -> tuple[int, Any]:
        """Starts the supervisor, in a new interpreter with an environment of its own."""
        read_only = self._inputs.read_only_descriptor()
        memory = [read_only, self._results.descriptor, self._inputs.descriptor, self._staging.descriptor]
        passed = [child_sock.fileno(), *memory]
        path = [*search_path()]
        code = f"import sys; sys.path[:0] = {path!r}; from tunewright.referee.supervisor import main; main()"
        try:
            popen = subprocess.Popen(
                [sys.executable, "-I", "-c", code, *map(str, passed)],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )
        finally:
            os.close(read_only)
        return popen.pid, popen

    def wait_started(self) -> Started:
        """Waits until its code is loaded, or could not be."""
        if self._started is None:
            self._started = self._answer(Started, 2 * self._limits.start_seconds)
        return self._started

    @property
    def sandbox(self) -> SandboxReport:
        """The parts of its sandbox."""
        return self.wait_started().sandbox

    def launch(self, requests: Sequence[Request]) -> list[Finished]:
        """Runs it once on each of these arguments, and returns times and results; it ends with the first that failed.

        There can be as many requests as there are frames.
        """
        staged = [self._stage(number, request) for number, request in enumerate(requests)]
        self._process.send(LaunchBatch(tuple(staged)))
        seconds = len(requests) * self._limits.seconds + ANSWER_SLACK
        done: BatchTimes = self._answer(BatchTimes, seconds)
        finished = [
            self._collect(number, times, staged[number], requests[number]) for number, times in enumerate(done.launches)
        ]
        if not self._results.is_clean():
            self._results.restore()
            finished[-1] = _with_problem(finished[-1].times, "it wrote outside of its results")
        return finished

    def _stage(self, number: int, request: Request) -> StagedLaunch:
        """Puts the inputs of a launch where its supervisor finds them."""
        image, end = self._staging.inputs(number), 0
        arrays = [np.ascontiguousarray(value) for value in request.arguments if isinstance(value, np.ndarray)]
        places = self._inputs.places(*request.position, [(array.shape, array.dtype) for array in arrays])
        for place, array in zip(places, arrays, strict=True):
            self._inputs.view(place, array.dtype, image)[...] = array
            end = place.offset % self._inputs.slot_bytes + array.nbytes
        left = iter(places)
        placed = tuple(next(left) if isinstance(value, np.ndarray) else value for value in request.arguments)
        results = tuple(self._results.places(*request.position, request.specs))
        return StagedLaunch(request.position.slot, end, PlacedLaunch(placed, results, dict(request.sizes)))

    def _collect(self, number: int, times: LaunchTimes, staged: StagedLaunch, request: Request) -> Finished:
        """Returns the results of a launch, as they were when it ended."""
        if times.error or times.misbehavior:
            return Finished(times, None)
        image, places = self._staging.results(number), staged.launch.results
        views = [
            self._results.view(place, dtype, image) for place, (_, dtype) in zip(places, request.specs, strict=True)
        ]
        if not self._results.is_clean_around(image, places, [view.nbytes for view in views]):
            return _with_problem(times, "it wrote outside of its results")
        return Finished(times, [view.copy() for view in views])

    def _answer(self, wanted: type[Any], seconds: float) -> Any:
        self._process.start_timer()
        while (body := self._process.channel.pop_message()) is None:
            try:
                if not self._process.receive(timeout=max(0.1, seconds - self._process.elapsed)):
                    status, tail = self._process.wait(), self._process.output_tail()
                    raise BackendError(f"the supervisor of a contestant ended with status {status}{tail}")
            except TimeoutError:
                raise BackendError(f"the supervisor of a contestant did not answer within {seconds:g} s") from None
        return serialization.decode(body, wanted)

    def close(self) -> None:
        """Ends the contestant and its supervisor."""
        with contextlib.suppress(OSError):
            self._process.channel.sock.shutdown(socket.SHUT_WR)
            self._process.channel.sock.settimeout(CLOSE_SECONDS)
            while self._process.channel.receive():  # until the supervisor has ended what it started
                pass
        self._process.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._inputs.close()
        self._results.close()
        self._staging.close()


def _with_problem(times: LaunchTimes, misbehavior: str) -> Finished:
    return Finished(msgspec.structs.replace(times, misbehavior=times.misbehavior or misbehavior), None)


def clean_environment(threads: int) -> dict[str, str]:
    """Returns an environment that says nothing of this one."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "random",
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
    }


def search_path() -> list[str]:
    """Returns the folders that packages are imported from; not the current one, nor that of a program."""
    package = str(Path(__file__).resolve().parents[2])
    return [package, *(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))]
