"""Checks the results of a candidate in one case: repeatedly, on other contents, and over earlier results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tunewright.cases.arguments import Arguments, Outputs
from tunewright.cases.validation import VARIES, Content, PreparedCase, fingerprint
from tunewright.cpu_usage import start_usage
from tunewright.measure.judge import Judge
from tunewright.ports.backend import Launch

CaseSets = Mapping[int, PreparedCase]
"""The sets of arguments of one case, by seed."""

REPEAT_SECONDS = 2e-3
"""Seconds that each of the launches of a check may take on average; if they take longer, there are fewer."""


class Placement(NamedTuple):
    """A launch, loaded at some address, on a set of arguments with a seed, which lie at others."""

    launch: Launch
    seed: int
    case: PreparedCase


class CaseCheck:
    """A case of a candidate: every loaded launch on every set of arguments, and the judge of results."""

    def __init__(self, number: int, launches: Sequence[Launch], sets: CaseSets, judge: Judge) -> None:
        self._number, self._judge = number, judge
        self.placements = [Placement(launch, seed, case) for launch in launches for seed, case in sets.items()]
        self.launches = 0
        self.launch_seconds, self.clock = 0.0, "wall"

    def place(self, draw: int) -> int:
        """Returns the number of the placement that a draw selects; the first contents are also those of the last."""
        return draw % len(self.placements) if draw else len(self.placements) - 1

    def verify(self, seconds: float) -> tuple[str | None, str]:
        """Returns what is wrong with the results on the first set, and their fingerprint over two runs.

        A launch takes as long as the shorter of the two: the first may contain a compilation.
        """
        results, self.launch_seconds = self._timed_run()
        if problem := self.problem(0, 0, results):
            return problem, ""
        first = fingerprint(results)
        if 2 * self.launch_seconds > seconds:
            return None, first
        again, second = self._timed_run()
        self.launch_seconds = min(self.launch_seconds, second)
        return None, first if fingerprint(again) == first else VARIES

    def _timed_run(self) -> tuple[dict[str, Any], float]:
        """Returns the results of a launch on the first contents, and its seconds; notes the clock that it needs."""
        usage_since = start_usage()
        results = self.run(0, 0)
        usage = usage_since()
        self.clock = "wall" if usage.needs_wall_clock(1) else "thread"
        return results, usage.wall

    def run(self, place: int, draw: int, *, outputs: Outputs = Outputs.POISONED) -> dict[str, Any]:
        """Returns the results of a launch on a set with the contents of a draw."""
        self.launches += 1
        placement = self.placements[place]
        return placement.case.run(placement.launch, draw, outputs=outputs)

    def problem(self, place: int, draw: int, results: Mapping[str, Any]) -> str | None:
        """Returns what is wrong with the results of the latest launch."""
        placement = self.placements[place]
        content = Content(self._number, placement.seed, draw)
        return placement.case.arguments.damage() or self._judge.compare(content, results)

    def examine(self, draw: int, launches: int) -> str | None:
        """Returns what is wrong with results on the contents of a draw, when repeated, and on other contents.

        Repeated launches find outputs poisoned, so that none can rely on what an earlier one wrote. Then the contents
        change and the outputs do not, or have other numbers if contents cannot change, so that none can take what it
        finds for its result.
        """
        place, began = self.place(draw), time.perf_counter()
        results = self.run(place, draw)
        if problem := self.problem(place, draw, results):
            return problem
        bits = fingerprint(results)
        for _ in range(1, launches):
            again = self.run(place, draw)
            if fingerprint(again) != bits and (problem := self.problem(place, draw, again)):
                return problem
            if time.perf_counter() - began > launches * REPEAT_SECONDS:
                break
        arguments = self.placements[place].case.arguments
        returned = _own_arrays(results, arguments)
        bits = fingerprint(returned)
        found = Outputs.KEPT if arguments.contents.can_change else Outputs.NUMBERS
        if problem := self.problem(place, 0, self.run(place, 0, outputs=found)):
            return problem
        if fingerprint(returned) != bits:
            return "what it returned changed with the next call: it returns the same memory again"
        return None


def _own_arrays(results: Mapping[str, Any], arguments: Arguments) -> dict[str, Any]:
    """Returns the arrays among results that are neither arguments nor parts of them."""
    given = [array for array in arguments.arrays if array is not None]
    parts = [part for value in results.values() for part in (value if isinstance(value, tuple | list) else (value,))]
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    own = [array for array in arrays if not any(np.may_share_memory(array, other) for other in given)]
    return {str(number): array for number, array in enumerate(own)}
