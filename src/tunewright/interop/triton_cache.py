"""Reads and writes Triton's autotuning cache: `NAME.autotune.json` for each kernel and tuning key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import untrusted
from tunewright.interop.table import ForeignTable, drop_repeats, knobs_from_configs, parse_time
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Trial
from tunewright.spaces.config import Config, Value

SUFFIX = ".autotune.json"

LAUNCH = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
"""Launch parameters of a config besides the kernel's own."""

FIELDS = frozenset({"kwargs", "pre_hook", *LAUNCH})
"""Fields of Triton's `Config`; older versions had more."""

MAX_NAME_CHARS = 150
"""Characters of the kernel's name that Triton uses in the file name."""

_FOLDER = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")


@dataclass(frozen=True)
class TimedConfig:
    """A config and its times in milliseconds: median, fast and slow; infinite if it failed."""

    config: Config
    milliseconds: tuple[float, ...]


@dataclass(frozen=True)
class AutotuneFile:
    """Contents of a file: a kernel, the values of its tuning key, and the configs tried."""

    kernel: str
    key: tuple[Value | None, ...]
    tried: tuple[TimedConfig, ...]

    @property
    def best(self) -> TimedConfig:
        """The config that Triton chooses: the smallest times, compared in order; of equal configs the last counts."""
        return min({timed.config: timed for timed in self.tried}.values(), key=lambda timed: timed.milliseconds)


def read(path: Path) -> AutotuneFile:
    """Returns the contents of a file."""
    return parse(untrusted.load_table(path), kernel_name(path), str(path))


def kernel_name(path: Path) -> str:
    """Returns the kernel of a file."""
    return path.name.removesuffix(SUFFIX) or "kernel"


def is_reachable(path: Path) -> bool:
    """Returns whether a file is where Triton looks: in a folder named by a digest."""
    return _FOLDER.fullmatch(path.resolve().parent.name) is not None


def parse(content: Any, kernel: str, where: str) -> AutotuneFile:
    """Returns the parsed content of a file."""
    head = untrusted.check_object(content, where)
    key = untrusted.check_array(head.get("key"), f"{where}: key", untrusted.MAX_KNOBS)
    values = tuple(None if part is None else untrusted.check_value(part, f"{where}: key") for part in key)
    tried = tuple(timed for _, timed in entries(head, where))
    if not tried:
        raise WireError(f"{where} has no configs; Triton stops at it, so remove it")
    return AutotuneFile(kernel, values, tried)


def entries(head: dict[str, Any], where: str) -> Iterator[tuple[dict[str, Any], TimedConfig]]:
    """Yields the configs tried, as stored and parsed."""
    listed = untrusted.check_array(head.get("configs_timings"), f"{where}: configs_timings")
    for number, entry in enumerate(listed):
        at = f"{where}: config {number}"
        pair = untrusted.check_array(entry, at, 2)
        if len(pair) != 2:
            raise WireError(f"{at} should be a config and its times")
        fields = untrusted.check_object(pair[0], at)
        yield fields, TimedConfig(_config(fields, at), _times(pair[1], at))


def _config(fields: dict[str, Any], where: str) -> Config:
    own = untrusted.check_object(fields.get("kwargs"), f"{where}: kwargs")
    if twice := own.keys() & {*LAUNCH}:
        raise WireError(f"{where} sets {', '.join(sorted(twice))} as a parameter of the kernel, which Triton refuses")
    if len(own) > untrusted.MAX_KNOBS:
        raise WireError(f"{where} sets {len(own):,} parameters; at most {untrusted.MAX_KNOBS} are read")
    set_ = own | {name: fields[name] for name in LAUNCH if fields.get(name) is not None}
    return Config(
        {
            untrusted.check_name(name, where): untrusted.check_value(value, f"{where}: {name}")
            for name, value in set_.items()
        }
    )


def _times(fields: Any, where: str) -> tuple[float, ...]:
    listed = untrusted.check_array(fields, f"{where}: times", 1000) if isinstance(fields, list) else [fields]
    if not listed:
        raise WireError(f"{where} has no times")
    return tuple(_time(time, where) for time in listed)


def _time(fields: Any, where: str) -> float:
    if isinstance(fields, float) and fields == inf:
        return inf
    if isinstance(fields, float) and isnan(fields):
        raise WireError(f"{where}: a time is no number, so which config is the best is a matter of luck; tune it anew")
    return untrusted.check_number(fields, f"{where}: time")


def write(cache: AutotuneFile, path: Path) -> None:
    """Write `cache` as Triton does. Triton finds it only in the folder that it names by its digest."""
    content = {
        "key": list(cache.key),
        "configs_timings": [[_launch_fields(timed.config), list(timed.milliseconds)] for timed in cache.tried],
    }
    untrusted.write_file(path, json.dumps(content))


def _launch_fields(config: Config) -> dict[str, Any]:
    own = {name: value for name, value in config.items() if name not in LAUNCH}
    launch = {name: config[name] for name in ("num_warps", "num_ctas", "num_stages") if name in config}
    rest = {name: config.get(name) for name in ("maxnreg", "pre_hook", "ir_override")}
    return {"kwargs": own, **launch, **rest}


def as_table(cache: AutotuneFile, device: str) -> ForeignTable:
    """Returns the file as a recording for replay, with a trial for each config."""
    trials = drop_repeats(Trial(timed.config, _outcome(timed)) for timed in reversed(cache.tried))
    names = sorted({name for trial in trials for name in trial.config})
    where = f"{cache.kernel}{SUFFIX}"
    if uneven := next((trial.config for trial in trials if set(trial.config) != set(names)), None):
        raise WireError(f"{where}: {uneven} does not set all of {', '.join(names)}; a recording's configs all do")
    notes = (f"tuned for the key {list(cache.key)}",)
    return ForeignTable(
        cache.kernel, device, knobs_from_configs(names, (t.config for t in trials), where), trials[::-1], notes=notes
    )


def _outcome(timed: TimedConfig) -> Outcome:
    if timed.milliseconds[0] == inf:
        return Failure(Stage.BUILD, Kind.REFUSED, "it did not fit the device, or was not compiled")
    return parse_time(timed.milliseconds[0], "a time")


def from_trials(kernel: str, key: Iterable[Value | None], trials: Iterable[Trial]) -> AutotuneFile:
    """Returns trials as Triton would store them; one time is used for median, fast and slow."""
    tried = tuple(TimedConfig(trial.config, (trial.seconds * 1e3,) * 3) for trial in trials)
    return AutotuneFile(kernel, tuple(key), tried)
