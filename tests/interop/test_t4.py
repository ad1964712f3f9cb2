"""T4 results and T1 inputs: there and back, valid by the schemas of others, and refused where they are damaged."""

import gzip
import json

import pytest

from tunewright.errors import WireError
from tunewright.interop import hub, kernel_tuner, t4, untrusted, value_lists
from tunewright.model.trial import Failure, Kind, Stage


def result(x, time=2.0, **more):
    return {
        "configuration": {"x": x, "y": "a"},
        "times": {"compilation": 1.5, "runtimes": [1.0, 3.0], "framework": 0, "search_algorithm": 0, "validation": 0.5},
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [{"name": "time", "value": time, "unit": ""}],
        "objectives": ["time"],
    } | more


def written(tmp_path, *results, unit="miliseconds", name="A100_T4.json"):
    path = tmp_path / "convolution" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"metadata": {"timeunit": unit}, "schema_version": "1.0.0", "results": list(results)}))
    return path


def input_of(x="[1, 2, 4]", conditions=("x < 4",)):
    parameters = [{"Name": "x", "Type": "int", "Values": x}, {"Name": "y", "Type": "string", "Values": "['a', 'b']"}]
    return {
        "ConfigurationSpace": {
            "TuningParameters": parameters,
            "Conditions": [{"Expression": text, "Parameters": ["x"]} for text in conditions],
        },
        "KernelSpecification": {"KernelName": "convolution_kernel", "ProblemSize": [64, 64]},
    }


def test_results_and_input_together_say_the_whole_recording(table, tmp_path) -> None:
    t4.write(table, tmp_path / "one_T4.json.gz")
    t4.write_input(table, tmp_path / "scale.json", "scale.cu")
    again = t4.read(tmp_path / "one_T4.json.gz", t4.read_input(tmp_path / "scale.json"))
    assert again.trials == table.trials
    assert [(k.name, k.values) for k in again.knobs] == [(k.name, k.values) for k in table.knobs]
    assert (again.constraints, again.sizes) == (table.constraints, table.sizes)


def test_results_alone_have_the_values_that_occur(table, tmp_path) -> None:
    t4.write(table, tmp_path / "one_T4.json")
    again = t4.read(tmp_path / "one_T4.json")
    assert again.trials == table.trials
    assert again.constraints is None
    assert {k.name: set(k.values) for k in again.knobs} == {k.name: set(k.values) for k in table.knobs}


@pytest.mark.filterwarnings("ignore")
def test_others_find_our_files_valid(table, tmp_path) -> None:
    jsonschema, files = pytest.importorskip("jsonschema"), pytest.importorskip("kernel_tuner.file_utils")
    t4.write(table, tmp_path / "one_T4.json")
    t4.write_input(table, tmp_path / "scale.json", "scale.cu")
    jsonschema.validate(json.loads((tmp_path / "one_T4.json").read_text()), files.output_file_schema("results")[1])
    files.get_input_file(tmp_path / "scale.json")


def test_every_kind_of_failure_survives_there_and_back(table, tmp_path) -> None:
    kinds = [
        (Stage.BUILD, Kind.REFUSED),
        (Stage.VERIFY, Kind.RAISED),
        (Stage.VERIFY, Kind.WRONG),
        (Stage.TIME, Kind.HUNG),
    ]
    verdicts = ("compile", "runtime", "correctness", "timeout")
    path = written(tmp_path, result(1), *(result(i + 2, invalidity=v) for i, v in enumerate(verdicts)))
    first = t4.read(path)
    assert [(t.outcome.stage, t.outcome.kind) for t in first.trials if isinstance(t.outcome, Failure)] == kinds
    t4.write(first, path)
    assert t4.read(path).trials == first.trials


def test_what_breaks_constraints_or_comes_again_is_left_out_and_said(tmp_path) -> None:
    read = t4.read(written(tmp_path, result(1), result(2, invalidity="constraints"), result(1, 9.0)))
    assert [trial.seconds for trial in read.trials] == [0.002]
    assert len(read.notes) == 2


@pytest.mark.parametrize(
    ("unit", "scale"), [("seconds", 1), ("ms", 1e-3), ("microseconds", 1e-6), ("Nanoseconds", 1e-9)]
)
def test_times_are_read_in_the_unit_the_file_names(unit, scale, tmp_path) -> None:
    (trial,) = t4.read(written(tmp_path, result(1), unit=unit)).trials
    assert trial.seconds == pytest.approx(2.0 * scale)
    assert trial.build_seconds == pytest.approx(1.5 * scale)
    assert trial.run_seconds == pytest.approx(4.0 * scale)


