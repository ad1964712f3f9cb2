"""From the machine that compiled to the one that launches: rung 1 there, rung 2 here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent / "kernels"

COMMON = """
import importlib, json, sys
from pathlib import Path
sys.path.insert(0, {kernels!r})
import tunewright as tw, tunewright.triton
from tunewright.testing.triton_driver import FakeDriver, fake_driver
tunewright.triton.install()
names = {names!r} or sorted(path.stem for path in Path({kernels!r}).glob("*.py"))
calls = [(*call, name) for name in names for call in importlib.import_module(name).calls()]
def launch():
    with fake_driver(FakeDriver()) as driver:
        for kernel, grid, args, given, _ in calls:
            kernel[grid](*args, **given)
        return driver
"""

TUNE = """
from tunewright.triton.static import prebuild
from tunewright.triton.static.compile_worker import LaunchArguments
from tunewright.triton.static.kernels import unwrap_kernel
cache = tw.current_session().settings.cache_path
rows = []
for kernel, grid, args, given, _ in calls:
    plan = prebuild.plan_prebuild(unwrap_kernel(kernel), LaunchArguments(args, given), ["sm_80"])
    rows += prebuild.prebuild(plan, cache)
launch()
print(json.dumps({"kept": sum(row.keep for row in rows), "calls": len(calls)}))
"""

USE = """
tw.seal(raises=False)
launch()
print(json.dumps(tw.current_session().counts))
"""


def run(text, folder, names=(), **settings):
    """What a program says that runs in a process, a home and a Triton cache of its own."""
    folder.mkdir(exist_ok=True)
    program = COMMON.format(kernels=str(KERNELS), names=list(names)) + text
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("TUNEWRIGHT", "TRITON"))}
    told = {f"TUNEWRIGHT_{name}": str(value) for name, value in {"CACHE": folder / "cache", **settings}.items()}
    triton = {"TRITON_CACHE_DIR": str(folder / "triton"), "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**ours, **told, **triton}, cwd=folder, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def shipped(tmp_path, names=()):
    """A bundle of what was prebuilt and tuned elsewhere: its pin, and how much that was."""
    there = tmp_path / "there"
    made = run(TUNE, there, names)
    environ = {**os.environ, "TUNEWRIGHT_CACHE": str(there / "cache")}
    command = [sys.executable, "-m", "tunewright", "bundle", "build", str(tmp_path / "some.bundle"), "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)
    told = json.loads(done.stdout)
    assert told["builds"] == made["kept"] > 0
    return told["digest"], made


@pytest.mark.slow
def test_a_bundle_brings_what_was_compiled_and_without_it_triton_compiles(tmp_path) -> None:
    pin, made = shipped(tmp_path, ["softmax"])
    counts = run(USE, tmp_path / "here", ["softmax"], MODE="strict", STORE=f"bundle:{tmp_path}/some.bundle?pin={pin}")
    assert counts == {"exact": made["calls"]}
    counts = run(USE, tmp_path / "bare", ["softmax"], MODE="frozen")
    assert counts["compiles"] >= 1
    assert counts["default"] == made["calls"]


@pytest.mark.slow
def test_every_kernel_of_the_suite_launches_with_no_compile_and_no_measurement(tmp_path) -> None:
    pin, made = shipped(tmp_path)
    counts = run(USE, tmp_path / "here", MODE="strict", STORE=f"bundle:{tmp_path}/some.bundle?pin={pin}")
    assert made["calls"] >= 12
    assert counts.get("compiles", 0) == counts.get("measurements", 0) == 0
    assert sum(counts.values()) == counts["exact"]


MATMUL = """
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, N: tl.constexpr, M: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, 64, 16):
        depth = k + tl.arange(0, 16)
        left = tl.load(a + rows[:, None] * 64 + depth[None, :])
        right = tl.load(b + depth[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)
"""


@pytest.mark.slow
def test_what_the_resource_model_calls_hopeless_is_not_compiled_unless_asked(written, driver) -> None:
    import torch

    import tunewright as tw
    from tunewright.triton import autotune

    space = tw.Space(tw.Knob("M", [32, 256]), tw.Knob("N", [32, 256]), tw.Knob("num_warps", [1, 4]))
    a, b, c = torch.ones(256, 64).half(), torch.ones(64, 256).half(), torch.zeros(256, 256)
    for model, fewest in ((True, 1), (False, 8)):
        jit = written(MATMUL, name=f"product_{model}").product
        kernel = autotune(space=space, key=[], model=model, session=tw.Session(store="memory:"))(jit)
        kernel[(1,)](a, b, c)
        tried = kernel.session.counts["measurements"]
        assert fewest <= tried <= (7 if model else 8)
        sizes = {trial.config["M"] * trial.config["N"] // trial.config["num_warps"] for trial in trials(kernel)}
        assert (256 * 256 in sizes) is not model


def trials(kernel):
    store = kernel.session.store
    return [trial for key in store.keys() for trial in store.trials(key)]  # noqa: SIM118 - a store is no mapping
