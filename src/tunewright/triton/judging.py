"""The judge of a Triton kernel: knows what a launch should store, by the reference or by another config."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from tunewright.ports.candidate import WrongResult
from tunewright.triton.argument_sets import ArgumentSet
from tunewright.triton.launching import BoundLaunchCall
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.results import StoredResults, expected_by_reference, expected_of
from tunewright.triton.tensors import Room

MAX_EXPECTED, MAX_EXPECTED_BYTES = 8, 256 << 20
"""How many expected results are kept: fewer if they are large, but at least two."""

Binder = Callable[[ArgumentSet], BoundLaunchCall]
"""Returns the launch of a config on a set of arguments."""


class TritonJudge:
    """Computes expected results of draws, and keeps the latest of them.

    Without a reference, they are those of a config: `bind` returns its launch, `by` says which it is.
    """

    def __init__(self, options: AutotuneOptions, room: Room) -> None:
        self._options, self._room = options, room
        self._bind: Binder | None = None
        self._by = ""
        self._expected: OrderedDict[int, StoredResults] = OrderedDict()
        self._scales: dict[str, float] = {}
        self.seconds = 0.0

    def compare_with(self, bind: Binder | None, by: str) -> None:
        """Takes the results of a config as the expected ones; of none, until the next is known."""
        self._bind, self._by = bind, by
        self._expected.clear()

    @property
    def is_ready(self) -> bool:
        """Whether expected results can be computed."""
        return self._options.reference is not None or self._bind is not None

    def renew(self) -> None:
        """Forgets the expected results of all draws but the first, whose contents do not change."""
        self._expected = OrderedDict((draw, expected) for draw, expected in self._expected.items() if draw == 0)

    def expected(self, arguments: ArgumentSet, draw: int) -> StoredResults:
        """Returns the expected results of a draw; computes them on these arguments if they are not known."""
        if draw not in self._expected:
            began = time.perf_counter()
            self._expected[draw] = self._compute(arguments, draw)
            self.share_scales(self._expected[draw])
            self.seconds = time.perf_counter() - began
            limit = max(2, min(MAX_EXPECTED, MAX_EXPECTED_BYTES // max(1, self._expected[draw].nbytes)))
            while len(self._expected) > limit:
                self._expected.pop(next(old for old in self._expected if old not in (0, draw)))
        self._expected.move_to_end(draw)
        return self._expected[draw]

    def share_scales(self, results: StoredResults) -> None:
        """Takes in how large these results are, and has them judged by how large others are."""
        results.share_scales(self._scales)

    def _compute(self, arguments: ArgumentSet, draw: int) -> StoredResults:
        arguments.reset(draw)
        if self._options.reference is not None:
            return expected_by_reference(self._options, arguments.call.all_named, arguments.stored, self._room)
        assert self._bind is not None
        results: list[StoredResults] = []
        launch_and(self._bind(arguments), lambda: results.append(self.stored_by(arguments, self._by)))
        if problem := damage(arguments):
            raise WrongResult(problem)
        return results[0]

    def stored_by(self, arguments: ArgumentSet, by: str) -> StoredResults:
        """Returns what a launch of a config has just stored."""
        return expected_of(self._options, arguments.tensors, arguments.stored, self._room, by)

    def close(self) -> None:
        """Forgets all results, and the config that they are of."""
        self.compare_with(None, "")


def damage(arguments: ArgumentSet) -> str | None:
    """Returns which arguments were changed that the kernel should only read, and repairs them."""
    return describe_damage(arguments.repair())


def describe_damage(changed: Sequence[str]) -> str | None:
    """Returns what is wrong with a launch that changed these arguments."""
    return f"it changed {', '.join(changed)}, which it should only read" if changed else None


def launch_and(launch: BoundLaunchCall, look: Callable[[], Any]) -> None:
    """Launches once, and looks at the results before the hook after the launch, which may restore arguments."""
    launch.before()
    launch.run()
    look()
    launch.after()
