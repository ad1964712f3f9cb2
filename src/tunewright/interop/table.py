"""Recordings of other tools as tables: knobs, constraints as text, and a trial for each config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tunewright.errors import SpaceError, WireError
from tunewright.interop import untrusted
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Timing, Trial
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob

ERROR_VALUE = 1e20
"""Time that older versions of Kernel Tuner wrote for a failed config."""

RUNS, VERIFY, FRAMEWORK = "runs", "verify_ms", "framework_ms"
"""Metrics of a trial that other tools record besides its time."""


@dataclass(frozen=True)
class ForeignTable:
    """Contents of a file of another tool; without constraints, its configs are the space.

    The time of a trial is the one that the tool ranked it by; its metric `runs` is the number of runs behind it.
    """

    kernel: str
    device: str
    knobs: tuple[Knob, ...]
    trials: tuple[Trial, ...]
    constraints: tuple[str, ...] | None = None
    sizes: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ForeignRow:
    """The config that another tool chose for some sizes, on a device by the tool's name.

    It cannot become a decision: a key also has the kernel's source, the types of all arguments, the device's
    architecture and limits, and the toolchain, and a decision has evidence. It is a config to try first.
    """

    dims: Mapping[str, int]
    config: Config
    device: str


def make_knobs(declared: Mapping[str, Sequence[Any]], where: str) -> tuple[Knob, ...]:
    """Returns knobs from names and values that are already checked."""
    if not 0 < len(declared) <= untrusted.MAX_KNOBS:
        raise WireError(f"{where} names {len(declared)} tunable parameters; 1 to {untrusted.MAX_KNOBS} are read")
    try:
        return tuple(Knob(name, values) for name, values in declared.items())
    except SpaceError as error:
        raise WireError(f"{where}: {error}") from error


def knobs_from_configs(names: Sequence[str], configs: Iterable[Config], where: str) -> tuple[Knob, ...]:
    """Returns knobs with the values that occur, sorted if they are comparable."""
    seen: dict[str, dict[Any, None]] = {name: {} for name in names}
    for config in configs:
        for name in names:
            seen[name].setdefault(config[name])
    return make_knobs({name: _sorted_values(list(values)) for name, values in seen.items()}, where)


def _sorted_values(values: list[Any]) -> list[Any]:
    texts = sum(isinstance(value, str) for value in values)
    return sorted(values) if texts in (0, len(values)) else values


def parse_config(entry: dict[str, Any], names: Sequence[str], where: str) -> Config:
    """Returns the config of an entry."""
    if missing := [name for name in names if name not in entry]:
        raise WireError(f"{where} does not set {', '.join(map(repr, missing))}; every entry sets every parameter")
    return Config({name: untrusted.check_value(entry[name], f"{where}: {name}") for name in names})


def parse_sizes(content: Any) -> tuple[int, ...] | None:
    """Returns the sizes of a problem; None if they are not plain numbers."""
    sizes = content if isinstance(content, list) else [content]
    return tuple(sizes) if all(type(size) is int for size in sizes) else None


def parse_time(milliseconds: Any, where: str) -> Outcome:
    """Returns a time as an outcome; no number, or the error value, is a failure."""
    if milliseconds is None or (isinstance(milliseconds, float) and not isfinite(milliseconds)):
        return Failure(Stage.TIME, Kind.RAISED, "no time was recorded")
    checked = untrusted.check_number(milliseconds, where)
    if checked == ERROR_VALUE:
        return Failure(Stage.VERIFY, Kind.RAISED, "it failed")
    if not (seconds := checked / 1e3):
        raise WireError(f"{where} is 0, which is impossible; remove that entry")
    return Timing((seconds,), "recorded")


def runtimes(trial: Trial) -> list[float]:
    """Returns the times of single runs in milliseconds, as far as known; empty if the trial failed."""
    if not isinstance(trial.outcome, Timing):
        return []
    runs = int(trial.metrics.get(RUNS, 0))
    return [trial.seconds * 1e3] * runs if runs else [sample * 1e3 for sample in trial.outcome.samples]


def drop_repeats(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Returns the first trial of each config: repeated ones were served from a cache, at no cost."""
    first: dict[Config, Trial] = {}
    for trial in trials:
        first.setdefault(trial.config, trial)
    return tuple(first.values())


def check_values(knobs: Sequence[Knob], trials: Iterable[Trial], where: str) -> None:
    """Raise an error if a trial has a value that its knob does not have."""
    for trial in trials:
        for knob in knobs:
            if trial.config[knob.name] not in knob.codes:
                setting = f"{knob.name}={untrusted.quote(trial.config[knob.name])}"
                raise WireError(f"{where} records {setting}, which is not a value of that parameter; add it")
