"""One sitting of a match: new processes for all contestants, and drawn launches that they all run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tunewright.referee.arena import spaced_bytes
from tunewright.referee.checking import ResultChecker, digest_arguments
from tunewright.referee.contestant import Contestant, Finished, Position, Request
from tunewright.referee.draws import FRESH, Drawn, Draws
from tunewright.referee.messages import ChildLimits, SandboxReport
from tunewright.referee.submissions import Submission
from tunewright.referee.task import Task, TaskError
from tunewright.referee.verdict import REFUSED, SUSPECT, WRONG, Incident, LaunchRecord

MIN_FRESH = 8
"""New inputs of each shape in a sitting at least, however long that takes."""

MAX_LAUNCHES = 400
"""Launches in a sitting at most."""

DIGESTED = 6
"""Launches of a sitting whose inputs are noted by a digest."""

CHECKED_SHARE = 0.34
"""The share of launches whose results are compared if the reference is slow."""

SLOW_REFERENCE = 3.0
"""A reference that takes so many times as long as the candidate is slow."""

MAX_BATCH, BATCH_BYTES, BATCH_SECONDS = 16, 16 << 20, 0.008
"""Short launches come in batches, of which nobody can tell the length: at most so many, so much data and so long.

Only CPU times are taken of batches, since contestants are not stopped between their launches.
"""

SHRINKING = 6
"""Launches on each smaller shape, to find the smallest input that fails."""


class MatchSetup(NamedTuple):
    """What all sittings of a match share; `gpu` is what Triton kernels are compiled for, if not interpreted."""

    task: Task
    parties: tuple[Submission, ...]
    folder: Path
    without: tuple[str, ...] = ()
    gpu: str = ""

    @property
    def clock(self) -> str:
        """The clock that counts: CPU time for one thread in one process, else the wall clock."""
        limits, kinds = self.task.limits, {party.kind for party in self.parties}
        return "cpu" if limits.threads == 1 and not limits.processes and "command" not in kinds else "wall"

    @property
    def untimed(self) -> str:
        """Why times mean nothing; empty if they do."""
        if not any(party.has_triton for party in self.parties):
            return ""
        how = f"compiled for {self.gpu}, the emulator ran it" if self.gpu else "Triton's interpreter ran it"
        return f"{how} on the CPU, since the sandbox has no GPU"

    def limits(self, party: Submission) -> ChildLimits:
        """Returns the limits of a contestant; a command is a process of its own."""
        limits = self.task.limits
        return msgspec.structs.replace(limits, processes=True) if party.kind == "command" else limits


class Sitting:
    """Starts all contestants, runs launches until the time is over or the candidate fails, and notes them."""

    def __init__(self, setup: MatchSetup, number: int, seed: int) -> None:
        self._setup, self._number, self._seed = setup, number, seed
        self._random = SystemRandom()
        self._draws = Draws(setup.task, seed)
        self._contestants: list[Contestant] = []
        self._frames = 1
        self._reference_seconds = self._candidate_seconds = self._all_seconds = 0.0
        self.checker = ResultChecker(setup.task, seed)
        self.records: list[LaunchRecord] = []
        self.incidents: list[Incident] = []

    @property
    def reports(self) -> list[SandboxReport]:
        """The sandboxes of all contestants."""
        return [contestant.sandbox for contestant in self._contestants]

    def start(self) -> None:
        """Starts all contestants; an incident notes a candidate that cannot be loaded."""
        setup, cpus = self._setup, sorted(os.sched_getaffinity(0))
        # Helpers of a contestant with one thread share its processor, so that the wall clock charges them, too.
        pinned = (self._random.choice(cpus),) if setup.task.limits.threads == 1 else ()
        options: dict[str, Any] = {
            "readable": (str(setup.folder), *(path for party in setup.parties for path in _programs(party))),
            "preload": (*setup.task.preload, *(["triton"] if setup.untimed else [])),
            "cpus": pinned,
            "without": setup.without,
            "gpu": setup.gpu if setup.untimed else "",
        }
        sizes = self._largest_sizes()
        if setup.clock == "cpu":
            nbytes = sum(map(spaced_bytes, sizes))
            self._frames = options["frames"] = max(1, min(MAX_BATCH, BATCH_BYTES // nbytes))
        for number, party in enumerate(setup.parties):
            try:
                entry = party.entry(setup.task, self._seed, setup.folder)
            except TaskError as error:
                self._note(number, REFUSED, str(error))
                return
            self._contestants.append(Contestant(entry, setup.limits(party), sizes, options))
        for number, contestant in enumerate(self._contestants):
            started = contestant.wait_started()
            if started.misbehavior:
                self._note(number, SUSPECT, started.misbehavior)
            elif started.error:
                self._note(number, REFUSED, f"it cannot be loaded: {started.error}")

    def _largest_sizes(self) -> tuple[list[int], list[int]]:
        """Returns the bytes of each array of the largest inputs and results over all shapes."""
        inputs: list[list[int]] = []
        results: list[list[int]] = []
        for shape in range(len(self._setup.task.shapes)):
            arguments = self._setup.task.make_inputs(shape, 0, self._seed)
            inputs.append([value.nbytes for value in arguments if isinstance(value, np.ndarray)])
            specs = self.checker.specs(shape, arguments)
            results.append([int(np.prod(size, dtype=np.int64)) * dtype.itemsize for size, dtype in specs])
        return max(inputs, key=spaced_bytes), max(results, key=spaced_bytes)

    def run(self, deadline: float) -> None:
        """Makes launches until the deadline, and at least a few of each shape."""
        fresh = 0
        wanted = MIN_FRESH * len(self._setup.task.shapes)
        while not self.incidents and len(self.records) < MAX_LAUNCHES:
            if time.monotonic() > deadline and fresh >= wanted:
                return
            batch = [self._draws.draw() for _ in range(self._draw_length())]
            fresh += sum(drawn.kind == FRESH for drawn in batch)
            self._launch_all(batch)
        if self.incidents and self.incidents[0].outcome == WRONG:
            self._find_smallest()

    def _draw_length(self) -> int:
        """Returns how many launches come in the next batch: one, or any number if launches were short."""
        most = BATCH_SECONDS * len(self._contestants) * len(self.records) / max(self._all_seconds, 1e-9)
        return self._random.randint(1, max(1, min(self._frames, int(most))))

    def _launch_all(self, batch: Sequence[Drawn]) -> None:
        """Has all contestants run a batch, one after the other, and notes its launches up to the first that failed."""
        task = self._setup.task
        sets = [self._draws.arguments(drawn) for drawn in batch]
        requests = [
            Request(arguments, self.checker.specs(drawn.shape, arguments), task.shapes[drawn.shape], drawn.position)
            for drawn, arguments in zip(batch, sets, strict=True)
        ]
        finished: dict[int, list[Finished]] = {}
        for number in self._random.sample(range(len(self._contestants)), len(self._contestants)):
            finished[number] = self._contestants[number].launch(requests)
        for place in range(min(map(len, finished.values()))):
            self._note_launch(batch[place], sets[place], [finished[number][place] for number in sorted(finished)])

    def _note_launch(self, drawn: Drawn, arguments: Sequence[Any], finished: Sequence[Finished]) -> None:
        """Compares the results of a launch, and notes it."""
        self._candidate_seconds += finished[0].times.wall * 1e-9
        self._all_seconds += sum(each.times.cpu for each in finished) * 1e-9
        checked = self._is_checked()
        expected = self._expected(arguments) if checked else None
        for number, each in enumerate(finished):
            if problem := self._find_problem(each, expected, arguments):
                self._note(number, *problem, drawn)
        digest = digest_arguments(arguments) if len(self.records) < DIGESTED else ""
        wall, cpu = (tuple(getattr(each.times, name) for each in finished) for name in ("wall", "cpu"))
        self.records.append(
            LaunchRecord(self._number, drawn.kind, drawn.shape, drawn.seed, drawn.swap, wall, cpu, checked, digest)
        )

    def _is_checked(self) -> bool:
        """Whether the results of a launch are compared: always, unless the reference is slow."""
        slow = self._reference_seconds > SLOW_REFERENCE * self._candidate_seconds > 0
        return not slow or self._random.random() < CHECKED_SHARE

    def _expected(self, arguments: Sequence[Any]) -> list[Any]:
        began = time.perf_counter()
        expected = self.checker.expected(arguments)
        self._reference_seconds += time.perf_counter() - began
        return expected

    def _find_problem(
        self, finished: Finished, expected: list[Any] | None, arguments: Sequence[Any]
    ) -> tuple[str, str] | None:
        """Returns the outcome and the reason if a launch was not right."""
        if finished.times.misbehavior:
            return SUSPECT, finished.times.misbehavior
        if finished.results is None:
            return WRONG, finished.times.error
        mismatch = self.checker.find_mismatch(expected, finished.results, arguments) if expected is not None else None
        return (WRONG, mismatch) if mismatch else None

    def _note(self, number: int, outcome: str, reason: str, drawn: Drawn | None = None) -> None:
        if number:
            name = self._setup.parties[number].name
            raise TaskError(f"the baseline {name} fails: {reason}; compare with one that is right")
        launch = (drawn.kind, drawn.shape, drawn.seed, drawn.swap) if drawn else ()
        self.incidents.append(Incident(outcome, reason, *launch))

    def _find_smallest(self) -> None:
        """Looks for a smaller input that fails, in new processes; the incident then names it."""
        first, task = self.incidents[0], self._setup.task
        sets = [task.make_inputs(shape, 0, self._seed) for shape in range(len(task.shapes))]
        totals = [sum(getattr(value, "nbytes", 0) for value in each) for each in sets]
        smaller = sorted((i for i in range(len(totals)) if totals[i] < totals[first.shape]), key=totals.__getitem__)
        if not smaller:
            return
        again = Sitting(self._setup, self._number, self._seed)
        try:
            again.start()
            for shape in smaller:
                for _ in range(SHRINKING):
                    position = Position(self._random.randrange(3), self._random.randrange(1 << 16))
                    again._launch_all([Drawn(FRESH, shape, self._random.getrandbits(62), 0, position)])
                    if again.incidents:
                        self.incidents[:] = again.incidents[:1]
                        return
        finally:
            again.close()

    def close(self) -> None:
        """Ends all contestants."""
        for contestant in self._contestants:
            contestant.close()


def _programs(party: Submission) -> list[str]:
    """Returns the files that the words of a command name."""
    words = party.source.split() if party.kind == "command" else []
    return [os.path.abspath(word) for word in words if os.path.isfile(word)]
