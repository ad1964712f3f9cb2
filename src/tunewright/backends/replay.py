"""Replay: a backend that answers from a recorded table; hardware for tests, and a laboratory for strategies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from tunewright.backends import arithmetic
from tunewright.backends.host import digest
from tunewright.errors import BackendError, PluginError, SpaceError
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Reading, Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config
from tunewright.spaces.listed import listed
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space


@dataclass(frozen=True)
class Recording:
    """A space with the trial of each of its configs that was tried.

    On disk it is a Parquet table (a column per knob, `time_ms`, `error`, `compile_ms`, `benchmark_ms`) beside a JSON
    file that says what the knobs and constraints are, and of which device.
    """

    kernel: str
    device: str
    space: Space
    trials: dict[Config, Trial]
    constraints: tuple[str, ...] | None = None
    """The rules as text, where text says them all; else the table stands for them."""

    @classmethod
    def told(
        cls, kernel: str, device: str, knobs: Sequence[Knob], constraints: Sequence[str] | None, trials: Iterable[Trial]
    ) -> Recording:
        """A recording of what a file says; without constraints, the recorded configs alone are its space."""
        kept = {trial.config: trial for trial in trials}
        if constraints is None:
            space = Space(*knobs, rules=[listed(knobs, kept, "this config was recorded")])
            return cls(kernel, device, space, kept)
        texts = {knob.name for knob in knobs if any(isinstance(value, str) for value in knob.values)}
        rules = [arithmetic.rule(text, texts=texts) for text in constraints]
        return cls(kernel, device, Space(*knobs, rules=rules), kept, tuple(constraints))

    @classmethod
    def of(cls, key: Key, space: Space, trials: Iterable[Trial]) -> Recording:
        """A recording of a journal; the last trial of a config holds."""
        return cls(key.kernel, key.device.model, space, {t.config: t for t in trials if t.config in space})

    @classmethod
    def read(cls, path: Path) -> Recording:
        """The recording at `NAME.parquet`, with `NAME.json` beside it."""
        about = json.loads(path.with_suffix(".json").read_text())
        order = about["parameter_order"]
        table = _pyarrow().parquet.read_table(path).to_pydict()
        rows = [Config(dict(zip(order, row, strict=True))) for row in zip(*(table[n] for n in order), strict=True)]
        trials = [_trial(config, table, i) for i, config in enumerate(rows)]
        knobs = [Knob(name, about["parameters"][name]) for name in order]
        return cls.told(about["kernel"], about["device"], knobs, about.get("constraints"), trials)

    def write(self, path: Path) -> None:
        """Keep the recording as `NAME.parquet` and `NAME.json`; for rules that are functions, the table stands."""
        if self.space.variants:
            raise SpaceError("a table has the same columns in every row; record a space with variants one at a time")
        arrow = _pyarrow()
        trials = [trial for _, trial in sorted(self.trials.items(), key=lambda item: self.space.rank(item[0]))]
        columns: dict[str, list[Any]] = {n: [trial.config[n] for trial in trials] for n in self.space.names}
        columns["time_ms"] = [t.seconds * 1e3 if isinstance(t.outcome, Timing) else None for t in trials]
        columns["error"] = [_error(trial) for trial in trials]
        columns["compile_ms"] = [trial.build_seconds * 1e3 for trial in trials]
        columns["benchmark_ms"] = [trial.run_seconds * 1e3 for trial in trials]
        about = {
            "kernel": self.kernel,
            "device": self.device,
            "parameters": {knob.name: list(knob.values) for knob in self.space.knobs},
            "parameter_order": list(self.space.names),
            "constraints": None if self.constraints is None else list(self.constraints),
            "rules": [rule.reason for rule in self.space.rules],
        }
        arrow.parquet.write_table(arrow.table(columns), path, compression="zstd")
        path.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")

    @property
    def best(self) -> Trial:
        """The fastest trial: what a search can reach at most."""
        return min(self.trials.values(), key=lambda trial: trial.seconds)


class Replay:
    """Builds, loads and times by looking up what was recorded."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def signature(self, kernel: Kernel) -> Reading:
        """How to tell calls apart."""
        return Reading.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """The recorded kernel on the recorded device."""
        device = Device("recorded", self.recording.device, "recorded")
        return Key(kernel.name, digest(self.recording.kernel), signature, device, {"replay": "1"}, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Trial:
        """The recorded trial; what failed to build then fails to build now."""
        trial = self.recording.trials.get(config)
        if trial is None:
            raise BackendError("this config was not recorded")
        if isinstance(trial.outcome, Failure) and trial.outcome.stage is Stage.BUILD:
            raise BackendError(trial.outcome.reason)
        return trial

    def load(self, kernel: Kernel, artifact: Trial) -> Launch:
        """A launch that fails as the recorded one did, or does nothing."""
        return _ReplayedLaunch(artifact)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> _ReplayedTimer:
        """The recorded time."""
        assert isinstance(launch, _ReplayedLaunch)
        return _ReplayedTimer(launch.trial.seconds)


class _ReplayedLaunch:
    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def __call__(self, *args: Any) -> None:
        if isinstance(self.trial.outcome, Failure):
            raise BackendError(self.trial.outcome.reason)


class _ReplayedTimer:
    clock = "recorded"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, count: int) -> float:
        return self._seconds * count

    def flush(self, *, whole: bool) -> None:
        """Records have no caches."""


_STAGES = {"CompilationFailedConfig": (Stage.BUILD, Kind.REFUSED), "RuntimeFailedConfig": (Stage.VERIFY, Kind.RAISED)}


def _trial(config: Config, table: dict[str, list[Any]], row: int) -> Trial:
    """One row of a table."""
    milliseconds, said = table["time_ms"][row], table["error"][row]
    built, ran = table["compile_ms"][row] or 0.0, table["benchmark_ms"][row] or 0.0
    outcome: Timing | Failure
    if said or milliseconds is None or isnan(milliseconds):
        stage, _, rest = str(said).partition(": ")
        known = _STAGES.get(stage)
        place, kind = known or (Stage(stage) if stage in set(Stage) else Stage.VERIFY, Kind.RAISED)
        outcome = Failure(place, kind, rest or stage or "it failed")
    else:
        outcome = Timing((milliseconds / 1e3,), "recorded")
    return Trial(config, outcome, built / 1e3, ran / 1e3)


def _error(trial: Trial) -> str:
    return f"{trial.outcome.stage}: {trial.outcome.reason}" if isinstance(trial.outcome, Failure) else ""


def _pyarrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415 - an extra, and large
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise PluginError("reading Parquet needs pyarrow; pip install 'tunewright[replay]'") from error
    return pyarrow
