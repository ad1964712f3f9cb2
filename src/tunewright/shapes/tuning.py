"""Tunes a kernel for many shapes at once: a model over shape and config decides where each trial goes.

First a few shapes are tuned, those that make the predictions for all others most certain. Then trials go where most
time is expected to be saved, by the weights of the shapes. Shapes that were tried are decided by a race, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tunewright.engine.budget import Budget
from tunewright.errors import SettingsError
from tunewright.kernel.tuned import Tuned
from tunewright.model.decision import Decision, Problem
from tunewright.model.trial import Incumbent, Trial, TrialRequest
from tunewright.ports import plugins
from tunewright.ports.pool import Pool
from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import Choice, JointModel
from tunewright.shapes.selection import expected_gains, shapes_to_tune, trials_to_make
from tunewright.shapes.table import ShapeTable, cells_of
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

FEW = 8
"""Shapes that are tuned first."""

MIN_TRIALS, BATCH = 8, 4
"""Trials of each of them at least; trials of one shape before the model is asked again."""

FIRST_SHARE = 0.5
"""The share of the trials that the first shapes get."""

FINAL_SHARE = 0.4
"""The share of the seconds that is kept for the races."""

MAX_CONFIGS = 2000
"""Configs that the model knows; of larger spaces, a random sample."""

WORTH = 0.002
"""The search ends when no trial is expected to gain a larger share of its shape's time."""

OnTrial = Callable[[Mapping[str, int], Trial], None]


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
        return self.kernel.problem(self.arguments())

    @cached_property
    def attempt(self) -> Any:
        """What tries configs on this shape."""
        return self.kernel.attempt(self.kernel.cases_like(self.arguments()))


class JointSearch:
    """The shapes of a kernel with all their trials, of which the store has some already."""

    def __init__(self, kernel: Tuned, shapes: Iterable[tuple[Mapping[str, int], float]], seed: int = 0) -> None:
        if kernel.declaration.invariant:
            raise SettingsError(f"{kernel.name} has invariant=, so its sizes are tuned together: give them by --shape")
        self.kernel, self._rng = kernel, np.random.default_rng(seed)
        self.tasks = _merged(kernel, shapes)
        self.configs = _known_configs(kernel.space, kernel.default, self._rng)
        self._features = Features(len(self.tasks[0].problem.key.signature.dims), self.configs)
        self._choice: Choice | None = None
        self._chosen_at = 0
        places = {config: i for i, config in enumerate(self.configs)}
        self._seconds = np.full((len(self.tasks), len(self.configs)), np.nan)
        for number, task in enumerate(self.tasks):
            for config, seconds in cells_of(kernel.session.store.trials(task.problem.key)):
                if config in places:
                    self._seconds[number, places[config]] = seconds

    @property
    def table(self) -> ShapeTable:
        """All trials so far."""
        shapes = [task.problem.key.signature.dims for task in self.tasks]
        return ShapeTable(
            tuple(shapes[0]),
            tuple(tuple(sizes.values()) for sizes in shapes),
            self.configs,
            self._seconds.copy(),
            np.array([task.weight for task in self.tasks]),
        )

    @property
    def model(self) -> JointModel:
        """The model of all trials; its features are chosen anew when their number has doubled."""
        tried = int(np.isfinite(self._seconds).sum())
        if tried >= 2 * self._chosen_at:
            self._choice, self._chosen_at = None, tried
        model = JointModel(self.table, self._features, self._choice)
        self._choice = model.choice
        return model

    def run(self, budget: Budget, on_trial: OnTrial = lambda sizes, trial: None) -> None:
        """Spends a budget for all shapes together; what was tried before is known and costs nothing."""
        few = min(FEW, len(self.tasks))
        each = MIN_TRIALS if budget.trials is None else max(MIN_TRIALS, int(FIRST_SHARE * budget.trials) // few)
        while len(self.table.tuned) < few and (number := self._next_shape()) is not None and _goes_on(budget):
            self._try(number, self._first_configs(number, each), budget, on_trial)
        while self.table.tuned and _goes_on(budget) and (wanted := self._next_trials()) is not None:
            self._try(*wanted, budget, on_trial)

    def _next_shape(self) -> int | None:
        untried = np.isnan(self._seconds).all(axis=1)
        order = shapes_to_tune(self.table, 1, self._features)
        return next((number for number in order if untried[number]), None)

    def _first_configs(self, number: int, count: int) -> list[int]:
        """Returns the default, the half that is predicted to be fastest, and random ones."""
        default = self.configs.index(self.kernel.default)
        predicted = self.model.predict(self.table.shapes[number]).argsort().tolist() if self.table.tuned else []
        drawn = self._rng.permutation(len(self.configs)).tolist()
        return list(dict.fromkeys([default, *predicted[: count // 2], *drawn]))[:count]

    def _next_trials(self) -> tuple[int, list[int]] | None:
        """Returns the shape of which most is expected, with its best bets; None if nothing is worth it."""
        table, model = self.table, self.model
        if not (found := trials_to_make(table, 1, model)):
            return None
        number, best = found[0]
        gains = expected_gains(table, model, number)
        if table.works[number].any() and np.exp(gains[best]) < WORTH:
            return None
        order = np.argsort(-gains)[:BATCH]
        return number, [int(config) for config in order if np.isfinite(gains[config])]

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

    def decide(self, budget: Budget) -> list[Decision]:
        """Races the best configs of each shape that was tried, the heaviest first, as long as there is time."""
        found = []
        for number in sorted(self.table.tuned, key=lambda i: -self.tasks[i].weight):
            if budget.left() <= 0:
                break
            task = self.tasks[number]
            tried = len({trial.config for trial in self.kernel.session.store.trials(task.problem.key)})
            found.append(self.kernel.search(task.problem, task.arguments(), Budget(tried)))
        return found


def _goes_on(budget: Budget) -> bool:
    """Whether there are trials left, and time that is not kept for the races."""
    return bool(budget.grant()) and (budget.seconds is None or budget.left() > FINAL_SHARE * budget.seconds)


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
