"""The command `tunewright triton prebuild` (rung 1), and launches that find what it made (rung 2)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
import sample_kernels as kernels
from click.testing import CliRunner

from tunewright.cli.main import command
from tunewright.errors import TunewrightError
from tunewright.triton.static import heatmap
from tunewright.triton.static.artifacts import ArtifactCache, install_into_triton_cache

FILE = Path(kernels.__file__)


def run(*words, status=0):
    done = CliRunner().invoke(command, ["triton", "prebuild", *map(str, words)])
    assert done.exit_code == status, done.output
    return done.output


def told(*words, status=0):
    output = run(*words, "--json", status=status)
    return json.loads(output[output.index("{") :].splitlines()[0])


def elsewhere(tmp_path):
    """Whether launches in a process of their own found everything compiled."""
    done = subprocess.run(
        [sys.executable, FILE.parent / "launch_elsewhere.py"],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_survivors_are_compiled_and_the_hopeless_dropped_with_the_reason(cache):
    found = told(f"{FILE}:tuned", "--targets", "sm_80", "--signature", kernels.PRODUCT)
    assert [found["rung"], found["planned"], found["dropped_before_compiling"]] == [1, 2, 1]
    dropped, kept = sorted(found["rows"], key=lambda row: row["keep"])
    assert dropped["by"] == "model"
    assert "it spills" in dropped["reasons"][0]
    assert kept["resources"]["registers"] > 8
    assert ArtifactCache(cache).find(kept["key"]).digest == kept["digest"]
    again = told(f"{FILE}:tuned", "--targets", "sm_80", "--signature", kernels.PRODUCT)
    assert [row for row in again["rows"] if row["keep"]] == [kept]


@pytest.mark.slow
def test_what_was_built_here_is_launched_elsewhere_without_a_compile(cache, tmp_path):
    pytest.importorskip("torch")
    run(f"{FILE}:tuned", "--targets", "sm_80", "--signature", kernels.PRODUCT)
    run(f"{FILE}:added", "--targets", "sm_80", "--install", tmp_path / "filled")  # arguments as the file declares them
    shelf = ArtifactCache(cache)
    bodies = [shelf.read(label.key) for label in shelf.records()]
    assert install_into_triton_cache(bodies, tmp_path / "filled") == 3
    assert elsewhere(tmp_path / "filled") == [True, True, True]
    assert elsewhere(tmp_path / "empty") == [False, False, False]


def test_a_compiler_that_takes_too_long_is_ended_and_its_config_dropped(cache):
    found = told(f"{FILE}:tuned", "--targets", "sm_80", "--signature", kernels.PRODUCT, "--no-model",
                 "--deadline", "0.1", status=1)  # fmt: skip
    assert {row["by"] for row in found["rows"]} == {"hung"}
    assert "did not end within 0.1 s" in found["rows"][0]["reasons"][0]
    assert not list(ArtifactCache(cache).records())


@pytest.mark.slow
def test_an_interrupted_run_keeps_what_is_done(cache, tmp_path, wait_until):
    words = [f"{FILE}:added", "--targets", "sm_80,sm_90,sm_100,gfx942", "--jobs", "1"]
    child = subprocess.Popen([sys.executable, "-m", "tunewright", "triton", "prebuild", *words],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    wait_until(lambda: list(cache.glob("artifacts/??/*.json")), "the first artifact", seconds=300)
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=300)
    assert child.returncode == 130
    assert "stopped; results are kept" in said
    done = len(list(ArtifactCache(cache).records()))
    assert 0 < done < 8
    assert len(told(*words)["rows"]) == 8


def test_only_so_many_configs_are_drawn_when_asked(cache):
    found = told(f"{FILE}:added", "--targets", "sm_80", "--configs", "1")
    assert len(found["rows"]) == 1
    assert found["modelled"] is False


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([f"{FILE}:tuned"], "prebuild_args() knows added, not tuned"),
        ([f"{FILE}:nothing"], "defines no 'nothing'"),
        (["nowhere.py:k"], "no file nowhere.py"),
        ([f"{FILE}"], "names no kernel"),
        ([f"{FILE}:added", "--targets", "sm_13"], "unknown target 'sm_13'"),
        ([f"{FILE}:added", "--signature", "*fp32"], "pass the arguments of a real call"),
        ([f"{FILE}:product", "--signature", "*fp16"], "cannot be called with these arguments"),
    ],
)
def test_wrong_use_says_what_to_do(words, says, cache):
    with pytest.raises((click.UsageError, TunewrightError)) as caught:
        command(["triton", "prebuild", *words], standalone_mode=False)
    assert says in str(caught.value)


@pytest.mark.parametrize("suffix", ["png", "html"])
def test_the_heat_map_shows_what_is_kept_and_what_is_dropped(suffix, tmp_path):
    pytest.importorskip("matplotlib" if suffix == "png" else "plotly")
    points = [
        heatmap.OccupancyPoint("sm_80", {"BLOCK_M": m, "BLOCK_N": n, "num_warps": w}, None if m * n > 4096 else 1 / w)
        for m in (32, 64, 128) for n in (32, 64) for w in (4, 8)
    ]  # fmt: skip
    (panel,) = heatmap.make_panels(points)
    assert (panel.x, panel.y) == ("BLOCK_M", "BLOCK_N")
    assert panel.cells == [[0.25, 0.25, 0.25], [0.25, 0.25, float("inf")]]
    heatmap.draw_heatmap(tmp_path / f"heat.{suffix}", "product", points)
    assert (tmp_path / f"heat.{suffix}").stat().st_size > 1000
