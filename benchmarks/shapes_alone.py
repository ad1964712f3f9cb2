"""Shapes tuned one after the other, as `tunewright tune` does it, replayed from a table of `shapes_table.py`.

Each shape is a search of its own by `Session.tune`: the default first, then what was decided for its three nearest
keys, then the portfolio, whose prior are the journals of the six nearest keys with eight trials and more. So each shape
has all that was measured and decided before it. Trials are looked up instead of run, and nothing else is counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tunewright import Session
from tunewright.engine.budget import Budget
from tunewright.model.decision import Problem
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.model.trial import Timing, Trial, TrialRequest
from tunewright.replay.tables import space_of
from tunewright.stores.memory import MemoryStore

if TYPE_CHECKING:
    from shapes_table import Table

SAMPLES = 5
"""Equal samples of a recorded time, so that configs are told apart beyond doubt."""

DEVICE = Device("recorded", "recorded", "recorded")

Made = tuple[int, int]
"""A trial: shape and config."""


class ShippedPath:
    """Searches of one kernel in one store, shape after shape; `made` has their trials in order."""

    def __init__(self, table: Table, seed: int, cache: Path) -> None:
        self._table, self._space = table, space_of(table.configs)
        self._columns = {config: i for i, config in enumerate(table.configs)}
        self._session = Session(
            store=MemoryStore(), pool="serial", seed=seed, progress=False, mode="tune", cache=str(cache)
        )
        self.made: list[Made] = []

    def tune(self, shape: int, trials: int) -> int:
        """Searches for one shape with so many trials; returns the config that is decided."""
        sizes = dict(zip(self._table.names, self._table.shapes[shape], strict=True))
        problem = Problem(Key("kernel", "source", Signature(dims=sizes), DEVICE), self._space, self._table.configs[0])

        def attempt(request: TrialRequest) -> Trial:
            column = self._columns[request.config]
            self.made.append((shape, column))
            return Trial(request.config, Timing((float(self._table.chosen_by[shape, column]),) * SAMPLES))

        return self._columns[self._session.tune(problem, attempt, budget=Budget(trials)).config]


def tuned_in_turn(table: Table, order: Sequence[int], trials: Sequence[int], seed: int) -> Iterator[Made]:
    """The trials of all shapes in this order, so many for each."""
    with tempfile.TemporaryDirectory() as cache:
        path, done = ShippedPath(table, seed, Path(cache)), 0
        for shape, count in zip(order, trials, strict=True):
            path.tune(shape, min(count, len(table.configs)))
            yield from path.made[done:]
            done = len(path.made)
