"""The replay backend: answers from a recorded table, to test and compare strategies without hardware."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

from tunewright.backends import expressions
from tunewright.backends.host import digest
from tunewright.errors import BackendError, PluginError, SpaceError
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config
from tunewright.spaces.config_list import rule_from_rows
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space


@dataclass(frozen=True)
class Recording:
    """A space with the recorded trials of its configs.

    On disk it is a Parquet table (a column per knob, `time_ms`, `error`, `compile_ms`, `benchmark_ms`, perhaps
    `time_std_ms`) and a JSON file with the knobs, constraints and device.
    """

    kernel: str
    device: str
    space: Space
    trials: dict[Config, Trial]
    constraints: tuple[str, ...] | None = None
    """The rules as text; None if they are functions, and the space is the recorded configs."""

    spreads: dict[Config, float] = field(default_factory=dict)
    """Standard deviations of the recorded times in seconds, where they are known."""

    @classmethod
    def from_table(
        cls, kernel: str, device: str, knobs: Sequence[Knob], constraints: Sequence[str] | None, trials: Iterable[Trial]
    ) -> Recording:
        """Returns a recording from the contents of a file; without constraints, its space is the recorded configs."""
        trials_by_config = {trial.config: trial for trial in trials}
        if constraints is None:
            space = Space(*knobs, rules=[rule_from_rows(knobs, trials_by_config, "this config was recorded")])
            return cls(kernel, device, space, trials_by_config)
        text_knobs = {knob.name for knob in knobs if any(isinstance(value, str) for value in knob.values)}
        rules = [expressions.parse_rule(text, text_knobs=text_knobs) for text in constraints]
        return cls(kernel, device, Space(*knobs, rules=rules), trials_by_config, tuple(constraints))

    @classmethod
    def from_trials(cls, key: Key, space: Space, trials: Iterable[Trial]) -> Recording:
        """Returns a recording of trials of a store; the last trial of a config counts."""
        return cls(key.kernel, key.device.model, space, {t.config: t for t in trials if t.config in space})

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Reads the recording in `NAME.parquet` and `NAME.json`."""
        metadata = json.loads(path.with_suffix(".json").read_text())
        order = metadata["parameter_order"]
        table = _pyarrow().parquet.read_table(path).to_pydict()
        rows = [Config(dict(zip(order, row, strict=True))) for row in zip(*(table[n] for n in order), strict=True)]
        trials = [_trial(config, table, i) for i, config in enumerate(rows)]
        knobs = [Knob(name, metadata["parameters"][name]) for name in order]
        recording = cls.from_table(metadata["kernel"], metadata["device"], knobs, metadata.get("constraints"), trials)
        spreads = zip(rows, table.get("time_std_ms", ()), strict=False)
        return replace(recording, spreads={config: ms / 1e3 for config, ms in spreads if ms is not None})

    def write(self, path: Path) -> None:
        """Writes the recording to `NAME.parquet` and `NAME.json`."""
        if self.space.variants:
            raise SpaceError("a space with variants does not fit one table; record each variant on its own")
        arrow = _pyarrow()
        trials = [trial for _, trial in sorted(self.trials.items(), key=lambda item: self.space.rank(item[0]))]
        columns: dict[str, list[Any]] = {n: [trial.config[n] for trial in trials] for n in self.space.names}
        columns["time_ms"] = [t.seconds * 1e3 if isinstance(t.outcome, Timing) else None for t in trials]
        columns["error"] = [_error(trial) for trial in trials]
        columns["compile_ms"] = [trial.build_seconds * 1e3 for trial in trials]
        columns["benchmark_ms"] = [trial.run_seconds * 1e3 for trial in trials]
        if self.spreads:
            columns["time_std_ms"] = [_milliseconds(self.spreads.get(trial.config)) for trial in trials]
        metadata = {
            "kernel": self.kernel,
            "device": self.device,
            "parameters": {knob.name: list(knob.values) for knob in self.space.knobs},
            "parameter_order": list(self.space.names),
            "constraints": None if self.constraints is None else list(self.constraints),
            "rules": [rule.reason for rule in self.space.rules],
        }
        arrow.parquet.write_table(arrow.table(columns), path, compression="zstd")
        path.with_suffix(".json").write_text(json.dumps(metadata, indent=1) + "\n")

    @property
    def best(self) -> Trial:
        """The fastest trial, which a search can reach at best."""
        return min(self.trials.values(), key=lambda trial: trial.seconds)


class Replay:
    """Builds, loads and times by looking up recorded trials."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how calls are distinguished."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the recorded kernel on the recorded device."""
        device = Device("recorded", self.recording.device, "recorded")
        return Key(kernel.name, digest(self.recording.kernel), signature, device, {"replay": "1"}, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Trial:
        """Returns the recorded trial; raises BackendError if its build failed."""
        trial = self.recording.trials.get(config)
        if trial is None:
            raise BackendError("this config was not recorded")
        if isinstance(trial.outcome, Failure) and trial.outcome.stage is Stage.BUILD:
            raise BackendError(trial.outcome.reason)
        return trial

    def load(self, kernel: Kernel, artifact: Trial) -> Launch:
        """Returns a launch that fails as the recorded one did, or does nothing."""
        return _ReplayedLaunch(artifact)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> _ReplayedTimer:
        """Returns a timer that reports the recorded time."""
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
        """Does nothing."""


_STAGES = {"CompilationFailedConfig": (Stage.BUILD, Kind.REFUSED), "RuntimeFailedConfig": (Stage.VERIFY, Kind.RAISED)}


def _trial(config: Config, table: dict[str, list[Any]], row: int) -> Trial:
    """Returns the trial in one row of a table."""
    milliseconds, error = table["time_ms"][row], table["error"][row]
    build_ms, run_ms = table["compile_ms"][row] or 0.0, table["benchmark_ms"][row] or 0.0
    outcome: Timing | Failure
    if error or milliseconds is None or isnan(milliseconds):
        stage, _, rest = str(error).partition(": ")
        stage_and_kind = _STAGES.get(stage)
        failed_stage, kind = stage_and_kind or (Stage(stage) if stage in set(Stage) else Stage.VERIFY, Kind.RAISED)
        outcome = Failure(failed_stage, kind, rest or stage or "it failed")
    else:
        outcome = Timing((milliseconds / 1e3,), "recorded")
    return Trial(config, outcome, build_ms / 1e3, run_ms / 1e3)


def _milliseconds(seconds: float | None) -> float | None:
    """Returns milliseconds with the precision of a standard deviation: more digits only make a file larger."""
    return None if seconds is None else float(f"{seconds * 1e3:.4g}")


def _error(trial: Trial) -> str:
    return f"{trial.outcome.stage}: {trial.outcome.reason}" if isinstance(trial.outcome, Failure) else ""


def _pyarrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415 - an extra, and large
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise PluginError("reading Parquet needs pyarrow; pip install 'tunewright[replay]'") from error
    return pyarrow
