"""`tunewright cuda check` says which configs are right, wrong or do not fit, and chooses none."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc of the CUDA toolkit is not installed")

FOLDER = Path(__file__).parents[2] / "tutorials" / "cuda"
GOOD, RACING, LARGE = "TILE=16,ROWS=8", "TILE=16,ROWS=8,BARRIER=0", "TILE=64,ROWS=32"


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")

    def run(*words):
        from tunewright.cli.main import command

        environ = {"TUNEWRIGHT_CACHE": str(cache), "TUNEWRIGHT_STORE": "memory:"}
        return CliRunner().invoke(command, ["cuda", "check", *words], env=environ)

    return run


def test_configs_are_right_wrong_or_do_not_fit(check) -> None:
    words = [word for config in (GOOD, RACING, LARGE) for word in ("--config", config)]
    done = check(f"{FOLDER / 'transpose.py'}:transpose", *words, "--shape", "M=20,N=36", "--json")
    assert done.exit_code == 1, done.output
    said = json.loads(done.stdout)
    assert (said["rung"], said["target"]) == ("emulated", "sm_90")
    assert said["outcomes"] == {"right": 1, "wrong": 1, "does not fit": 1, "does not compile": 0, "not executed": 0}
    good, racing, large = said["configs"]
    assert (good["outcome"], good["faults"], good["whole"]) == ("right", [], True)
    assert good["orders"] == ["ascending", "descending", "random"]
    assert good["counters"]["load_bytes"] == 20 * 36 * 4
    assert good["resources"]["shared"] == 16 * 17 * 4
    assert 0 < good["occupancy"] <= 1
    kinds = {fault["kind"] for fault in racing["faults"]}
    assert "data race" in kinds
    assert {fault["line"] for fault in racing["faults"]} <= {8, 16}
    assert {fault["file"] for fault in racing["faults"]} == {"transpose.cu"}
    assert "2,048 threads" in large["reason"]
    assert large["resources"] is None


def test_a_part_of_the_grid_is_compared_where_it_stored(check) -> None:
    target = f"{FOLDER / 'transpose.py'}:transpose"
    done = check(target, "--config", GOOD, "--shape", "M=20,N=36", "--blocks", "2", "--json")
    row = json.loads(done.stdout)["configs"][0]
    assert (done.exit_code, row["outcome"], row["blocks"], row["whole"]) == (0, "right", 2, False)


def test_the_table_says_that_nothing_was_timed(check) -> None:
    done = check(f"{FOLDER / 'transpose.py'}", "--config", GOOD, "--shape", "M=20,N=36")
    assert done.exit_code == 0, done.output
    assert "transpose for sm_90: 1 right" in done.stdout
    assert "nothing was timed" in done.stdout


def test_a_kernel_of_a_cuda_file_is_executed_without_a_reference(check) -> None:
    words = ["--config", "TILE=16,ROWS=8,PAD=1,BARRIER=1", "--grid", "3,2", "--block", "16,8", "--target", "sm_90"]
    place = f"{FOLDER / 'transpose.cu'}:transpose"
    done = check(place, *words, "--args", "*fp32[20x36],*fp32[36x20]=nan,20,36", "--json")
    said = json.loads(done.stdout)
    assert (done.exit_code, said["passes"], said["compared"]) == (0, True, False)
    assert said["resources"]["max_threads"] == 128
    done = check(place, *words, "--args", "*fp32[20x35],*fp32[36x20]=nan,20,36", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["faults"][0]["kind"] == "out of bounds"


def test_what_cannot_be_checked_is_told(check, tmp_path) -> None:
    assert "exclude each other" in check(f"{FOLDER / 'transpose.py'}", "--all", "--config", GOOD).output
    assert "has no space" in check(f"{FOLDER / 'transpose.cu'}:transpose", "--all").output
    (tmp_path / "plain.py").write_text(
        "import tunewright as tw\n@tw.tune(tw.Space(tw.Knob('a', [1])))\ndef f(x: tw.In('N'), *, a): ...\n"
    )
    assert "declare it with backend=tw.Cuda" in check(f"{tmp_path / 'plain.py'}:f").output
