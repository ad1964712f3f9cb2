"""CUDA kernels on a GPU: the real `cuda.bindings`, on a driver whose launches the emulator executes."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tunewright.cuda.driver import find_card, require_card
from tunewright.errors import PluginError

PROGRAM = Path(__file__).parent / "card_program.py"

pytestmark = pytest.mark.skipif(
    shutil.which("nvcc") is None or importlib.util.find_spec("cuda") is None, reason="needs nvcc and cuda.bindings"
)


@pytest.fixture
def use(tmp_path):
    """Runs a part of the program in a process of its own, and returns what it prints."""

    def run(part):
        environ = {**os.environ, "CARD_PROGRAM": str(tmp_path)}
        done = subprocess.run([sys.executable, PROGRAM, part], capture_output=True, text=True, check=False, env=environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_call_copies_arrays_to_the_gpu_and_back(use) -> None:
    found = use("call")
    assert found["right"]
    assert (found["device"], found["arch"]) == ("Emulated GPU", "sm_90")
    assert found["launches"] == [["scale", [4, 1, 1], [32, 1, 1], 128]]


@pytest.mark.slow
def test_the_fastest_config_wins_by_the_clock_of_the_gpu_and_one_that_breaks_it_costs_a_worker(use) -> None:
    found = use("tune")
    assert found["config"] == {"WIDTH": 128, "FAULT": 0}
    assert found["clocks"] == ["gpu graph"]
    for config, (kind, reason) in found["failed"].items():
        assert kind == ("crashed" if "FAULT=1" in config else "wrong")
        assert kind == "wrong" or "CUDA_ERROR_ILLEGAL_ADDRESS" in reason
    assert {kind for kind, _ in found["failed"].values()} == {"crashed", "wrong"}


def test_many_launches_are_replayed_from_a_graph_and_leave_their_results(use) -> None:
    found = use("graph")
    assert found["right"]
    assert found["once"] == pytest.approx(4e-2 / 64, rel=1e-5), "what a launch costs the host was counted"
    assert found["order"] == ["copy", "copy", "fill", "launch", "copy"], "the flush was undone by a copy"
    assert found["kept"] == 0
    assert found["few"] == pytest.approx(3 * 4e-2 / 64, rel=1e-5)
    assert found["many"] == pytest.approx(130 * 4e-2 / 64, rel=1e-5)


def test_what_is_no_plain_number_is_refused(use) -> None:
    found = use("numbers")
    assert "2 bytes cannot be passed; pass a pointer" in found["half"]
    assert "12 bytes cannot be passed; pass a pointer" in found["three"]
    assert found["bool"] == 1.0


def test_what_breaks_the_context_is_told_with_what_to_do(use) -> None:
    found = use("lost")
    assert found["error"] == "DeviceLost"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in found["text"]
    assert "cuda check" in found["text"]


def test_an_incumbent_that_breaks_the_gpu_in_the_trial_of_another_is_to_blame(use) -> None:
    assert use("blame") == 2 * ["FAULT=0 WIDTH=64"]


def test_code_for_another_gpu_is_emulated(use) -> None:
    found = use("target")
    assert found["runs"] == {"sm_90": True, "sm_90a": True, "sm_80": False, "sm_89": False, "sm_100": False}
    assert found["untimed"] == [True, True, False]
    assert found["newest"] == {"sm_75": "sm_80", "sm_87": "sm_86", "sm_89": "sm_89", "sm_103": "sm_100"}


@pytest.mark.skipif(find_card() is not None, reason="there is a GPU")
def test_without_a_gpu_one_that_is_asked_for_is_an_error_that_says_what_to_install() -> None:
    with pytest.raises(PluginError, match=r"no GPU was found; install its driver.*tunewright\[cuda\]"):
        require_card()
