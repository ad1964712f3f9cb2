"""Recorded spaces as tables, from files or from the journals of a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.backends.replay import Recording
from tunewright.errors import SettingsError, SpaceError
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space, Variant
from tunewright.stores import locations, serialization

MIN_TRIALS = 20
"""Minimum of trials in a journal."""


@dataclass(frozen=True)
class RecordedTable:
    """A recording: the trial, the time and the tuning cost of each config."""

    name: str
    kernel: str
    space: Space
    trials: tuple[Trial, ...]
    rows: dict[Config, int]
    seconds: NDArray[np.float64]
    costs: NDArray[np.float64]
    spreads: NDArray[np.float64]
    """Standard deviation of each time relative to it; 0 where it is not known."""

    @classmethod
    def of(cls, name: str, recording: Recording) -> RecordedTable:
        """Returns the table of a recording; its space has only recorded configs."""
        trials = tuple(recording.trials.values())
        seconds = np.array([trial.seconds if trial.works else np.nan for trial in trials])
        if np.isnan(seconds).all():
            raise SpaceError(f"{name}: no config works, so there is nothing to search; leave this recording out")
        space = recording.space if recording.space.size == len(trials) else space_of([t.config for t in trials])
        costs = np.array([trial.build_seconds + trial.run_seconds for trial in trials])
        rows = {trial.config: row for row, trial in enumerate(trials)}
        spreads = np.array([recording.spreads.get(trial.config, 0.0) for trial in trials]) / seconds
        return cls(name, recording.kernel, space, trials, rows, seconds, costs, np.nan_to_num(spreads))

    @property
    def optimum(self) -> float:
        """Time of the fastest config."""
        return float(np.nanmin(self.seconds))


@dataclass(frozen=True)
class RecordingFile:
    """A table in a file, `NAME.parquet` with `NAME.json` beside it."""

    path: Path

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.path.stem

    @property
    def digest(self) -> str:
        """Short digest of the files."""
        return _short_digest(self.path.read_bytes(), self.path.with_suffix(".json").read_bytes())

    def load(self) -> RecordedTable:
        """Returns the table."""
        return RecordedTable.of(self.name, Recording.read(self.path))


@dataclass(frozen=True)
class StoreJournal:
    """A table from the journal of one key in a store."""

    location: str
    kernel: str
    key: str
    """The digest of the key."""

    @property
    def name(self) -> str:
        """Name of the table."""
        return f"{self.kernel}-{self.key[:8]}"

    @property
    def digest(self) -> str:
        """Short digest of the journal."""
        return _short_digest(*(serialization.dump_trial(trial) for trial in self._journal()[1]))

    def load(self) -> RecordedTable:
        """Returns the table."""
        key, trials = self._journal()
        last = {trial.config: trial for trial in trials}
        return RecordedTable.of(self.name, Recording.from_trials(key, space_of(list(last)), last.values()))

    def _journal(self) -> tuple[Key, list[Trial]]:
        store = locations.open_single(self.location)
        for key in store.keys(self.kernel):
            if key.digest == self.key:
                return key, list(store.trials(key))
        raise SettingsError(f"{self.location} no longer has the key {self.key[:8]} of {self.kernel}; start again")


TableSource = RecordingFile | StoreJournal


def list_recordings(paths: Iterable[Path]) -> list[RecordingFile]:
    """Returns the recordings at `paths`: folders or single files."""
    recordings: dict[str, RecordingFile] = {}
    for path in paths:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.is_file() else []
        if not files:
            raise SettingsError(
                f"no recording at {path}; a recording is NAME.parquet with NAME.json beside it. "
                "Make one of a kernel you tuned: tunewright trials KERNEL --save NAME.parquet"
            )
        for file in files:
            if not file.with_suffix(".json").is_file():
                raise SettingsError(f"{file} has no {file.stem}.json beside it, which says what its columns mean")
            if recordings.setdefault(file.stem, RecordingFile(file)).path != file:
                raise SettingsError(f"two recordings are called {file.stem}; rename one of them")
    return list(recordings.values())


def list_journals(location: str) -> list[StoreJournal]:
    """Returns the journals of a store that have enough trials, at least one of which works."""
    store, journals = locations.open_single(location), []
    for key in store.keys(None):
        last = {trial.config: trial for trial in store.trials(key)}
        if len(last) >= MIN_TRIALS and any(trial.works for trial in last.values()):
            journals.append(StoreJournal(location, key.kernel, key.digest))
    if not journals:
        raise SettingsError(
            f"{location} has no journal with {MIN_TRIALS} trials or more; tune a kernel first: "
            "tunewright tune FILE.py:NAME --budget 200"
        )
    return sorted(journals, key=lambda journal: journal.name)


def space_of(configs: Sequence[Config]) -> Space:
    """Returns the space of exactly these configs."""
    if VARIANT not in configs[0]:
        knobs, rules = _knobs_and_rules(configs)
        return Space(*knobs, rules=rules)
    variants = []
    for name in dict.fromkeys(str(config[VARIANT]) for config in configs):
        own = [{k: v for k, v in config.items() if k != VARIANT} for config in configs if config[VARIANT] == name]
        knobs, rules = _knobs_and_rules(own)
        variants.append(Variant(name, *knobs, rules=rules))
    return Space(variants=variants)


def _knobs_and_rules(settings: Sequence[Any]) -> tuple[list[Knob], list[Rule]]:
    """Returns knobs with all values of `settings`, and rules that exclude every other combination.

    There is one rule for each prefix of the list of knobs, so that enumeration prunes early.
    """
    names = list(settings[0])
    knobs = [Knob(name, sorted({setting[name] for setting in settings}, key=_sort_key)) for name in names]
    rules = []
    for count in range(2, len(names) + 1):
        params = ", ".join(names[:count])
        prefixes = {tuple(setting[name] for name in names[:count]) for setting in settings}
        holds = eval(f"lambda {params}: ({params},) in prefixes", {"prefixes": prefixes})  # noqa: S307 - knobs' names
        rules.append(Rule("this config was recorded", holds))
    return knobs, rules


def _sort_key(value: Value) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _short_digest(*parts: bytes) -> str:
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]
