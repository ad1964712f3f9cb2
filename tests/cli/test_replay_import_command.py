"""`tunewright replay import`."""

import json

import pytest
from click.testing import CliRunner

from tunewright.backends.replay import Recording
from tunewright.cli.replay_import import import_
from tunewright.errors import NothingWorked, SpaceError, WireError


def results(count=4, conditions=None):
    one = {"times": {"compilation": 1000.0, "runtimes": []}, "correctness": 1}
    found = [
        one | {"configuration": {"x": x, "y": y}, "invalidity": "correct" if x + y else "compile"}
        | {"measurements": [{"name": "time", "value": float(1 + x + 10 * y), "unit": "ms"}]}
        for x in range(count)
        for y in (0, 1)
    ]  # fmt: skip
    return {"metadata": {"timeunit": "milliseconds"}, "results": found}


def space(*conditions, x="[0, 1, 2, 3, 4]"):
    return {
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": "x", "Type": "int", "Values": x},
                {"Name": "y", "Type": "int", "Values": "[0, 1]"},
            ],
            "Conditions": [{"Expression": text, "Parameters": []} for text in conditions],
        },
        "KernelSpecification": {"KernelName": "k"},
    }


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*contents, arguments=()):
        for number, content in enumerate(contents):
            (tmp_path / f"{number}.json").write_text(json.dumps(content))
        names = [f"{number}.json" for number in range(len(contents))]
        done = CliRunner().invoke(import_, [*names, "--out", "out", *arguments])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run


def test_it_writes_a_recording_and_says_what_it_read(call, tmp_path) -> None:
    done = call(results(), arguments=["--kernel", "conv", "--device", "../A 100"])
    head, row = done.output.splitlines()
    assert head.split() == ["recording", "configs", "of", "failed", "optimum", "median"]
    assert row.split() == ["conv-A_100", "8", "8", "1", "2", "ms", "11", "ms"]
    recording = Recording.read(tmp_path / "out" / "conv-A_100.parquet")
    assert (recording.kernel, recording.device) == ("conv", "../A 100")
    assert len(recording.trials) == recording.space.size == 8
    assert recording.best.seconds == pytest.approx(2e-3)
    assert recording.best.build_seconds == pytest.approx(1.0)


def test_constraints_of_an_input_are_kept(call, tmp_path) -> None:
    done = call(results(), space("x < 4"), arguments=["--kernel", "k", "--device", "d", "--json"])
    (said,) = json.loads(done.output)
    assert (said["configs"], said["space"], said["failed"]) == (8, 8, 1)
    recording = Recording.read(tmp_path / "out" / "k-d.parquet")
    assert recording.constraints == ("x < 4",)
    assert recording.space.combinations == 10


def test_a_recording_may_be_a_part_of_its_space(call) -> None:
    done = call(results(), space(), arguments=["--json"])
    assert [(said["configs"], said["space"]) for said in json.loads(done.output)] == [(8, 10)]


def test_a_recorded_config_that_breaks_a_constraint_is_named(call, tmp_path) -> None:
    with pytest.raises(WireError, match="x=3 y=0 breaks x < 3; omit the input file"):
        call(results(), space("x < 3"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text", ["__import__('os').system('touch ran')", "x.real == 1", "[q for q in (1,)]", "(lambda: 1)()"]
)
def test_a_constraint_is_arithmetic_and_never_run(text, call, tmp_path) -> None:
    with pytest.raises(SpaceError, match="plain arithmetic"):
        call(results(), space(text))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text", ["-" * 1900 + "x > 0", "not " * 480 + "x", "'a' * 99999999999 == x", "(1,) * 9999999 == x"]
)
def test_a_constraint_made_to_exhaust_us_is_refused(text, call) -> None:
    with pytest.raises(SpaceError, match=r"cannot read the rule|numbers alone"):
        call(results(), space(text))


def test_recordings_of_one_name_are_not_written_over_each_other(call) -> None:
    done = call(results(), results(2), arguments=["--device", "d"])
    assert done.exit_code == 2
    assert "would be written as" in done.output


def test_a_file_in_which_nothing_worked_is_refused(call) -> None:
    broken = results()
    for result in broken["results"]:
        result["invalidity"] = "runtime"
    with pytest.raises(NothingWorked, match="none of 8 configs has a time"):
        call(broken)
