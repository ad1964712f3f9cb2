"""The workflow of docs/bench: its steps are commands that there are."""

import shlex
from pathlib import Path

import pytest

from tunewright.cli.bench import bench

FILE = Path(__file__).parent.parent.parent / "docs" / "bench" / "action.yml"


def test_every_step_that_runs_us_uses_options_that_there_are() -> None:
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load(FILE.read_text())["jobs"]["compare"]["steps"]
    ours = [step["run"] for step in steps if step.get("run", "").startswith("tunewright")]
    assert len(ours) == 2
    for line in ours:
        words = shlex.split(line.partition("|")[0])[1:]
        found = bench.commands["compare" if "compare" in words else "run"]
        known = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
        assert found.make_context("x", [word for word in words if word not in ("bench", "compare")]).params
    assert any("--live before after" in line for line in ours)


def test_the_pipe_does_not_swallow_the_exit_status() -> None:
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load(FILE.read_text())["jobs"]["compare"]["steps"]
    piped = [step for step in steps if "| tee" in step.get("run", "")]
    assert piped
    assert all(
        step["shell"] == "bash" for step in piped
    )  # GitHub runs `bash` with -o pipefail, the default shell without
