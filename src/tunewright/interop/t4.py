"""T4 results and T1 inputs: the formats of the benchmark hub, read and written, also compressed by gzip."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import edge, values
from tunewright.interop.kernel_tuner import error_of
from tunewright.interop.table import (
    FRAMEWORK,
    RUNS,
    VERIFY,
    Table,
    config_of,
    first_of_each,
    knobs_of,
    knobs_seen,
    offered,
    runtimes,
    sizes_of,
    timing,
)
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Timing, Trial
from tunewright.spaces.rule import Knob

SCHEMA = "1.0.0"

_UNITS = {
    **dict.fromkeys(("s", "sec", "seconds"), 1e3),
    **dict.fromkeys(("ms", "milliseconds", "miliseconds"), 1.0),  # the hub's own files have the misspelt one
    **dict.fromkeys(("us", "microseconds"), 1e-3),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-6),
}
_FAILURES = {
    "compile": (Stage.BUILD, Kind.REFUSED, "CompilationFailedConfig"),
    "runtime": (Stage.VERIFY, Kind.RAISED, "RuntimeFailedConfig"),
    "correctness": (Stage.VERIFY, Kind.WRONG, "its results are wrong"),
    "timeout": (Stage.TIME, Kind.HUNG, "it took too long"),
}
_UNFIT, _FIT = "constraints", "correct"


@dataclass(frozen=True)
class Input:
    """What a T1 file says of a tuning problem: the space, and of which kernel."""

    kernel: str
    knobs: tuple[Knob, ...]
    constraints: tuple[str, ...]
    sizes: tuple[int, ...] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of its knobs."""
        return frozenset(knob.name for knob in self.knobs)


def read(path: Path, space: Input | None = None) -> Table:
    """The table in the T4 file at `path`; with the T1 input it was made from, its constraints are known too."""
    table = told(edge.load(path), str(path), names_in(path))
    return table if space is None else within(table, space, str(path))


def within(table: Table, space: Input, where: str) -> Table:
    """The same table as part of the space that an input says."""
    if (names := {knob.name for knob in table.knobs}) != space.names:
        different = ", ".join(sorted(names ^ space.names))
        raise WireError(f"{where} and its input differ in the parameters {different}; give the input it was made from")
    offered(space.knobs, table.trials, where)
    return replace(table, knobs=space.knobs, constraints=space.constraints, sizes=space.sizes or table.sizes)


def names_in(path: Path) -> tuple[str, str]:
    """Kernel and device by the hub's way to name files: `KERNEL/DEVICE_T4.json.gz`."""
    stem = path.name.removesuffix(".gz").removesuffix(".json").removesuffix("_T4")
    return path.resolve().parent.name or "kernel", stem or "device"


def told(content: Any, where: str, names: tuple[str, str]) -> Table:
    """The table that a T4 file's content says, of the kernel and device named."""
    head = edge.mapping(content, where)
    results = edge.sequence(head.get("results"), f"{where}: results")
    if not results:
        raise WireError(f"{where} has no results; nothing to import")
    metadata = head.get("metadata") if isinstance(head.get("metadata"), dict) else {}
    unit = metadata.get("timeunit") if metadata else None
    first = edge.mapping(results[0], f"{where}: result 0").get("configuration")
    order = [edge.name(name, f"{where}: configuration") for name in edge.mapping(first, f"{where}: configuration")]
    found, unfit = [], 0
    for index, result in enumerate(results):
        at = f"{where}: result {index}"
        if (trial := _trial(edge.mapping(result, at), order, unit, at)) is None:
            unfit += 1
        else:
            found.append(trial)
    trials = first_of_each(found)
    notes = [f"{unfit:,} results break its constraints and are left out"] if unfit else []
    if len(trials) < len(found):
        notes.append(f"{len(found) - len(trials):,} results repeat a config; the first of each holds")
    return Table(*names, knobs_seen(order, (trial.config for trial in trials), where), trials, notes=tuple(notes))


def _trial(result: dict[str, Any], order: list[str], unit: Any, where: str) -> Trial | None:
    """One result; None if it breaks the constraints, and so is no part of the space."""
    config = config_of(edge.mapping(result.get("configuration"), f"{where}: configuration"), order, where)
    times = edge.mapping(result.get("times"), f"{where}: times")
    verdict = result.get("invalidity", _FIT)
    if verdict == _UNFIT:
        return None
    if not isinstance(verdict, str) or (verdict != _FIT and verdict not in _FAILURES):
        known = ", ".join([_FIT, _UNFIT, *_FAILURES])
        raise WireError(f"{where}: invalidity {edge.shown(verdict)} is not known; known: {known}")
    named, spent_unit = _measured(result, unit, where)
    single = [edge.number(run, f"{where}: runtimes") for run in edge.sequence(times.get("runtimes", []), where)]
    scale = _scale(spent_unit, where)
    outcome: Outcome
    if verdict != _FIT:
        outcome = Failure(*_FAILURES[verdict])
    elif result.get("correctness", 1) == 0:
        outcome = Failure(*_FAILURES["correctness"])
    elif named is None and not single:
        raise WireError(f"{where} has no measurement `time` and no runtimes; only recorded times can be replayed")
    else:
        outcome = timing(named if named is not None else scale * sum(single) / len(single), f"{where}: time")
    taken = dict.fromkeys(("compilation", "validation", "framework"), 0.0) | {"benchmark": sum(single)}
    built, verified, spent, ran = (
        edge.number(scale * edge.number(times.get(what), f"{where}: {what}", otherwise), f"{where}: {what}")
        for what, otherwise in taken.items()
    )
    figures = {VERIFY: verified, FRAMEWORK: spent} | (
        {RUNS: float(len(single))} if single and isinstance(outcome, Timing) else {}
    )
    return Trial(config, outcome, built / 1e3, ran / 1e3, figures)


