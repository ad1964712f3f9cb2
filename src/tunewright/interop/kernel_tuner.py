"""Reads and writes cache files of Kernel Tuner 1.x (`tune_kernel(cache=...)`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import untrusted
from tunewright.interop.table import (
    FRAMEWORK,
    RUNS,
    VERIFY,
    ForeignTable,
    check_values,
    knobs_from_configs,
    make_knobs,
    parse_config,
    parse_sizes,
    parse_time,
    runtimes,
)
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Timing, Trial
from tunewright.spaces.rule import Knob

TRUNCATED = "it is truncated; the last entry may be missing"

_INVALID = "InvalidConfig"
_FAILURES = {
    "CompilationFailedConfig": (Stage.BUILD, Kind.REFUSED),
    "RuntimeFailedConfig": (Stage.VERIFY, Kind.RAISED),
    "ErrorConfig": (Stage.VERIFY, Kind.RAISED),
}


def read(path: Path) -> ForeignTable:
    """Returns the table in a cache file, also of an aborted run."""
    notes: list[str] = []
    return parse(untrusted.load(path, partial(repair_truncated, notes)), str(path), notes)


def repair_truncated(notes: list[str], text: str) -> Iterator[str]:
    """Yields repairs of a truncated cache file; its entries are lines, and the last may be lost."""
    notes.append(TRUNCATED)
    text = text.rstrip()
    for rest in (text, text.rpartition("\n")[0].rstrip()):
        yield rest.removesuffix(",") + "}}"
        yield rest.removesuffix(",") + "}"


def parse(content: Any, where: str, notes: list[str] | None = None) -> ForeignTable:
    """Returns the table from the content of a cache file."""
    head = untrusted.check_object(content, where)
    if missing := [key for key in ("tune_params_keys", "cache", "kernel_name", "device_name") if key not in head]:
        raise WireError(f"{where} lacks {', '.join(map(repr, missing))}; it is not a cache file of Kernel Tuner 1.x")
    keys = untrusted.check_array(head["tune_params_keys"], f"{where}: tune_params_keys", untrusted.MAX_KNOBS)
    names = [untrusted.check_name(key, f"{where}: tune_params_keys") for key in keys]
    entries = untrusted.check_object(head["cache"], f"{where}: cache")
    if len(entries) > untrusted.MAX_ROWS:
        raise WireError(f"{where} has {len(entries):,} entries; at most {untrusted.MAX_ROWS:,} are read")
    trials, invalid = [], 0
    for key, entry in entries.items():
        at = f"{where}: entry {untrusted.quote(key)}"
        if (trial := _trial(untrusted.check_object(entry, at), names, at)) is None:
            invalid += 1
        else:
            trials.append(trial)
    knobs = _knobs(head, names, trials, where)
    check_values(knobs, trials, where)
    notes = [*(notes or []), *([f"{invalid:,} entries break its restrictions and are left out"] if invalid else [])]
    kernel, device = (untrusted.check_text(head[key], f"{where}: {key}") for key in ("kernel_name", "device_name"))
    return ForeignTable(kernel, device, knobs, tuple(trials), None, parse_sizes(head.get("problem_size")), tuple(notes))


def _knobs(head: dict[str, Any], names: list[str], trials: list[Trial], where: str) -> tuple[Knob, ...]:
    if "tune_params" not in head:
        return knobs_from_configs(names, (trial.config for trial in trials), where)
    params = untrusted.check_object(head["tune_params"], f"{where}: tune_params")
    values = {
        name: untrusted.check_array(params.get(name), f"{where}: values of {name!r}", untrusted.MAX_VALUES)
        for name in names
    }
    checked = {
        name: [untrusted.check_value(v, f"{where}: a value of {name!r}") for v in listed]
        for name, listed in values.items()
    }
    return make_knobs(checked, where)


def _trial(entry: dict[str, Any], names: list[str], where: str) -> Trial | None:
    """Returns the trial of an entry; None if it breaks the restrictions."""
    config = parse_config(entry, names, where)
    error = entry.get("__error__", entry.get("time"))
    outcome: Outcome
    if error == _INVALID:
        return None
    if isinstance(error, str):
        stage, kind = _FAILURES.get(error, (Stage.VERIFY, Kind.RAISED))
        outcome = Failure(stage, kind, untrusted.check_text(error, f"{where}: error"))
    elif "time" in entry:
        outcome = parse_time(entry["time"], f"{where}: time")
    else:
        raise WireError(f"{where} has neither a time nor an error; only caches of the objective `time` can be replayed")
    built, verified, ran, spent = (
        untrusted.check_number(entry.get(f"{what}_time"), f"{where}: {what}_time", 0.0)
        for what in ("compile", "verification", "benchmark", "framework")
    )
    metrics = {VERIFY: verified, FRAMEWORK: spent}
    if isinstance(outcome, Timing) and entry.get("times"):
        metrics[RUNS] = float(len(untrusted.check_array(entry["times"], f"{where}: times")))
    return Trial(config, outcome, built / 1e3, ran / 1e3, metrics)


def write(table: ForeignTable, path: Path) -> None:
    """Write `table` as a cache file of Kernel Tuner, for example for its simulation mode."""
    names = [knob.name for knob in table.knobs]
    head: dict[str, Any] = {"device_name": table.device, "kernel_name": table.kernel}
    if table.sizes is not None:
        head["problem_size"] = list(table.sizes)
    head |= {
        "tune_params_keys": names,
        "tune_params": {knob.name: list(knob.values) for knob in table.knobs},
        "objective": ["time"],
    }
    entries = {",".join(str(trial.config[n]) for n in names): _entry(trial, names) for trial in table.trials}
    lines = [f"{untrusted.compact(key)}:{untrusted.compact(entry)}" for key, entry in entries.items()]
    # One line per entry and this ending: by them Kernel Tuner knows that it may append to the file.
    untrusted.write_file(path, untrusted.compact(head)[:-1] + ',"cache":{\n' + ",\n".join(lines) + "}\n}")


def error_name(failure: Failure) -> str:
    """Returns Kernel Tuner's name of a failure."""
    return "CompilationFailedConfig" if failure.stage is Stage.BUILD else "RuntimeFailedConfig"


def _entry(trial: Trial, names: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {name: trial.config[name] for name in names}
    if isinstance(trial.outcome, Failure):
        entry |= {"time": error_name(trial.outcome), "__error__": error_name(trial.outcome)}
    else:
        entry |= {"time": trial.seconds * 1e3, "times": runtimes(trial)}
    return entry | {
        "compile_time": trial.build_seconds * 1e3,
        "verification_time": trial.metrics.get(VERIFY, 0.0),
        "benchmark_time": trial.run_seconds * 1e3,
        "framework_time": trial.metrics.get(FRAMEWORK, 0.0),
        "strategy_time": 0.0,
    }
