"""Kernel Tuner's cache files, which `tune_kernel(cache=...)` keeps: read and written, versions 1.x."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import edge
from tunewright.interop.table import (
    FRAMEWORK,
    RUNS,
    VERIFY,
    Table,
    config_of,
    knobs_of,
    knobs_seen,
    offered,
    runtimes,
    sizes_of,
    timing,
)
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Timing, Trial
from tunewright.spaces.rule import Knob

CUT = "its end was cut off; the last entry may be missing"

_UNFIT = "InvalidConfig"
_FAILURES = {
    "CompilationFailedConfig": (Stage.BUILD, Kind.REFUSED),
    "RuntimeFailedConfig": (Stage.VERIFY, Kind.RAISED),
    "ErrorConfig": (Stage.VERIFY, Kind.RAISED),
}


def read(path: Path) -> Table:
    """The table in the cache file at `path`, also of a run that ended abruptly."""
    notes: list[str] = []
    return told(edge.load(path, partial(closed, notes)), str(path), notes)


def closed(notes: list[str], text: str) -> Iterator[str]:
    """What a cache file whose end is missing may have been; its entries are lines, and the last may be lost."""
    notes.append(CUT)
    text = text.rstrip()
    for rest in (text, text.rpartition("\n")[0].rstrip()):
        yield rest.removesuffix(",") + "}}"
        yield rest.removesuffix(",") + "}"


def told(content: Any, where: str, notes: list[str] | None = None) -> Table:
    """The table that a cache file's content says."""
    head = edge.mapping(content, where)
    if missing := [key for key in ("tune_params_keys", "cache", "kernel_name", "device_name") if key not in head]:
        raise WireError(f"{where} lacks {', '.join(map(repr, missing))}; it is no cache file of Kernel Tuner 1.x")
    keys = edge.sequence(head["tune_params_keys"], f"{where}: tune_params_keys", edge.MOST_KNOBS)
    names = [edge.name(key, f"{where}: tune_params_keys") for key in keys]
    entries = edge.mapping(head["cache"], f"{where}: cache")
    if len(entries) > edge.MOST_ROWS:
        raise WireError(f"{where} has {len(entries):,} entries; at most {edge.MOST_ROWS:,} are read")
    trials, unfit = [], 0
    for key, entry in entries.items():
        at = f"{where}: entry {edge.shown(key)}"
        if (trial := _trial(edge.mapping(entry, at), names, at)) is None:
            unfit += 1
        else:
            trials.append(trial)
    knobs = _knobs(head, names, trials, where)
    offered(knobs, trials, where)
    said = [*(notes or []), *([f"{unfit:,} entries break its restrictions and are left out"] if unfit else [])]
    kernel, device = (edge.word(head[key], f"{where}: {key}") for key in ("kernel_name", "device_name"))
    return Table(kernel, device, knobs, tuple(trials), None, sizes_of(head.get("problem_size")), tuple(said))


def _knobs(head: dict[str, Any], names: list[str], trials: list[Trial], where: str) -> tuple[Knob, ...]:
    if "tune_params" not in head:
        return knobs_seen(names, (trial.config for trial in trials), where)
    said = edge.mapping(head["tune_params"], f"{where}: tune_params")
    values = {name: edge.sequence(said.get(name), f"{where}: values of {name!r}", edge.MOST_VALUES) for name in names}
    checked = {
        name: [edge.value(v, f"{where}: a value of {name!r}") for v in listed] for name, listed in values.items()
    }
    return knobs_of(checked, where)


def _trial(entry: dict[str, Any], names: list[str], where: str) -> Trial | None:
    """One entry; None if it breaks the restrictions, and so is no part of the space."""
    config = config_of(entry, names, where)
    error = entry.get("__error__", entry.get("time"))
    outcome: Outcome
    if error == _UNFIT:
        return None
    if isinstance(error, str):
        stage, kind = _FAILURES.get(error, (Stage.VERIFY, Kind.RAISED))
        outcome = Failure(stage, kind, edge.word(error, f"{where}: error"))
    elif "time" in entry:
        outcome = timing(entry["time"], f"{where}: time")
    else:
        raise WireError(f"{where} has neither a time nor an error; only caches of the objective `time` can be replayed")
    built, verified, ran, spent = (
        edge.number(entry.get(f"{what}_time"), f"{where}: {what}_time", 0.0)
        for what in ("compile", "verification", "benchmark", "framework")
    )
    figures = {VERIFY: verified, FRAMEWORK: spent}
    if isinstance(outcome, Timing) and entry.get("times"):
        figures[RUNS] = float(len(edge.sequence(entry["times"], f"{where}: times")))
    return Trial(config, outcome, built / 1e3, ran / 1e3, figures)


def write(table: Table, path: Path) -> None:
    """Keep `table` as a cache file that Kernel Tuner reads, as for its simulation mode."""
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
    lines = [f"{edge.compact(key)}:{edge.compact(entry)}" for key, entry in entries.items()]
    # A line each and this very end, by which Kernel Tuner knows that it may open the file and append to it.
    edge.put(path, edge.compact(head)[:-1] + ',"cache":{\n' + ",\n".join(lines) + "}\n}")


def error_of(failure: Failure) -> str:
    """What Kernel Tuner calls a failure."""
    return "CompilationFailedConfig" if failure.stage is Stage.BUILD else "RuntimeFailedConfig"


def _entry(trial: Trial, names: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {name: trial.config[name] for name in names}
    if isinstance(trial.outcome, Failure):
        entry |= {"time": error_of(trial.outcome), "__error__": error_of(trial.outcome)}
    else:
        entry |= {"time": trial.seconds * 1e3, "times": runtimes(trial)}
    return entry | {
        "compile_time": trial.build_seconds * 1e3,
        "verification_time": trial.figures.get(VERIFY, 0.0),
        "benchmark_time": trial.run_seconds * 1e3,
        "framework_time": trial.figures.get(FRAMEWORK, 0.0),
        "strategy_time": 0.0,
    }