def _measured(result: dict[str, Any], unit: Any, where: str) -> tuple[float | None, Any]:
    """The measurement `time` in milliseconds, if there is one, and the unit of what was spent.

    A file that names no unit is Kernel Tuner's if its measurement does, and then means the same one throughout.
    """
    for measurement in edge.sequence(result.get("measurements", []), f"{where}: measurements"):
        said = edge.mapping(measurement, f"{where}: measurement")
        if said.get("name") == "time":
            own, time = said.get("unit") or unit, said.get("value")
            if isinstance(time, int) and abs(time) > edge.MOST_NUMBER:
                raise WireError(f"{where}: {edge.shown(time)} is no time")
            return (time * _scale(own, where) if isinstance(time, int | float) else None), unit or own
    return None, unit


def _scale(unit: Any, where: str) -> float:
    """Milliseconds in a unit; the format's default are seconds."""
    scale = _UNITS.get(str(unit or "seconds").lower())
    if scale is None:
        raise WireError(f"{where}: the unit {edge.shown(unit)} is not known; known: {', '.join(_UNITS)}")
    return scale


def read_input(path: Path) -> Input:
    """The space in the T1 input file at `path`."""
    return told_input(edge.load(path), str(path))


def told_input(content: Any, where: str) -> Input:
    """The space that a T1 file's content says."""
    head = edge.mapping(content, where)
    space = edge.mapping(head.get("ConfigurationSpace"), f"{where}: ConfigurationSpace")
    spec = edge.mapping(head.get("KernelSpecification", {}), f"{where}: KernelSpecification")
    listed = edge.sequence(space.get("TuningParameters"), f"{where}: TuningParameters", edge.MOST_KNOBS)
    declared: dict[str, list[Any]] = {}
    for parameter in listed:
        said = edge.mapping(parameter, f"{where}: TuningParameters")
        name = edge.name(said.get("Name"), f"{where}: TuningParameters")
        text = said.get("Values")
        found = text if isinstance(text, list) else values.listed(str(text), f"{where}: values of {name!r}")
        declared[name] = [edge.value(value, f"{where}: a value of {name!r}") for value in found]
    rules = edge.sequence(space.get("Conditions", []), f"{where}: Conditions", 1000)
    at = f"{where}: Conditions"
    texts = tuple(edge.word(edge.mapping(rule, at).get("Expression"), at) for rule in rules)
    name = spec.get("KernelName") or edge.mapping(head.get("General", {}), where).get("BenchmarkName", "kernel")
    kernel = edge.word(name, f"{where}: KernelName")
    return Input(kernel, knobs_of(declared, where), texts, sizes_of(spec.get("ProblemSize")))


def write(table: Table, path: Path) -> None:
    """Keep `table` as T4 results; times are in milliseconds."""
    names = [knob.name for knob in table.knobs]
    content = {
        "metadata": {"timeunit": "milliseconds"},
        "schema_version": SCHEMA,
        "results": [_result(trial, names) for trial in table.trials],
    }
    edge.save(path, content)


def _result(trial: Trial, names: list[str]) -> dict[str, Any]:
    failed = trial.outcome if isinstance(trial.outcome, Failure) else None
    return {
        "configuration": {name: trial.config[name] for name in names},
        "objectives": ["time"],
        "times": {
            "compilation": trial.build_seconds * 1e3,
            "benchmark": trial.run_seconds * 1e3,
            "framework": trial.figures.get(FRAMEWORK, 0.0),
            "search_algorithm": 0.0,
            "validation": trial.figures.get(VERIFY, 0.0),
            "runtimes": runtimes(trial),
        },
        "invalidity": _FIT if failed is None else _verdict(failed),
        "correctness": 0 if failed is not None and failed.kind is Kind.WRONG else 1,
        "measurements": [{"name": "time", "value": error_of(failed) if failed else trial.seconds * 1e3, "unit": "ms"}],
    }


def _verdict(failure: Failure) -> str:
    if failure.stage is Stage.BUILD:
        return "compile"
    return {Kind.WRONG: "correctness", Kind.HUNG: "timeout"}.get(failure.kind, "runtime")


def write_input(table: Table, path: Path, kernel_file: str) -> None:
    """Keep the space of `table` as a T1 input, of the kernel in `kernel_file`; for replaying, that may be empty."""
    if table.constraints is None:
        raise WireError("a T1 input says a space by constraints, and this one has none as text; write T4 alone")
    parameters = [
        {"Name": knob.name, "Type": _kind(knob), "Values": repr(list(knob.values)), "Default": knob.values[0]}
        for knob in table.knobs
    ]
    names = [knob.name for knob in table.knobs]
    conditions = [
        {"Expression": text, "Parameters": [n for n in names if n in re.findall(r"\w+", text)]}
        for text in table.constraints
    ]
    everywhere = {"X": "1", "Y": "1", "Z": "1"}
    content = {
        "General": {"BenchmarkName": table.kernel, "OutputFormat": "JSON"},
        "ConfigurationSpace": {"TuningParameters": parameters, "Conditions": conditions},
        "KernelSpecification": {
            "Language": "CUDA",
            "KernelName": table.kernel,
            "KernelFile": kernel_file,
            "GlobalSize": everywhere,
            "LocalSize": everywhere,
            "ProblemSize": list(table.sizes or (1,)),
            "Arguments": [],
        },
    }
    edge.save(path, content)


def _kind(knob: Knob) -> str:
    kinds = {type(value) for value in knob.values}
    return "int" if kinds <= {bool, int} else "float" if kinds <= {bool, int, float} else "string"
