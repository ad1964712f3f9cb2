"""Reads and writes T4 results and T1 inputs, the formats of the autotuning benchmark hub, also gzipped."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import untrusted, value_lists
from tunewright.interop.kernel_tuner import error_name
from tunewright.interop.table import (
    FRAMEWORK,
    RUNS,
    VERIFY,
    ForeignTable,
    check_values,
    drop_repeats,
    knobs_from_configs,
    make_knobs,
    parse_config,
    parse_sizes,
    parse_time,
    runtimes,
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
_CONSTRAINTS, _CORRECT = "constraints", "correct"


@dataclass(frozen=True)
class T1Input:
    """A tuning problem of a T1 file: a kernel and its space."""

    kernel: str
    knobs: tuple[Knob, ...]
    constraints: tuple[str, ...]
    sizes: tuple[int, ...] | None = None

    @property
    def names(self) -> frozenset[str]:
        """Names of the knobs."""
        return frozenset(knob.name for knob in self.knobs)


def read(path: Path, space: T1Input | None = None) -> ForeignTable:
    """Returns the table in a T4 file; with the T1 input it was made from, it has constraints too."""
    table = parse(untrusted.load(path), str(path), names_from_path(path))
    return table if space is None else with_input(table, space, str(path))


def with_input(table: ForeignTable, space: T1Input, where: str) -> ForeignTable:
    """Returns the table with the space of an input."""
    if (names := {knob.name for knob in table.knobs}) != space.names:
        different = ", ".join(sorted(names ^ space.names))
        raise WireError(f"{where} and its input differ in the parameters {different}; use the input it was made from")
    check_values(space.knobs, table.trials, where)
    return replace(table, knobs=space.knobs, constraints=space.constraints, sizes=space.sizes or table.sizes)


def names_from_path(path: Path) -> tuple[str, str]:
    """Returns kernel and device by the hub's file names: `KERNEL/DEVICE_T4.json.gz`."""
    stem = path.name.removesuffix(".gz").removesuffix(".json").removesuffix("_T4")
    return path.resolve().parent.name or "kernel", stem or "device"


def parse(content: Any, where: str, names: tuple[str, str]) -> ForeignTable:
    """Returns the table from the content of a T4 file; `names` are kernel and device."""
    head = untrusted.check_object(content, where)
    results = untrusted.check_array(head.get("results"), f"{where}: results")
    if not results:
        raise WireError(f"{where} has no results; nothing to import")
    metadata = head.get("metadata") if isinstance(head.get("metadata"), dict) else {}
    unit = metadata.get("timeunit") if metadata else None
    first = untrusted.check_object(results[0], f"{where}: result 0").get("configuration")
    order = [
        untrusted.check_name(name, f"{where}: configuration")
        for name in untrusted.check_object(first, f"{where}: configuration")
    ]
    parsed, invalid = [], 0
    for index, result in enumerate(results):
        at = f"{where}: result {index}"
        if (trial := _trial(untrusted.check_object(result, at), order, unit, at)) is None:
            invalid += 1
        else:
            parsed.append(trial)
    trials = drop_repeats(parsed)
    notes = [f"{invalid:,} results break its constraints and are left out"] if invalid else []
    if len(trials) < len(parsed):
        notes.append(f"{len(parsed) - len(trials):,} results repeat a config; the first one counts")
    return ForeignTable(
        *names, knobs_from_configs(order, (trial.config for trial in trials), where), trials, notes=tuple(notes)
    )


def _trial(result: dict[str, Any], order: list[str], unit: Any, where: str) -> Trial | None:
    """Returns the trial of a result; None if it breaks the constraints."""
    config = parse_config(untrusted.check_object(result.get("configuration"), f"{where}: configuration"), order, where)
    times = untrusted.check_object(result.get("times"), f"{where}: times")
    verdict = result.get("invalidity", _CORRECT)
    if verdict == _CONSTRAINTS:
        return None
    if not isinstance(verdict, str) or (verdict != _CORRECT and verdict not in _FAILURES):
        known = ", ".join([_CORRECT, _CONSTRAINTS, *_FAILURES])
        raise WireError(f"{where}: invalidity {untrusted.quote(verdict)} is not known; known: {known}")
    named, spent_unit = _measured_time(result, unit, where)
    single = [
        untrusted.check_number(run, f"{where}: runtimes")
        for run in untrusted.check_array(times.get("runtimes", []), where)
    ]
    scale = _scale(spent_unit, where)
    outcome: Outcome
    if verdict != _CORRECT:
        outcome = Failure(*_FAILURES[verdict])
    elif result.get("correctness", 1) == 0:
        outcome = Failure(*_FAILURES["correctness"])
    elif named is None and not single:
        raise WireError(f"{where} has no measurement `time` and no runtimes; only recorded times can be replayed")
    else:
        outcome = parse_time(named if named is not None else scale * sum(single) / len(single), f"{where}: time")
    defaults = dict.fromkeys(("compilation", "validation", "framework"), 0.0) | {"benchmark": sum(single)}
    built, verified, spent, ran = (
        untrusted.check_number(
            scale * untrusted.check_number(times.get(what), f"{where}: {what}", default), f"{where}: {what}"
        )
        for what, default in defaults.items()
    )
    metrics = {VERIFY: verified, FRAMEWORK: spent} | (
        {RUNS: float(len(single))} if single and isinstance(outcome, Timing) else {}
    )
    return Trial(config, outcome, built / 1e3, ran / 1e3, metrics)


