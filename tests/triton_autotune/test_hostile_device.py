"""The hostile device itself: it fails as real ones do, and always in the same way."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tunewright.testing.hostile_device import (
    ABORT,
    DEVICE_ASSERT,
    HANG,
    ILLEGAL_ACCESS,
    REFUSED,
    STICKY,
    HostileDriver,
    Misbehavior,
    dying_compiler,
    hostile_device,
)
from tunewright.testing.triton_driver import A30, A100, Launch

GOOD, BAD = (Launch("k", (1, 1, 1), {"BLOCK": block}, 0, ()) for block in (32, 64))


def device(what=None, *cards, **options):
    misbehavior = Misbehavior(fault=lambda launch: what if launch.config["BLOCK"] == 64 else None, **options)
    return HostileDriver(*(cards or (A100,)), misbehavior=misbehavior, seconds=lambda launch: 1e-3)


@pytest.mark.parametrize("what", STICKY)
def test_an_error_surfaces_later_and_stays(what):
    with hostile_device(device(what)) as driver:
        driver.launch(GOOD)
        driver.synchronize()
        driver.launch(BAD)  # returns, as a launch does
        for _ in range(3):
            with pytest.raises(RuntimeError, match=f"CUDA error: {what}"):
                driver.synchronize()
            with pytest.raises(RuntimeError, match=what):
                driver.launch(GOOD)
            with pytest.raises(RuntimeError, match=what):
                torch.ones(3) + 1
        assert driver.is_lost
        assert len(driver.launches) == 2


def test_calls_that_do_not_wait_may_still_succeed():
    with hostile_device(device(ILLEGAL_ACCESS, delay=2)) as driver:
        driver.launch(BAD)
        driver.launch(GOOD)
        assert not driver.is_lost
        driver.launch(GOOD)
        with pytest.raises(RuntimeError, match=ILLEGAL_ACCESS):
            driver.launch(GOOD)
        assert driver.is_lost


def test_reading_a_tensor_waits_and_a_view_does_not():
    x = torch.ones(4)
    with hostile_device(device(DEVICE_ASSERT, delay=100)) as driver:
        driver.launch(BAD)
        assert x[1:].shape == (3,)
        with pytest.raises(RuntimeError, match=DEVICE_ASSERT):
            x.equal(x)


def test_another_device_goes_on():
    with hostile_device(device(ILLEGAL_ACCESS, A100, A30)) as driver:
        driver.launch(BAD)
        driver.set_current_device(1)
        driver.synchronize()
        driver.launch(GOOD)
        driver.set_current_device(0)
        with pytest.raises(RuntimeError, match=ILLEGAL_ACCESS):
            driver.synchronize()


def test_a_launch_that_is_refused_leaves_the_device_as_it_was():
    with hostile_device(device(REFUSED)) as driver:
        with pytest.raises(RuntimeError, match=REFUSED):
            driver.launch(BAD)
        driver.synchronize()
        driver.launch(GOOD)


def test_a_hang_is_noticed_by_whoever_waits():
    waits = []
    with hostile_device(device(HANG)) as driver:
        driver.waits_forever = lambda: waits.append(1)
        driver.launch(BAD)
        assert waits == []
        driver.synchronize()
    assert waits == [1]


def test_memory_is_counted_limited_and_given_back():
    x = torch.ones(1000)
    gc.disable()
    try:
        with hostile_device(device(memory=10_000)) as driver:
            driver.adopt(x)
            copy = x.clone()
            view = copy[5:]
            assert driver.allocated == 8000
            with pytest.raises(torch.OutOfMemoryError, match="2000 are free"):
                x.clone()
            host = x.to("cpu", copy=True)
            assert driver.allocated == 8000
            assert driver.get_device_interface().mem_get_info() == (2000, 10_000)
            del copy
            assert driver.allocated == 8000
            del view
            assert (driver.allocated, driver.peak) == (4000, 8000)
            driver.reset_peak()
            assert driver.peak == 4000
            del host
    finally:
        gc.enable()


def test_the_buffer_that_flushes_caches_takes_memory():
    with hostile_device(device(memory=5000, flush_bytes=4000)) as driver:
        first = driver.get_empty_cache_for_benchmark()
        with pytest.raises(torch.OutOfMemoryError):
            driver.get_empty_cache_for_benchmark()
        assert first.nbytes == 4000


def test_a_capture_executes_nothing_and_forbids_to_wait():
    with hostile_device(device()) as driver:
        with driver.capture() as graph:
            assert driver.get_device_interface().is_current_stream_capturing()
            driver.launch(GOOD)
            with driver.stream(1):
                assert not driver.get_device_interface().is_current_stream_capturing()
        assert (len(graph.launches), driver.launches) == (1, [])
        with (
            pytest.raises(RuntimeError, match="previous error during capture"),
            driver.capture(),
            pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
        ):
            driver.synchronize()
        driver.synchronize()


def test_streams_have_clocks_of_their_own():
    with hostile_device(device()) as driver:
        driver.launch(GOOD)
        with driver.stream(1):
            assert driver.now == 0
            driver.launch(GOOD)
            driver.launch(GOOD)
            assert driver.now == pytest.approx(2e-3)
        assert driver.now == pytest.approx(1e-3)
        assert driver.launch_streams == [0, 1, 1]


def test_clocks_drift_and_advance_in_steps():
    with hostile_device(device(drift=lambda now: 1 + now, resolution=5e-3)) as driver:
        start, end = (driver.get_device_interface().Event() for _ in range(2))
        start.record()
        for _ in range(9):
            driver.launch(GOOD)
        end.record()
        assert driver.now > 9e-3
        assert start.elapsed_time(end) == pytest.approx(5)


def test_an_abort_ends_the_process():
    code = (
        "from tunewright.testing.hostile_device import *\n"
        "from tunewright.testing.triton_driver import Launch\n"
        f"with hostile_device(HostileDriver(misbehavior=Misbehavior(fault=lambda launch: {ABORT!r}))) as driver:\n"
        "    driver.launch(Launch('k', (1, 1, 1), {}, 0, ()))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == -6


def test_a_compiler_dies_on_some_code_only(tmp_path):
    compiler = dying_compiler(tmp_path, ".reqntid 256")
    (tmp_path / "bad.ptx").write_text(".reqntid 256\n")
    assert "release" in subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    assert subprocess.run([compiler, tmp_path / "bad.ptx"], capture_output=True, check=False).returncode == -6
    assert Path(compiler).name == "ptxas"
