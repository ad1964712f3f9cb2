import json
from pathlib import Path

from click.testing import CliRunner

from tunewright.cli.main import command

SUBJECTS = Path(__file__).parent / "subjects"


def run(*words):
    return CliRunner().invoke(command, ["torch", "doctor", *map(str, words)])


def test_a_model_in_a_file_is_looked_at():
    done = run(f"{SUBJECTS / 'printing.py'}:make", "--backend", "eager")
    assert done.exit_code == 0, done.output
    assert "graph break: print" in done.output
    assert "printing.py:15" in done.output
    assert done.output.count("after the first layer") == 1, "its line is shown; what it prints is not"


def test_json_is_one_value_and_calls_are_what_time_is_reckoned_for():
    diagnosis = json.loads(run(f"{SUBJECTS / 'item.py'}:make", "--backend", "eager", "--calls", 5, "--json").stdout)
    assert diagnosis["calls"] == 5
    (item,) = [one for one in diagnosis["symptoms"] if one["cause"] == "item"]
    assert item["stake"] == item["once"] + 5 * item["each"]


def test_a_page_is_written(tmp_path):
    done = run(f"{SUBJECTS / 'branch.py'}:make", "--backend", "eager", "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "torch.where" in (tmp_path / "page.html").read_text()


def test_a_file_that_is_not_there_is_wrong_use():
    assert "no file nowhere.py" in run("nowhere.py:make").output
    assert "names no function" in run("nowhere.py").output