def _measured_time(result: dict[str, Any], unit: Any, where: str) -> tuple[float | None, Any]:
    """Returns the measurement `time` in milliseconds, if there is one, and the unit of the other times.

    A file without a unit whose measurement has one is from Kernel Tuner, and uses that unit throughout.
    """
    for measurement in untrusted.check_array(result.get("measurements", []), f"{where}: measurements"):
        fields = untrusted.check_object(measurement, f"{where}: measurement")
        if fields.get("name") == "time":
            own, time = fields.get("unit") or unit, fields.get("value")
            if isinstance(time, int) and abs(time) > untrusted.MAX_FLOAT:
                raise WireError(f"{where}: {untrusted.quote(time)} is not a time")
            return (time * _scale(own, where) if isinstance(time, int | float) else None), unit or own
    return None, unit


def _scale(unit: Any, where: str) -> float:
    """Returns the milliseconds of a unit; the format's default is seconds."""
    scale = _UNITS.get(str(unit or "seconds").lower())
    if scale is None:
        raise WireError(f"{where}: the unit {untrusted.quote(unit)} is not known; known: {', '.join(_UNITS)}")
    return scale


def read_input(path: Path) -> T1Input:
    """Returns the input in a T1 file."""
    return parse_input(untrusted.load(path), str(path))


def parse_input(content: Any, where: str) -> T1Input:
    """Returns the input from the content of a T1 file."""
    head = untrusted.check_object(content, where)
    space = untrusted.check_object(head.get("ConfigurationSpace"), f"{where}: ConfigurationSpace")
    spec = untrusted.check_object(head.get("KernelSpecification", {}), f"{where}: KernelSpecification")
    listed = untrusted.check_array(space.get("TuningParameters"), f"{where}: TuningParameters", untrusted.MAX_KNOBS)
    declared: dict[str, list[Any]] = {}
    for parameter in listed:
        fields = untrusted.check_object(parameter, f"{where}: TuningParameters")
        name = untrusted.check_name(fields.get("Name"), f"{where}: TuningParameters")
        text = fields.get("Values")
        values = text if isinstance(text, list) else value_lists.parse_values(str(text), f"{where}: values of {name!r}")
        declared[name] = [untrusted.check_value(value, f"{where}: a value of {name!r}") for value in values]
    rules = untrusted.check_array(space.get("Conditions", []), f"{where}: Conditions", 1000)
    at = f"{where}: Conditions"
    texts = tuple(untrusted.check_text(untrusted.check_object(rule, at).get("Expression"), at) for rule in rules)
    name = spec.get("KernelName") or untrusted.check_object(head.get("General", {}), where).get(
        "BenchmarkName", "kernel"
    )
    kernel = untrusted.check_text(name, f"{where}: KernelName")
    return T1Input(kernel, make_knobs(declared, where), texts, parse_sizes(spec.get("ProblemSize")))


def write(table: ForeignTable, path: Path) -> None:
    """Write `table` as T4 results, with times in milliseconds."""
    names = [knob.name for knob in table.knobs]
    content = {
        "metadata": {"timeunit": "milliseconds"},
        "schema_version": SCHEMA,
        "results": [_result(trial, names) for trial in table.trials],
    }
    untrusted.write_json(path, content)


def _result(trial: Trial, names: list[str]) -> dict[str, Any]:
    failed = trial.outcome if isinstance(trial.outcome, Failure) else None
    return {
        "configuration": {name: trial.config[name] for name in names},
        "objectives": ["time"],
        "times": {
            "compilation": trial.build_seconds * 1e3,
            "benchmark": trial.run_seconds * 1e3,
            "framework": trial.metrics.get(FRAMEWORK, 0.0),
            "search_algorithm": 0.0,
            "validation": trial.metrics.get(VERIFY, 0.0),
            "runtimes": runtimes(trial),
        },
        "invalidity": _CORRECT if failed is None else _invalidity(failed),
        "correctness": 0 if failed is not None and failed.kind is Kind.WRONG else 1,
        "measurements": [
            {"name": "time", "value": error_name(failed) if failed else trial.seconds * 1e3, "unit": "ms"}
        ],
    }


def _invalidity(failure: Failure) -> str:
    if failure.stage is Stage.BUILD:
        return "compile"
    return {Kind.WRONG: "correctness", Kind.HUNG: "timeout"}.get(failure.kind, "runtime")


def write_input(table: ForeignTable, path: Path, kernel_file: str) -> None:
    """Write the space of `table` as a T1 input of the kernel in `kernel_file`, which may be empty for replay."""
    if table.constraints is None:
        raise WireError("a T1 input needs constraints as text, and this table has none; write only T4")
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
    untrusted.write_json(path, content)


def _kind(knob: Knob) -> str:
    kinds = {type(value) for value in knob.values}
    return "int" if kinds <= {bool, int} else "float" if kinds <= {bool, int, float} else "string"
