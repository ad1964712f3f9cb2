"""The GitHub Action: its script fails for what is slower, and warns or fails where it is not known."""

import os
import subprocess
from pathlib import Path

import pytest

from tunewright.cli.race import race

ROOT = Path(__file__).resolve().parents[2]
ACTION, WORKFLOW = ROOT / ".github" / "actions" / "race" / "action.yml", ROOT / "docs" / "bench" / "gate.yml"
STUB = """#!/bin/sh
echo "$@" >> calls
for last; do :; done
case "$last" in *slow*) exit 1;; *unknown*) exit 3;; *broken*) exit 2;; esac
"""


@pytest.fixture
def run(tmp_path):
    yaml = pytest.importorskip("yaml")
    (step,) = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    (tmp_path / "tunewright").write_text(STUB)
    (tmp_path / "tunewright").chmod(0o755)

    def start(targets, **inputs):
        given = {"BASELINE": "main", "LIMIT": "3%", "SECONDS_EACH": "60", "UNKNOWN": "warn", **inputs}
        environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TARGETS": targets, **given}
        assert set(given) | {"TARGETS"} == set(step["env"])
        words = ["bash", "-c", step["run"]]
        return subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    return start


@pytest.mark.parametrize(
    ("targets", "inputs", "status", "said"),
    [
        ("a.py:fine\n\nb.py:fine\n", {}, 0, ""),
        ("a.py:fine\na.py:slow\nb.py:fine", {}, 1, "::error::a.py:slow is slower than at main"),
        ("a.py:unknown", {}, 0, "::warning::a.py:unknown"),
        ("a.py:unknown", {"UNKNOWN": "fail"}, 1, "::error::a.py:unknown"),
        ("a.py:broken", {}, 1, "::error::a.py:broken could not be raced"),
    ],
)
def test_the_script_ends_as_the_races_do(run, targets, inputs, status, said) -> None:
    done = run(targets, **inputs)
    assert done.returncode == status, done.stderr
    assert said in done.stdout


def test_every_target_is_raced_although_one_is_slower(run, tmp_path) -> None:
    run("a.py:slow\npython -m tool; touch hacked\nb.py:fine")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.partition(" -- ")[2] for call in calls] == ["a.py:slow", "python -m tool; touch hacked", "b.py:fine"]
    assert not (tmp_path / "hacked").exists()


def test_the_options_of_the_script_are_those_of_the_command(run, tmp_path) -> None:
    run("a.py:fine")
    known = {option for parameter in race.params for option in parameter.opts} | {"--"}
    assert {word for word in (tmp_path / "calls").read_text().split() if word.startswith("--")} <= known


def test_the_workflow_gives_only_inputs_that_there_are() -> None:
    yaml = pytest.importorskip("yaml")
    inputs = yaml.safe_load(ACTION.read_text())["inputs"]
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["race"]["steps"]
    (ours,) = [step for step in steps if step.get("uses", "").startswith("tunewright/")]
    assert ours["uses"].partition("@")[0] == "tunewright/tunewright/.github/actions/race"
    assert set(ours["with"]) <= set(inputs)