def test_a_measurement_in_its_own_unit_is_read_in_that_one(tmp_path) -> None:
    one = result(1, measurements=[{"name": "time", "value": 2.0, "unit": "us"}])
    (trial,) = t4.read(written(tmp_path, one, unit="seconds")).trials
    assert (trial.seconds, trial.build_seconds) == (pytest.approx(2e-6), pytest.approx(1.5))


def test_without_a_measured_time_the_mean_of_the_runs_holds(tmp_path) -> None:
    (trial,) = t4.read(written(tmp_path, result(1, measurements=[{"name": "GFLOP/s", "value": 7}]))).trials
    assert trial.seconds == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([], "no results"),
        ([7], "result 0 should be an object"),
        ([result(1), result(None)], "result 1: x should be a number"),
        ([result(1), {**result(2), "configuration": {"x": 2}}], "result 1 does not set 'y'"),
        ([result(1, invalidity="sulking")], "invalidity 'sulking' is not known"),
        ([result(1, times=7)], "result 0: times should be an object"),
        ([result(1, measurements=[], times={})], "no measurement `time` and no runtimes"),
        ([result(1, measurements=[{"name": "time", "value": 1, "unit": "parsec"}])], "the unit 'parsec' is not known"),
        ([result(float("nan"))], "x should be a number"),
    ],
)
def test_damaged_results_are_refused_with_what_is_wrong_and_where(results, says, tmp_path) -> None:
    with pytest.raises(WireError, match=says):
        t4.read(written(tmp_path, *results))


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 10_000_000))
    monkeypatch.setattr(untrusted, "MAX_BYTES", 1 << 20)
    with pytest.raises(WireError, match="more than 1 MB"):
        t4.read(path)


def test_a_truncated_archive_is_damaged(table, tmp_path) -> None:
    path = tmp_path / "one_T4.json.gz"
    t4.write(table, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(WireError, match="damaged"):
        t4.read(path)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[1, 2, 4]", [1, 2, 4]),
        ("[1, 2] + list(range(32, 97, 32))", [1, 2, 32, 64, 96]),
        ("[2**i for i in range(0, 5)]", [1, 2, 4, 8, 16]),
        ("[i*16 - 1 for i in [1, 2]]", [15, 31]),
        ("range(3)", [0, 1, 2]),
        ("(-0.5, True, 'a')", [-0.5, True, "a"]),
    ],
)
def test_values_written_as_python_are_computed_not_run(text, meant) -> None:
    assert value_lists.parse_values(text, "here") == meant


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "[x for x in ().__class__.__bases__]", "open('x')", "[].append(1)", "7",
        "[]", "range(10**12)", "[9**9**9]", "[2**i for i in range(99999)]", "list(range(99999)) + list(range(99999))",
        "[[1] for i in range(3)]", "[", "(" * 5000, "-" * 90000 + "1", "['a' * 10**9]", "[1 // 0]", "[lambda: 1]",
        "[range(5) for i in range(99999)]",
    ],
)  # fmt: skip
def test_anything_else_than_a_list_of_values_is_refused(text) -> None:
    with pytest.raises(WireError, match="here"):
        value_lists.parse_values(text, "here")


def test_recordings_take_the_constraints_of_the_input_with_their_parameters(tmp_path) -> None:
    first = written(tmp_path, result(1), result(2))
    second = written(tmp_path, result(1), name="A4000_T4.json")
    (tmp_path / "input.json").write_text(json.dumps(input_of()))
    (tmp_path / "other.json").write_text(json.dumps(input_of() | {"ConfigurationSpace": {"TuningParameters": [
        {"Name": "z", "Type": "int", "Values": "[1]"}]}}))  # fmt: skip
    found = hub.read_tables([tmp_path / "other.json", first, tmp_path / "input.json", second])
    assert [(t.kernel, t.device, t.constraints, t.sizes) for t in found] == [
        ("convolution", device, ("x < 4",), (64, 64)) for device in ("A100", "A4000")
    ]


def test_a_cache_and_an_input_meet_too(table, tmp_path) -> None:
    kernel_tuner.write(table, tmp_path / "cache.json")
    t4.write_input(table, tmp_path / "input.json", "scale.cu")
    (found,) = hub.read_tables([tmp_path / "cache.json", tmp_path / "input.json"])
    assert found.constraints == table.constraints


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        ([{"x": 1}], "neither a T4 file"),
        ([input_of()], "none of these files has results"),
        ([{"results": [result(1)]}, input_of(), input_of()], "2 inputs have the parameters"),
        ([{"results": [result(8)]}, input_of()], "records x=8, which is not a value of that parameter"),
        ([{"results": [result(1)]}, input_of(conditions=("x" * 3000,))], "at most 2,000 characters"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(contents, says, tmp_path) -> None:
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    with pytest.raises(WireError, match=says):
        hub.read_tables(sorted(tmp_path.glob("*.json")))
