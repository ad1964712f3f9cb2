"""Tunes a kernel for many shapes at once: a model over shape and config decides where each trial goes.

Shapes that were tried are decided by a race, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from tunewright.cases.inputs import Array, Inputs, parse_dtype
from tunewright.engine.budget import Budget
from tunewright.errors import SettingsError
from tunewright.kernel.tuned import Tuned
from tunewright.model.decision import Decision, Problem
from tunewright.model.trial import Incumbent, Trial, TrialRequest
from tunewright.ports import plugins
from tunewright.ports.pool import Pool
from tunewright.shapes.planning import TrialPlan
from tunewright.shapes.table import ShapeTable, cells_of
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

FINAL_SHARE = 0.4
"""The share of the seconds that is kept for the races."""

MAX_CONFIGS = 2000
"""Configs that the model knows; of larger spaces, a random sample."""

OnTrial = Callable[[Mapping[str, int], Trial], None]
OnRace = Callable[[Mapping[str, int], int], None]
"""Takes the sizes of the shape that is raced, and how many are left."""


@dataclass
class ShapeTask:
    """A shape to tune: its sizes, and how often it comes."""

    kernel: Tuned
    sizes: Mapping[str, int]
    weight: float

    def arguments(self) -> list[Any]:
        """Returns arguments of these sizes; they are not kept, since there may be thousands of shapes."""
        return self.kernel.example(self.sizes)

    @cached_property
    def problem(self) -> Problem:
        """The problem of a call with these sizes."""
        return problem_of(self.kernel, self.sizes)

    @cached_property
    def attempt(self) -> Any:
        """What tries configs on this shape."""
        return self.kernel.attempt(self.kernel.cases_like(self.arguments()))


class JointSearch:
    """The shapes of a kernel with all their trials, of which the store has some already."""

    def __init__(self, kernel: Tuned, shapes: Iterable[tuple[Mapping[str, int], float]], seed: int = 0) -> None:
        if kernel.declaration.invariant:
            raise SettingsError(f"{kernel.name} has invariant=, so its sizes are tuned together: give them by --shape")
        self.kernel, self._seed = kernel, seed
        self.tasks = _merged(kernel, shapes)
        self.configs = _known_configs(kernel.space, kernel.default, np.random.default_rng(seed))
        self._shapes = tuple(tuple(task.problem.key.signature.dims.values()) for task in self.tasks)
        places = {config: i for i, config in enumerate(self.configs)}
        self._seconds = np.full((len(self.tasks), len(self.configs)), np.nan)
        for number, task in enumerate(self.tasks):
            for config, seconds in cells_of(kernel.session.store.trials(task.problem.key)):
                if config in places:
                    self._seconds[number, places[config]] = seconds

    @property
    def table(self) -> ShapeTable:
        """All trials so far."""
        names = tuple(self.tasks[0].problem.key.signature.dims)
        weights = np.array([task.weight for task in self.tasks])
        return ShapeTable(names, self._shapes, self.configs, self._seconds.copy(), weights)

    def run(self, budget: Budget, on_trial: OnTrial = lambda sizes, trial: None) -> None:
        """Spends a budget for all shapes together; what was tried before is known and costs nothing."""
        plan = TrialPlan(self.table, trials=budget.trials, seed=self._seed)
        plan.seconds = self._seconds
        while _goes_on(budget) and (wanted := plan.next()):
            for shape, trials in groupby(wanted, key=itemgetter(0)):
                if _goes_on(budget):
                    self._try(shape, [config for _, config in trials], budget, on_trial)

    def _try(self, number: int, places: Sequence[int], budget: Budget, on_trial: OnTrial) -> None:
        """Tries configs on a shape and records them."""
        task, row, session = self.tasks[number], self._seconds[number], self.kernel.session
        places = [place for place in places if np.isnan(row[place])][: budget.grant(len(places))]
        budget.spend(len(places))
        works = np.isfinite(row)
        best = int(np.where(works, row, np.inf).argmin())
        known = Incumbent(self.configs[best], float(row[best])) if works.any() else None
        by_config = {self.configs[place]: place for place in places}
        pool: Pool = plugins.load("pools", session.settings.pool_name)(*session.settings.pool_arguments)
        for trial in pool.run(task.attempt, [TrialRequest(config, known) for config in by_config]):
            session.store.record(task.problem.key, [trial])
            row[by_config[trial.config]] = trial.seconds
            budget.learn(trial)
            on_trial(task.sizes, trial)

    def decide(self, budget: Budget, on_race: OnRace = lambda sizes, left: None) -> list[Decision]:
        """Races the best configs of each shape that was tried, the heaviest first, as long as there is time."""
        order = sorted(self.table.tuned, key=lambda i: -self.tasks[i].weight)
        found = []
        for place, number in enumerate(order, 1):
            if budget.left() <= 0:
                break
            task = self.tasks[number]
            on_race(task.sizes, len(order) - place)
            tried = {trial.config for trial in self.kernel.session.store.trials(task.problem.key)}
            limit = Budget(len(tried | {self.kernel.default}), None if budget.seconds is None else budget.left())
            found.append(self.kernel.search(task.problem, task.arguments(), limit))
        return found


def _goes_on(budget: Budget) -> bool:
    """Whether there are trials left, and time that is not kept for the races."""
    return bool(budget.grant()) and (budget.seconds is None or budget.left() > FINAL_SHARE * budget.seconds)


def problem_of(kernel: Tuned, sizes: Mapping[str, int]) -> Problem:
    """Returns the problem of a call with named sizes. Values do not matter, so none are drawn if sizes are enough."""
    if kernel.declaration.inputs is not None:
        return kernel.problem(kernel.example(sizes))
    recipes = Inputs.of_dims(kernel.parameters, sizes, kernel.declaration.dtype).args
    blank = [np.empty(one.shape, parse_dtype(one.dtype)) if isinstance(one, Array) else one.value for one in recipes]
    return kernel.problem(blank)


def _merged(kernel: Tuned, shapes: Iterable[tuple[Mapping[str, int], float]]) -> list[ShapeTask]:
    """Returns a task for each key; shapes of one bucket are one, with their weights together."""
    tasks: dict[tuple[int, ...], ShapeTask] = {}
    for sizes, weight in shapes:
        rounded = {name: kernel.buckets(name, size) for name, size in sizes.items()}
        place = tuple(rounded.values())
        known = tasks[place].weight if place in tasks else 0.0
        tasks[place] = ShapeTask(kernel, rounded, known + weight)
    if not tasks:
        raise SettingsError("there are no shapes to tune; give some")
    return list(tasks.values())


def _known_configs(space: Space, default: Config, rng: np.random.Generator) -> tuple[Config, ...]:
    if space.has_ranges or len(space) > MAX_CONFIGS:
        return tuple(dict.fromkeys([default, *space.sample(rng, MAX_CONFIGS)]))
    return tuple(space)
