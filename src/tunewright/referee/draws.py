"""Which launch comes next: drawn, so that no contestant can tell what kind it is."""

from __future__ import annotations

from collections import deque
from random import SystemRandom
from typing import Any, NamedTuple

import numpy as np

from tunewright.referee.arena import SLOTS
from tunewright.referee.contestant import Position
from tunewright.referee.task import Task

FRESH, REPEAT, NEIGHBOR = "fresh", "repeat", "neighbor"
"""A new input; one of an earlier launch at another address; an earlier one with two elements swapped."""

OTHER_SHARE = 0.3
"""The share of launches that are not of new inputs; their times do not count."""

OLD_PLACE_SHARE = 0.5
"""The share of new inputs that come at exactly the address of an earlier one."""

REMEMBERED = 6
"""Earlier inputs that may come again."""


class Drawn(NamedTuple):
    """A launch to be made: its kind and shape, the seeds of its inputs, and where they lie."""

    kind: str
    shape: int
    seed: int
    swap: int
    position: Position


class Draws:
    """Draws launches by numbers that nobody can foresee; shapes come equally often."""

    def __init__(self, task: Task, constant_seed: int, random: SystemRandom | None = None) -> None:
        self._task, self._constant_seed = task, constant_seed
        self._random = random or SystemRandom()
        self._shapes: list[int] = []
        self._earlier: deque[tuple[int, int, Position]] = deque(maxlen=REMEMBERED)

    def draw(self) -> Drawn:
        """Returns the next launch."""
        position = Position(self._random.randrange(SLOTS), self._random.randrange(1 << 16))
        if self._earlier and self._random.random() < OTHER_SHARE:
            shape, seed, old = self._random.choice(self._earlier)
            if self._random.random() < 0.5 or self._task.structured:
                return Drawn(REPEAT, shape, seed, 0, Position((old.slot + 1) % SLOTS, position.shift))
            return Drawn(NEIGHBOR, shape, seed, 1 + self._random.getrandbits(30), old)
        if not self._shapes:
            self._shapes = self._random.sample(range(len(self._task.shapes)), len(self._task.shapes))
        shape, seed = self._shapes.pop(), self._random.getrandbits(62)
        if self._earlier and self._random.random() < OLD_PLACE_SHARE:
            position = self._random.choice(self._earlier)[2]
        self._earlier.append((shape, seed, position))
        return Drawn(FRESH, shape, seed, 0, position)

    def arguments(self, drawn: Drawn) -> list[Any]:
        """Returns the arguments of a launch."""
        return make_arguments(self._task, drawn, self._constant_seed)


def make_arguments(task: Task, drawn: Drawn, constant_seed: int) -> list[Any]:
    """Returns the arguments of a drawn launch; the same in every process."""
    arguments = task.make_inputs(drawn.shape, drawn.seed, constant_seed)
    return swap_elements(task, arguments, drawn.swap) if drawn.swap else arguments


def swap_elements(task: Task, arguments: list[Any], seed: int) -> list[Any]:
    """Returns arguments of which one array has two different elements exchanged, usually far from its beginning."""
    names, rng = task.parameters, np.random.default_rng(seed)
    free = [
        i
        for i, value in enumerate(arguments)
        if isinstance(value, np.ndarray) and value.size > 1 and not (i < len(names) and names[i] in task.constant)
    ]
    if not free:
        return arguments
    number = int(rng.choice(free))
    changed = np.array(arguments[number], order="C")
    flat = changed.reshape(-1)
    first = int(rng.integers(flat.size // 2, flat.size))
    for _ in range(16):
        second = int(rng.integers(flat.size))
        if flat[first] != flat[second]:
            flat[[first, second]] = flat[[second, first]]
            break
    return [changed if i == number else value for i, value in enumerate(arguments)]
