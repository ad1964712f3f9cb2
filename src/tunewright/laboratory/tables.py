"""Tables: recordings as arrays, from files or from the journals of a store; and where another process finds them."""

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
from tunewright.sharing import wire
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space, Variant
from tunewright.stores import places

ENOUGH = 20
"""Trials of one key that make a journal worth a replay."""


@dataclass(frozen=True)
class Table:
    """A recording in rows: what a strategy is told of each config, what it took, and what trying it cost."""

    name: str
    kernel: str
    space: Space
    trials: tuple[Trial, ...]
    rows: dict[Config, int]
    seconds: NDArray[np.float64]
    costs: NDArray[np.float64]

    @classmethod
    def of(cls, name: str, recording: Recording) -> Table:
        """The table of a recording; its space has no config that was not recorded."""
        trials = tuple(recording.trials.values())
        seconds = np.array([trial.seconds if trial.works else np.nan for trial in trials])
        if np.isnan(seconds).all():
            raise SpaceError(f"{name}: no config worked, so there is nothing to search for; leave this recording out")
        space = recording.space if recording.space.size == len(trials) else spanned([t.config for t in trials])
        costs = np.array([trial.build_seconds + trial.run_seconds for trial in trials])
        rows = {trial.config: row for row, trial in enumerate(trials)}
        return cls(name, recording.kernel, space, trials, rows, seconds, costs)

    @property
    def optimum(self) -> float:
        """The least time of any config."""
        return float(np.nanmin(self.seconds))


@dataclass(frozen=True)
class OnDisk:
    """A table in a file, `NAME.parquet` with `NAME.json` beside it."""

    path: Path

    @property
    def name(self) -> str:
        """What the table is called."""
        return self.path.stem

    @property
    def digest(self) -> str:
        """What the files hold, as a short digest."""
        return _short(self.path.read_bytes(), self.path.with_suffix(".json").read_bytes())

    def load(self) -> Table:
        """The table."""
        return Table.of(self.name, Recording.read(self.path))


@dataclass(frozen=True)
class InStore:
    """A table made of the journal of one key in a store."""

    location: str
    kernel: str
    key: str
    """The digest of the key."""

    @property
    def name(self) -> str:
        """What the table is called."""
        return f"{self.kernel}-{self.key[:8]}"

    @property
    def digest(self) -> str:
        """What the journal holds, as a short digest."""
        return _short(*(wire.dump_trial(trial) for trial in self._journal()[1]))

    def load(self) -> Table:
        """The table."""
        key, trials = self._journal()
        last = {trial.config: trial for trial in trials}
        return Table.of(self.name, Recording.of(key, spanned(list(last)), last.values()))

    def _journal(self) -> tuple[Key, list[Trial]]:
        store = places.at(self.location)
        for key in store.keys(self.kernel):
            if key.digest == self.key:
                return key, list(store.trials(key))
        raise SettingsError(f"{self.location} no longer has the key {self.key[:8]} of {self.kernel}; start again")


Origin = OnDisk | InStore


def on_disk(places: Iterable[Path]) -> list[OnDisk]:
    """The tables at `places`: folders of recordings, or single files."""
    found: dict[str, OnDisk] = {}
    for place in places:
        files = sorted(place.glob("*.parquet")) if place.is_dir() else [place] if place.is_file() else []
        if not files:
            raise SettingsError(
                f"no recording at {place}; a recording is NAME.parquet with NAME.json beside it. "
                "Make one of a kernel you tuned: tunewright trials KERNEL --save NAME.parquet"
            )
        for file in files:
            if not file.with_suffix(".json").is_file():
                raise SettingsError(f"{file} has no {file.stem}.json beside it, which says what its columns mean")
            if found.setdefault(file.stem, OnDisk(file)).path != file:
                raise SettingsError(f"two recordings are called {file.stem}; rename one of them")
    return list(found.values())


def in_store(location: str) -> list[InStore]:
    """The journals of a store that hold enough trials, some of which worked."""
    store, found = places.at(location), []
    for key in store.keys(None):
        last = {trial.config: trial for trial in store.trials(key)}
        if len(last) >= ENOUGH and any(trial.works for trial in last.values()):
            found.append(InStore(location, key.kernel, key.digest))
    if not found:
        raise SettingsError(
            f"{location} has no journal with {ENOUGH} trials or more; tune a kernel first: "
            "tunewright tune FILE.py:NAME --budget 200"
        )
    return sorted(found, key=lambda origin: origin.name)


def spanned(configs: Sequence[Config]) -> Space:
    """The space of exactly these configs."""
    if VARIANT not in configs[0]:
        knobs, rules = _only(configs)
        return Space(*knobs, rules=rules)
    variants = []
    for name in dict.fromkeys(str(config[VARIANT]) for config in configs):
        own = [{k: v for k, v in config.items() if k != VARIANT} for config in configs if config[VARIANT] == name]
        knobs, rules = _only(own)
        variants.append(Variant(name, *knobs, rules=rules))
    return Space(variants=variants)


def _only(settings: Sequence[Any]) -> tuple[list[Knob], list[Rule]]:
    """Knobs that span `settings`, and rules that leave nothing else.

    A rule for each beginning of the list of knobs, so that enumeration drops in stages what does not go on.
    """
    names = list(settings[0])
    knobs = [Knob(name, sorted({one[name] for one in settings}, key=_ordered)) for name in names]
    rules = []
    for count in range(2, len(names) + 1):
        listed = ", ".join(names[:count])
        begun = {tuple(one[name] for name in names[:count]) for one in settings}
        holds = eval(f"lambda {listed}: ({listed},) in begun", {"begun": begun})  # noqa: S307 - knobs' names
        rules.append(Rule("this config was recorded", holds))
    return knobs, rules


def _ordered(value: Value) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _short(*parts: bytes) -> str:
    made = sha256()
    for part in parts:
        made.update(part)
    return made.hexdigest()[:16]
