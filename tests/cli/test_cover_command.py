import json
import os

import pytest
from click.testing import CliRunner

from tunewright import Config, Knob, Session, Space
from tunewright.cli.main import command
from tunewright.model.decision import Problem
from tunewright.model.signature import Signature
from tunewright.model.trial import Timing, Trial
from tunewright.shapes.export import from_json
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import KEY, other_key

TIMES = {4: (1.0, 2.0, 1.04), 8: (1.0, 1.5, 1.02), 64: (3.0, 1.0, 1.03), 500: (4.0, 1.0, 1.5)}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `tunewright cover` beside a store with four shapes of a kernel."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(tmp_path / "kept.sqlite")
    for m, row in TIMES.items():
        key = other_key(signature=Signature(KEY.signature.args, {"M": m}))
        store.record(key, [Trial(Config(x=x), Timing((t,), "cpu")) for x, t in enumerate(row)])
    return lambda *words: CliRunner().invoke(command, ["cover", "gemm", "--store", "kept.sqlite", *words])


def test_a_cover_is_printed_with_its_purpose_and_the_curve(run) -> None:
    said = run()
    assert said.exit_code == 0, said.output
    assert "2 configs of 3 for 4 shapes, each within 5% of its best; no fewer will do" in said.output
    assert "2 shapes: M 64 to 500" in said.output
    assert "M <= 22:" in said.output
    assert "1 config of 3" in run("--within", "60%").output


def test_a_rule_is_written_in_the_language_of_its_file(run) -> None:
    for name in ("rule.json", "rule.py", "rule.h"):
        assert run("--rule", name).exit_code == 0
        assert os.path.getsize(name) > 100
    with open("rule.json") as file:
        assert from_json(file.read()).config({"M": 300}) == Config(x=1)
    refused = run("--rule", "rule.txt")
    assert refused.exit_code == 2
    assert ".json, .py, .h" in refused.output


def test_a_rule_that_is_stored_serves_shapes_that_were_not_tuned(run) -> None:
    assert "frozen mode serves the rule" in run("--serve").output
    session = Session(mode="frozen", store="kept.sqlite")
    space = Space(Knob("x", [0, 1, 2]))
    keys = [other_key(signature=Signature(KEY.signature.args, {"M": m})) for m in (7, 300, 3000)]
    found = [session.lookup_or_policy(Problem(key, space, Config(x=0))) for key in keys]
    assert [(d.config["x"], str(d.tier)) for d in found] == [(2, "rule"), (1, "rule"), (0, "default")]
    shown = CliRunner().invoke(command, ["show", "gemm", "--store", "kept.sqlite"])
    assert "a rule over M" in shown.output


def test_json_has_all_of_it(run) -> None:
    said = json.loads(run("--json").stdout)
    assert said["is_smallest"] is True
    assert [one["shapes"] for one in said["configs"]] == [[{"M": 64}, {"M": 500}], [{"M": 4}, {"M": 8}]]
    assert len(said["curve"]) == 3
    assert said["rule"]["tree"]["at_most"] == 22


def test_a_kernel_without_trials_is_told_what_to_do(run) -> None:
    said = CliRunner().invoke(command, ["cover", "absent", "--store", "kept.sqlite"])
    assert said.exit_code != 0
    assert "tunewright tune" in str(said.exception or said.output) + said.output


def test_a_kernel_may_be_named_as_other_commands_take_it(run) -> None:
    said = CliRunner().invoke(command, ["cover", "gemm.py:gemm", "--store", "kept.sqlite"])
    assert said.exit_code == 0, said.output
    assert said.output == run().output
