"""Perturbing: does something that the key does not see change the winner? Candidates raced under each perturbation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from tunewright.cases.arguments import GUARD, PLAIN, Arguments
from tunewright.cases.exam import Exam
from tunewright.cases.inputs import Inputs
from tunewright.errors import NothingWorked, SettingsError, TunewrightError
from tunewright.fronts.perturbations import PAGE, Perturbation, Sort, at, perturbations
from tunewright.fronts.tuned import Tuned
from tunewright.measure.attempt import Bench
from tunewright.measure.race import Race, Terms
from tunewright.model.decision import Decision, Gain, Problem
from tunewright.model.key import Key
from tunewright.model.trial import Entry, Failure, Kind, Trial
from tunewright.pools.isolate import Isolated
from tunewright.report.linting import WORTH
from tunewright.spaces.config import Config

MOST_CANDIDATES = 10
"""Configs that are tried under every perturbation."""

NEAR = 1.3
"""How many times the best time a trial may have taken to be raced: its few samples may be that far off."""

HEAT = Terms(margin=WORTH, rounds=48, seconds=10.0)
"""What a race under one perturbation may cost; its rounds end it, unless the machine is very busy."""

DUEL = Terms(margin=WORTH, rounds=120, seconds=30.0, seed=1)
"""What the second race may cost, of the winner here against the winner there, on arguments made anew."""

BOTH = (0, 1)


class Change(msgspec.Struct, frozen=True):
    """A perturbation that the key does not see, and under which another config wins.

    `gain` is that of the new winner over the old one under it, `reverse` that of the old one over the new without it;
    both are from races of their own, and beyond doubt.
    """

    name: str
    what: str
    sort: Sort
    winner: Config
    other: Config
    gain: Gain
    reverse: Gain
    remedy: str


class Trouble(msgspec.Struct, frozen=True):
    """A config that works, but not under a perturbation that the key does not see; None: nothing could be tried."""

    name: str
    what: str
    config: Config | None
    reason: str


class Perturbed(msgspec.Struct, frozen=True):
    """What perturbing a call showed: for which key, who wins there, what was tried, what was found, what was not tried.

    `apart` are perturbations that the key tells apart, that make no call of this kernel, or under which nothing can be
    judged, with the reason.
    """

    key: Key
    winner: Config
    candidates: int
    tried: tuple[str, ...]
    changes: tuple[Change, ...]
    troubles: tuple[Trouble, ...]
    apart: dict[str, str]

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.changes and not self.troubles


def perturbed(kernel: Tuned, sizes: Mapping[str, int], only: Sequence[str] = ()) -> Perturbed:
    """Race the candidates for a call of those sizes as it is, then under each perturbation with the same key."""
    held = {name: kernel.buckets(name, size) for name, size in sizes.items()}  # where a bucket's decision is made
    args = kernel.example(held)
    problem, wanted = kernel.problem(args), _wanted(kernel, held, args, only)
    decision = kernel.session.look_up(problem)
    ground = _Ground(kernel, lambda: args, candidates(kernel, problem, decision))
    winner = ground.winner(decision.config if decision else kernel.default)
    changes, troubles, tried, apart = [], [], [], _as_they_are(kernel, args)
    for one in wanted:
        if why := _told_apart(kernel, one, problem):
            apart[one.name] = why
            continue
        under = _Under(one, ground, winner)
        with np.errstate(all="ignore"):  # values that overflow are what some perturbations are for
            if why := under.unjudged:
                apart[one.name] = why
                continue
            tried.append(one.name)
            troubles += under.troubles
            changes += [under.change] if under.change else []
    return Perturbed(problem.key, winner, len(ground.working), tuple(tried), tuple(changes), tuple(troubles), apart)


def _wanted(kernel: Tuned, sizes: Mapping[str, int], args: Sequence[Any], only: Sequence[str]) -> list[Perturbation]:
    every = {one.name: one for one in perturbations(kernel, sizes, args)}
    if strange := [name for name in only if name not in every]:
        raise SettingsError(f"no perturbation {strange[0]!r} of {kernel.name}; there are {', '.join(every)}")
    return [one for name, one in every.items() if not only or name in only]


def candidates(kernel: Tuned, problem: Problem, decision: Decision | None) -> list[Config]:
    """Who may win under other circumstances: all configs if they are few; else what is decided, its ties, the default,
    and the best that was tried with each value of each knob."""
    if problem.space.size <= MOST_CANDIDATES:
        return list(problem.space)
    said = decision.evidence if decision else None
    first = [
        *([decision.config] if decision else []),
        kernel.default,
        *(tie.config for tie in (said.ties[:3] if said else ())),
    ]
    trials = {trial.config: trial for trial in kernel.session.store.trials(problem.key) if trial.works}
    best: dict[tuple[str, Any], Config] = {}
    for trial in sorted(trials.values(), key=lambda trial: trial.seconds):
        for setting in trial.config.items():
            best.setdefault(setting, trial.config)
    others = list(best.values()) or problem.space.sample(np.random.default_rng(0), 4 * MOST_CANDIDATES)
    wanted = [config for config in dict.fromkeys([*first, *others]) if config in problem.space]
    return wanted[:MOST_CANDIDATES]


def _as_they_are(kernel: Tuned, args: Sequence[Any]) -> dict[str, str]:
    """Arguments of which we know no perturbation."""
    known = (np.ndarray, bool, int, float)
    named = {p.name: arg for p, arg in zip(kernel.parameters, args, strict=True) if not isinstance(arg, known)}
    return {name: f"a {type(arg).__name__} is passed as it is" for name, arg in named.items()}


def _told_apart(kernel: Tuned, one: Perturbation, problem: Problem) -> str:
    """Why a perturbation is not tried: its key is another, or it is no call of this kernel at all."""
    try:
        key = kernel.problem(one.make()).key
    except TunewrightError as error:
        return f"no call of this kernel: {error}"
    differences = problem.key.differences(key)
    said = ", ".join(f"{name} is {theirs}, not {mine}" for name, (mine, theirs) in differences.items())
    return f"the key tells it apart: {said}" if differences else ""


class Placed(Arguments):
    """Copies of arguments that lie as the given ones do: as far after a page, one array where one was, read-only."""

    def __init__(self, parameters: Sequence[Any], args: Sequence[Any]) -> None:
        super().__init__(parameters, args)
        seen: dict[int, Any] = {}
        for i, arg in enumerate(args):
            if isinstance(arg, np.ndarray):
                self._guarded[i] = lain = seen.setdefault(id(arg), at(arg, arg.ctypes.data % PAGE, GUARD))
                self.values[i] = view = lain[0]
                if not arg.flags.writeable:
                    self.values[i] = view.view()
                    self.values[i].setflags(write=False)
            elif isinstance(arg, PLAIN):
                self.values[i] = arg
        self.reset()


class Arranged(Bench, dict=True):
    """A bench whose arguments lie in memory as they were made."""

    @cached_property
    def exams(self) -> list[Exam]:
        """The one case, as it lies."""
        args = self.make(self.cases[0])
        exam = Exam(self.kernel.parameters, args, self.check.tolerance)
        exam.arguments = Placed(self.kernel.parameters, args)
        return [exam]


class _Ground:
    """A call whose candidates are tried and raced, each time on arguments made anew."""

    def __init__(self, kernel: Tuned, make: Callable[[], Sequence[Any]], configs: Sequence[Config]) -> None:
        self.kernel, self._make, self._configs = kernel, make, configs

    def _attempt(self) -> Any:
        """A bench for these arguments; in a process of its own, unless attempts are to run in this one."""
        kernel, case = self.kernel, (Inputs(),)
        usual = kernel.bench(case, kernel.kernel.cache)
        shared = (usual.backend, usual.kernel, case, usual.default, usual.check, usual.manner)
        arranged = Arranged(*shared, make=lambda _: self._make())
        if kernel.session.settings.pool_name == "serial":
            return arranged
        limits = kernel.session.limits
        return Isolated(lambda: arranged, case, kernel.kernel.cache, None, kernel.declared.threads, limits)

    @cached_property
    def trials(self) -> list[Trial]:
        """Every candidate, verified and timed by itself."""
        attempt = self._attempt()
        return [attempt(Entry(config)) for config in self._configs]

    @property
    def working(self) -> dict[Config, float]:
        """Seconds of the candidates that work."""
        return {trial.config: trial.seconds for trial in self.trials if trial.works}

    def at(self, make: Callable[[], Sequence[Any]]) -> _Ground:
        """The same candidates, as far as they work, on other arguments."""
        return _Ground(self.kernel, make, list(self.working))

    def raced(self, configs: Sequence[Config], terms: Terms, kept: Sequence[int]) -> Race | None:
        """A race; None if it broke off, or was too short to tell."""
        race: Race | None = self._attempt().race(configs, terms, kept)
        return race if race is not None and race.tested else None

    def finalists(self, config: Config) -> list[Config]:
        """`config`, and who is about as fast as the fastest by their trials."""
        times = self.working
        near = [other for other in times if times[other] <= NEAR * min(times.values()) and other != config]
        return [config, *sorted(near, key=times.__getitem__)]

    def winner(self, decided: Config) -> Config:
        """Who wins here: what is decided if it cannot be told from the leader, else the leader."""
        if not self.working:
            failed = next(trial.outcome for trial in self.trials if isinstance(trial.outcome, Failure))
            raise NothingWorked(f"{self.kernel.name}: no candidate works unperturbed; the first: {failed.reason}")
        start = decided if decided in self.working else min(self.working, key=self.working.__getitem__)
        configs = self.finalists(start)
        race = self.raced(configs, HEAT, ()) if len(configs) > 1 else None
        return start if race is None or 0 in race.ties else configs[race.leader]


class _Under:
    """What one perturbation does to the candidates."""

    def __init__(self, perturbation: Perturbation, ground: _Ground, winner: Config) -> None:
        self._one, self._ground, self._winner = perturbation, ground, winner
        self._there = ground.at(perturbation.make)

    @cached_property
    def _tried(self) -> list[Trial] | str:
        """The candidates' trials; what is said where results cannot even be judged."""
        try:
            return self._there.trials
        except TunewrightError as error:
            return str(error)

    @property
    def _failures(self) -> dict[Config, Failure]:
        tried = [] if isinstance(self._tried, str) else self._tried
        return {trial.config: trial.outcome for trial in tried if isinstance(trial.outcome, Failure)}

    @property
    def unjudged(self) -> str:
        """Why nothing can be said: who finds every candidate wrong may be wrong, as where large terms cancel."""
        failures = list(self._failures.values())
        wrong = [failure for failure in failures if failure.kind is Kind.WRONG]
        return f"every candidate would be wrong: {wrong[0].reason}" if wrong and len(wrong) == len(self._tried) else ""

    @property
    def troubles(self) -> list[Trouble]:
        """Who does not work any more."""
        name, what, failures = self._one.name, self._one.what, self._failures
        if isinstance(self._tried, str):
            return [Trouble(name, what, None, self._tried)]
        if failures and len(failures) == len(self._tried):
            first = next(iter(failures.values()))
            return [Trouble(name, what, None, f"every candidate fails: {first.reason}")]
        return [Trouble(name, what, config, failure.reason) for config, failure in failures.items()]

    @cached_property
    def change(self) -> Change | None:
        """Who wins instead, if that is beyond doubt, in two races here and one there."""
        if isinstance(self._tried, str) or self._winner not in self._there.working:
            return None
        configs = self._there.finalists(self._winner)
        race = self._there.raced(configs, HEAT, [0]) if len(configs) > 1 else None
        if race is None or race.leader == 0 or race.standings[0].low <= 1 + WORTH:
            return None
        return self._confirmed(configs[race.leader])

    def _confirmed(self, other: Config) -> Change | None:
        pair = (self._winner, other)
        there, here = (place.raced(pair, DUEL, BOTH) for place in (self._there, self._ground))
        gain, reverse = _beyond_doubt(there, 1), _beyond_doubt(here, 0)
        if gain is None or reverse is None:
            return None
        one = self._one
        return Change(one.name, one.what, one.sort, *pair, gain, reverse, remedy(one))


def _beyond_doubt(race: Race | None, leader: int) -> Gain | None:
    """The gain of the one expected to lead a duel, if it does so by more than may be neglected."""
    if race is None or race.leader != leader:
        return None
    other = race.standings[1 - leader]
    return Gain(other.ratio, other.low, other.high) if other.low > 1 + WORTH else None


_ARGUMENT = "give the kernel one more argument that tells them apart (a bool, int or str is in the key by its value)"


def remedy(one: Perturbation) -> str:
    """What a declaration can do about it."""
    if one.sort is Sort.SIZE:
        size = one.name.partition("=")[2]
        return f"give {one.about} an edge between: buckets={{{one.about!r}: [..., {size}, ...]}}"
    if one.sort is Sort.SCALAR:
        return f"the key holds a float by its type alone: {_ARGUMENT}"
    if one.sort is Sort.PLACE:
        return f"{_ARGUMENT}, or always hand over arrays that lie alike"
    return f"if both kinds come, {_ARGUMENT}; for one config that serves both, declare cases=[Case(inputs=...), ...]"
