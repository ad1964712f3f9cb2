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

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import BackendError
from tunewright.pools.worker_process import THREAD_VARIABLES, WorkerProcess
from tunewright.referee.arena import Arena, ResultArena, spaced_bytes
from tunewright.referee.messages import (
    ChildLimits,
    ContestantSetup,
    Entry,
    LaunchBatch,
    LaunchTimes,
    PlacedLaunch,
    SandboxReport,
    Started,
)
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
        self._scratch = tempfile.mkdtemp(prefix="tunewright-referee-")
        self._inputs = Arena(spaced_bytes(sizes[0]), name="inputs")
        self._results = ResultArena(spaced_bytes(sizes[1]), rng)
        self._process = WorkerProcess(self._start)
        search = tuple(search_path())
        readable = (*options.get("readable", ()), *search)
        rest: dict[str, Any] = {name: options[name] for name in ("preload", "cpus", "without") if name in options}
        setup = ContestantSetup(
            entry, limits, self._inputs.nbytes, self._results.nbytes, self._scratch, readable, **rest
        )
        self._process.send(setup)
        self._started: Started | None = None

    def _start(self, parent_sock: socket.socket, child_sock: socket.socket, output: IO[bytes]) -> tuple[int, Any]:
        """Starts the supervisor, in a new interpreter with an environment of its own."""
        read_only = self._inputs.read_only_descriptor()
        passed = [child_sock.fileno(), read_only, self._results.descriptor]
        path = [*search_path()]
        code = f"import sys; sys.path[:0] = {path!r}; from tunewright.referee.supervisor import main; main()"
        try:
            popen = subprocess.Popen(
                [sys.executable, "-I", "-c", code, *map(str, passed)],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=clean_environment(self._limits.threads),
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

    def launch(
        self, arguments: Sequence[Any], specs: Sequence[Spec], sizes: Mapping[str, int], position: Position
    ) -> Finished:
        """Runs it once on these arguments, and returns times and results."""
        arrays = [np.ascontiguousarray(value) for value in arguments if isinstance(value, np.ndarray)]
        places = iter(self._inputs.places(*position, [(array.shape, array.dtype) for array in arrays]))
        placed, left = [], iter(arrays)
        for value in arguments:
            if isinstance(value, np.ndarray):
                place, array = next(places), next(left)
                self._inputs.view(place, array.dtype)[...] = array
                placed.append(place)
            else:
                placed.append(value)
        results = self._results.places(*position, specs)
        self._results.poison()
        launch = PlacedLaunch(tuple(placed), tuple(results), dict(sizes))
        self._process.send(LaunchBatch((launch,)))
        times = self._answer(LaunchTimes, self._limits.seconds + ANSWER_SLACK)
        if times.error or times.misbehavior:
            return Finished(times, None)
        bytes_of_results = [int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in specs]
        if not self._results.is_clean_outside(position.slot, results, bytes_of_results):
            problem = "it wrote outside of its results"
            return Finished(LaunchTimes(times.wall, times.cpu, misbehavior=problem), None)
        views = [self._results.view(place, dtype) for place, (_, dtype) in zip(results, specs, strict=True)]
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
