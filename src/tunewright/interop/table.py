"""Table: a recording as other tools keep it: knobs, constraints as text, a trial for each config tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tunewright.errors import SpaceError, WireError
from tunewright.interop import edge
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Timing, Trial
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob

ERROR_VALUE = 1e20
"""What Kernel Tuner once wrote for the time of a config that failed."""

RUNS, VERIFY, FRAMEWORK = "runs", "verify_ms", "framework_ms"
"""Figures of a trial that other tools keep beside its time."""


@dataclass(frozen=True)
class Table:
    """What a file of another tool says; without constraints, its configs alone are the space.

    A trial's time is the one its tool ranked it by, and `runs` among its figures says of how many runs that is made.
    """

    kernel: str
    device: str
    knobs: tuple[Knob, ...]
    trials: tuple[Trial, ...]
    constraints: tuple[str, ...] | None = None
    sizes: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """What another tool settled on for some sizes, on a device by the name it has there.

    It is no decision of ours, and cannot be made one: a key also has the kernel's source, the types of all arguments,
    the device's architecture and limits, and the toolchain, and a decision has evidence. A row is a config worth
    trying first.
    """

    dims: Mapping[str, int]
    config: Config
    device: str


def knobs_of(declared: Mapping[str, Sequence[Any]], where: str) -> tuple[Knob, ...]:
    """Knobs of names and values that are already checked one by one."""
    if not 0 < len(declared) <= edge.MOST_KNOBS:
        raise WireError(f"{where} names {len(declared)} tunable parameters; 1 to {edge.MOST_KNOBS} are read")
    try:
        return tuple(Knob(name, values) for name, values in declared.items())
    except SpaceError as error:
        raise WireError(f"{where}: {error}") from error


def knobs_seen(names: Sequence[str], configs: Iterable[Config], where: str) -> tuple[Knob, ...]:
    """Knobs with the values that occur, in ascending order where they have one."""
    seen: dict[str, dict[Any, None]] = {name: {} for name in names}
    for config in configs:
        for name in names:
            seen[name].setdefault(config[name])
    return knobs_of({name: _ordered(list(values)) for name, values in seen.items()}, where)


def _ordered(values: list[Any]) -> list[Any]:
    texts = sum(isinstance(value, str) for value in values)
    return sorted(values) if texts in (0, len(values)) else values


def config_of(entry: dict[str, Any], names: Sequence[str], where: str) -> Config:
    """The config that an entry sets."""
    if missing := [name for name in names if name not in entry]:
        raise WireError(f"{where} does not set {', '.join(map(repr, missing))}; every entry sets every parameter")
    return Config({name: edge.value(entry[name], f"{where}: {name}") for name in names})


def sizes_of(said: Any) -> tuple[int, ...] | None:
    """The sizes of a problem, where they are plain numbers."""
    listed = said if isinstance(said, list) else [said]
    return tuple(listed) if all(type(size) is int for size in listed) else None


def timing(milliseconds: Any, where: str) -> Outcome:
    """A time as an outcome; what is no number, or the mark of a failure, is one that failed."""
    if milliseconds is None or (isinstance(milliseconds, float) and not isfinite(milliseconds)):
        return Failure(Stage.TIME, Kind.RAISED, "no time was recorded")
    taken = edge.number(milliseconds, where)
    if taken == ERROR_VALUE:
        return Failure(Stage.VERIFY, Kind.RAISED, "it failed")
    if not (seconds := taken / 1e3):
        raise WireError(f"{where} is 0; no kernel takes no time, so drop that entry")
    return Timing((seconds,), "recorded")


def runtimes(trial: Trial) -> list[float]:
    """The times of single runs in milliseconds, as near as they are known; none if it failed."""
    if not isinstance(trial.outcome, Timing):
        return []
    runs = int(trial.figures.get(RUNS, 0))
    return [trial.seconds * 1e3] * runs if runs else [sample * 1e3 for sample in trial.outcome.samples]


def first_of_each(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Trials without repetition: a config met again was served from a cache, at no cost."""
    kept: dict[Config, Trial] = {}
    for trial in trials:
        kept.setdefault(trial.config, trial)
    return tuple(kept.values())


def offered(knobs: Sequence[Knob], trials: Iterable[Trial], where: str) -> None:
    """Refuse trials whose configs set what no knob offers."""
    for trial in trials:
        for knob in knobs:
            if trial.config[knob.name] not in knob.codes:
                setting = f"{knob.name}={edge.shown(trial.config[knob.name])}"
                raise WireError(f"{where} records {setting}, which that parameter does not offer; add it to its values")
