"""Key lint by experiment: races candidates under perturbations that do not change the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from tunewright.cases.arguments import GUARD, PLAIN, Arguments
from tunewright.cases.inputs import Inputs
from tunewright.cases.validation import PreparedCase
from tunewright.errors import NothingWorked, SettingsError, TunewrightError
from tunewright.kernel.tuned import Tuned
from tunewright.keylint.findings import MIN_LOSS
from tunewright.keylint.perturbations import PAGE, Perturbation, PerturbationKind, copy_at_offset, perturbations
from tunewright.measure.evaluator import Evaluator
from tunewright.measure.kernel_workload import KernelWorkload
from tunewright.measure.race import Race, RaceOptions
from tunewright.model.decision import Decision, Gain, Problem
from tunewright.model.key import Key
from tunewright.model.trial import Failure, Kind, Trial, TrialRequest
from tunewright.pools.worker import IsolatedAttempt
from tunewright.spaces.config import Config

MAX_CANDIDATES = 10
"""Configs tried under every perturbation."""

MAX_SLOWDOWN = 1.3
"""Maximum ratio of a trial to the best one to be raced; its few samples may be that inaccurate."""

RACE_OPTIONS = RaceOptions(margin=MIN_LOSS, rounds=48, seconds=10.0)
"""Options of the race under one perturbation."""

CONFIRM_OPTIONS = RaceOptions(margin=MIN_LOSS, rounds=120, seconds=30.0, seed=1)
"""Options of the confirming race between both winners, on new arguments."""

KEEP_BOTH = (0, 1)


class WinnerChange(msgspec.Struct, frozen=True):
    """A perturbation that does not change the key but changes the winner.

    `gain` is that of the new winner over the old one under the perturbation, `reverse` that of the old one over the new
    one without it; both are significant, from separate races.
    """

    name: str
    what: str
    sort: PerturbationKind
    winner: Config
    other: Config
    gain: Gain
    reverse: Gain
    remedy: str


class PerturbationFailure(msgspec.Struct, frozen=True):
    """A config that fails under a perturbation that does not change the key; config None: nothing could be tried."""

    name: str
    what: str
    config: Config | None
    reason: str


class PerturbationReport(msgspec.Struct, frozen=True):
    """Result of perturbing a call: its key and winner, the perturbations tried, and what was found.

    `apart` has the perturbations that were not tried or judged, with the reason: they change the key, are not a valid
    call, or fail for every candidate.
    """

    key: Key
    winner: Config
    candidates: int
    tried: tuple[str, ...]
    changes: tuple[WinnerChange, ...]
    troubles: tuple[PerturbationFailure, ...]
    apart: dict[str, str]

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.changes and not self.troubles


def perturb_kernel(kernel: Tuned, sizes: Mapping[str, int], only: Sequence[str] = ()) -> PerturbationReport:
    """Race the candidates for a call of those sizes, then under each perturbation with the same key."""
    edges = {name: kernel.buckets(name, size) for name, size in sizes.items()}  # decisions are made at bucket edges
    args = kernel.example(edges)
    problem, selected = kernel.problem(args), _select(kernel, edges, args, only)
    decision = kernel.session.find_decision(problem)
    ground = _Setting(kernel, lambda: args, candidates(kernel, problem, decision))
    winner = ground.winner(decision.config if decision else kernel.default)
    changes, troubles, tried, apart = [], [], [], _unperturbed_args(kernel, args)
    for perturbation in selected:
        if reason := _skip_reason(kernel, perturbation, problem):
            apart[perturbation.name] = reason
            continue
        call = _PerturbedCall(perturbation, ground, winner)
        with np.errstate(all="ignore"):  # some perturbations overflow on purpose
            if reason := call.unjudged:
                apart[perturbation.name] = reason
                continue
            tried.append(perturbation.name)
            troubles += call.troubles
            changes += [call.change] if call.change else []
    return PerturbationReport(
        problem.key, winner, len(ground.working), tuple(tried), tuple(changes), tuple(troubles), apart
    )


def _select(kernel: Tuned, sizes: Mapping[str, int], args: Sequence[Any], only: Sequence[str]) -> list[Perturbation]:
    by_name = {perturbation.name: perturbation for perturbation in perturbations(kernel, sizes, args)}
    if unknown := [name for name in only if name not in by_name]:
        raise SettingsError(f"no perturbation {unknown[0]!r} of {kernel.name}; there are {', '.join(by_name)}")
    return [perturbation for name, perturbation in by_name.items() if not only or name in only]


def candidates(kernel: Tuned, problem: Problem, decision: Decision | None) -> list[Config]:
    """Returns the configs to race: all if they are few, else the winner, its ties, the default, and the best trial with
    each value of each knob."""
    if problem.space.combinations <= 1 << 20 and problem.space.size <= MAX_CANDIDATES:
        return list(problem.space)
    evidence = decision.evidence if decision else None
    first = [
        *([decision.config] if decision else []),
        kernel.default,
        *(tie.config for tie in (evidence.ties[:3] if evidence else ())),
    ]
    trials = {trial.config: trial for trial in kernel.session.store.trials(problem.key) if trial.works}
    best: dict[tuple[str, Any], Config] = {}
    for trial in sorted(trials.values(), key=lambda trial: trial.seconds):
        for setting in trial.config.items():
            best.setdefault(setting, trial.config)
    rest = list(best.values()) or problem.space.sample(np.random.default_rng(0), 4 * MAX_CANDIDATES)
    configs = [config for config in dict.fromkeys([*first, *rest]) if config in problem.space]
    return configs[:MAX_CANDIDATES]


def _unperturbed_args(kernel: Tuned, args: Sequence[Any]) -> dict[str, str]:
    """Returns the arguments for which there is no perturbation."""
    known = (np.ndarray, bool, int, float)
    named = {p.name: arg for p, arg in zip(kernel.parameters, args, strict=True) if not isinstance(arg, known)}
    return {name: f"a {type(arg).__name__} is passed as it is" for name, arg in named.items()}


def _skip_reason(kernel: Tuned, perturbation: Perturbation, problem: Problem) -> str:
    """Returns why a perturbation is not tried: it changes the key, or it is not a valid call. Else ""."""
    try:
        key = kernel.problem(perturbation.make()).key
    except TunewrightError as error:
        return f"not a call of this kernel: {error}"
    differences = problem.key.differences(key)
    details = ", ".join(f"{name} is {theirs}, not {mine}" for name, (mine, theirs) in differences.items())
    return f"the key differs: {details}" if differences else ""


class PlacedArguments(Arguments):
    """Copies of arguments with the same page offset, aliasing and read-only flags."""

    def __init__(self, parameters: Sequence[Any], args: Sequence[Any]) -> None:
        super().__init__(parameters, args)
        seen: dict[int, Any] = {}
        for i, arg in enumerate(args):
            if isinstance(arg, np.ndarray):
                self._guarded[i] = placed = seen.setdefault(id(arg), copy_at_offset(arg, arg.ctypes.data % PAGE, GUARD))
                self.values[i] = view = placed[0]
                if not arg.flags.writeable:
                    self.values[i] = view.view()
                    self.values[i].setflags(write=False)
            elif isinstance(arg, PLAIN):
                self.values[i] = arg
        self.contents.freeze()  # arguments may share memory
        self.reset()


class PlacedWorkload(KernelWorkload, dict=True):
    """A workload that keeps the placement of its arguments in memory: one set, whose contents do not change."""

    max_sets = 1

    def prepare_case(self, number: int, seed: int) -> PreparedCase:
        """Returns the only case, placed as it was made."""
        parameters = self.kernel.parameters
        arguments = PlacedArguments(parameters, self.make(self.cases[number]))
        return PreparedCase(parameters, arguments, self.check.tolerance)


class _Setting:
    """A call for which candidates are tried and raced, each time on new arguments."""

    def __init__(self, kernel: Tuned, make: Callable[[], Sequence[Any]], configs: Sequence[Config]) -> None:
        self.kernel, self._make, self._configs = kernel, make, configs

    def _attempt(self) -> Any:
        """Returns an evaluator for these arguments, in its own process unless the pool is serial."""
        kernel, case = self.kernel, (Inputs(),)
        usual = kernel.make_evaluator(case, kernel.kernel.cache).workload
        assert isinstance(usual, KernelWorkload)
        shared = (usual.backend, usual.kernel, case, usual.default, usual.check, usual.timing)
        arranged = Evaluator(PlacedWorkload(*shared, make=lambda _: self._make()))
        if kernel.session.settings.pool_name == "serial":
            return arranged
        limits = kernel.session.limits
        return IsolatedAttempt(lambda: arranged, case, kernel.kernel.cache, None, kernel.declaration.threads, limits)

    @cached_property
    def trials(self) -> list[Trial]:
        """Trials of all candidates."""
        attempt = self._attempt()
        return [attempt(TrialRequest(config)) for config in self._configs]

    @property
    def working(self) -> dict[Config, float]:
        """Seconds of the candidates that work."""
        return {trial.config: trial.seconds for trial in self.trials if trial.works}

    def with_args(self, make: Callable[[], Sequence[Any]]) -> _Setting:
        """Returns a setting with the working candidates on other arguments."""
        return _Setting(self.kernel, make, list(self.working))

    def run_race(self, configs: Sequence[Config], options: RaceOptions, protected: Sequence[int]) -> Race | None:
        """Returns a race; None if it was aborted or too short."""
        race: Race | None = self._attempt().race(configs, options, protected)
        return race if race is not None and race.tested else None

    def finalists(self, config: Config) -> list[Config]:
        """Returns `config` and the configs whose trials are about as fast as the best."""
        times = self.working
        near = [other for other in times if times[other] <= MAX_SLOWDOWN * min(times.values()) and other != config]
        return [config, *sorted(near, key=times.__getitem__)]

    def winner(self, decided: Config) -> Config:
        """Returns the winner: the decided config if it ties with the leader, else the leader."""
        if not self.working:
            failed = next(trial.outcome for trial in self.trials if isinstance(trial.outcome, Failure))
            raise NothingWorked(f"{self.kernel.name}: no candidate works unperturbed; the first: {failed.reason}")
        start = decided if decided in self.working else min(self.working, key=self.working.__getitem__)
        configs = self.finalists(start)
        race = self.run_race(configs, RACE_OPTIONS, ()) if len(configs) > 1 else None
        return start if race is None or 0 in race.ties else configs[race.leader]


class _PerturbedCall:
    """The candidates under one perturbation."""

    def __init__(self, perturbation: Perturbation, original: _Setting, winner: Config) -> None:
        self._perturbation, self._original, self._winner = perturbation, original, winner
        self._perturbed = original.with_args(perturbation.make)

    @cached_property
    def _tried(self) -> list[Trial] | str:
        """Trials of the candidates, or an error message."""
        try:
            return self._perturbed.trials
        except TunewrightError as error:
            return str(error)

    @property
    def _failures(self) -> dict[Config, Failure]:
        tried = [] if isinstance(self._tried, str) else self._tried
        return {trial.config: trial.outcome for trial in tried if isinstance(trial.outcome, Failure)}

    @property
    def unjudged(self) -> str:
        """Why results cannot be judged: if all candidates are wrong, the check may be, for example by cancellation."""
        failures = list(self._failures.values())
        wrong = [failure for failure in failures if failure.kind is Kind.WRONG]
        return f"every candidate would be wrong: {wrong[0].reason}" if wrong and len(wrong) == len(self._tried) else ""

    @property
    def troubles(self) -> list[PerturbationFailure]:
        """Failures under the perturbation."""
        name, what, failures = self._perturbation.name, self._perturbation.what, self._failures
        if isinstance(self._tried, str):
            return [PerturbationFailure(name, what, None, self._tried)]
        if failures and len(failures) == len(self._tried):
            first = next(iter(failures.values()))
            return [PerturbationFailure(name, what, None, f"every candidate fails: {first.reason}")]
        return [PerturbationFailure(name, what, config, failure.reason) for config, failure in failures.items()]

    @cached_property
    def change(self) -> WinnerChange | None:
        """The new winner, if it wins significantly in both races under the perturbation and loses in one without it."""
        if isinstance(self._tried, str) or self._winner not in self._perturbed.working:
            return None
        configs = self._perturbed.finalists(self._winner)
        race = self._perturbed.run_race(configs, RACE_OPTIONS, [0]) if len(configs) > 1 else None
        if race is None or race.leader == 0 or race.standings[0].low <= 1 + MIN_LOSS:
            return None
        return self._confirm_change(configs[race.leader])

    def _confirm_change(self, new_winner: Config) -> WinnerChange | None:
        pair = (self._winner, new_winner)
        settings = (self._perturbed, self._original)
        perturbed, original = (setting.run_race(pair, CONFIRM_OPTIONS, KEEP_BOTH) for setting in settings)
        gain, reverse = _significant_gain(perturbed, 1), _significant_gain(original, 0)
        if gain is None or reverse is None:
            return None
        perturbation = self._perturbation
        return WinnerChange(
            perturbation.name,
            perturbation.what,
            perturbation.sort,
            *pair,
            gain,
            reverse,
            perturbation_remedy(perturbation),
        )


def _significant_gain(race: Race | None, leader: int) -> Gain | None:
    """Returns the gain of the expected leader of a race of two, if it is not negligible."""
    if race is None or race.leader != leader:
        return None
    other = race.standings[1 - leader]
    return Gain(other.ratio, other.low, other.high) if other.low > 1 + MIN_LOSS else None


_ARGUMENT = "add an argument to the kernel that distinguishes them (the value of a bool, int or str is in the key)"


def perturbation_remedy(perturbation: Perturbation) -> str:
    """Returns how to change the declaration."""
    if perturbation.sort is PerturbationKind.SIZE:
        size = perturbation.name.partition("=")[2]
        return f"add a bucket edge for {perturbation.about}: buckets={{{perturbation.about!r}: [..., {size}, ...]}}"
    if perturbation.sort is PerturbationKind.SCALAR:
        return f"the key has only the type of a float: {_ARGUMENT}"
    if perturbation.sort is PerturbationKind.PLACE:
        return f"{_ARGUMENT}, or always pass arrays with the same placement"
    return f"if both occur, {_ARGUMENT}; for one config for both, declare cases=[Case(inputs=...), ...]"
