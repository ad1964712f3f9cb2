"""Memory of the device during tuning and after it, on a device that counts it; the garbage collector is off."""

import gc
from contextlib import suppress

import pytest
import torch

import tunewright as tw
from tunewright.testing.hostile_device import REFUSED, HostileDriver, Misbehavior, hostile_device
from tunewright.testing.triton_driver import A100

KERNEL = """
import triton, triton.language as tl

@triton.autotune(
    configs=[triton.Config({{"BLOCK": b}}, num_warps=w) for b in (64, 128) for w in (1, 2)], key=["n"]
)
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {body}
"""
PURE = "tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, at < n), at < n)"
IN_PLACE = "tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) + tl.load(out_ptr + at, at < n), at < n)"
SIZE = 1 << 22
"""Bytes of each of the two arguments, and of the buffer that flushes caches."""


@pytest.fixture(autouse=True)
def without_garbage_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def double(launch):
    torch.mul(launch.args[0], 2, out=launch.args[1])


def near(launch) -> float:
    """Times that are so near each other that all configs are raced."""
    return 1e-4 * (1 + launch.config["num_warps"] / 1000)


def tune(kernel, *, effect=None, fault=lambda launch: None, memory=None) -> tuple[HostileDriver, torch.Tensor]:
    """Calls a kernel on two arguments, which are counted before; returns the driver, whose peak is that of the call."""
    x, out = torch.ones(SIZE // 4), torch.ones(SIZE // 4)
    misbehavior = Misbehavior(fault=fault, memory=memory, flush_bytes=SIZE)
    with hostile_device(HostileDriver(A100, misbehavior=misbehavior, effect=effect, seconds=near)) as driver:
        driver.adopt(x, out)
        assert driver.allocated == 2 * SIZE
        kernel[(4,)](x, out, SIZE // 4)
        assert driver.allocated == 2 * SIZE, "tuning has left something behind"
    return driver, out


def test_pure_outputs_are_not_copied_and_there_is_one_buffer(written):
    driver, _ = tune(written(KERNEL.format(body=PURE)).kernel)
    assert len(driver.launches) > 100
    assert driver.peak == 3 * SIZE


def test_what_is_read_and_stored_to_is_copied_once(written):
    driver, _ = tune(written(KERNEL.format(body=IN_PLACE)).kernel)
    assert driver.peak == 4 * SIZE


@pytest.mark.parametrize("spare", [SIZE // 10, 3 * SIZE, 64 * SIZE])
@pytest.mark.slow
def test_copies_to_judge_results_take_half_of_what_is_free(written, spare):
    memory = 3 * SIZE + spare
    driver, out = tune(written(KERNEL.format(body=PURE)).kernel, effect=double, memory=memory)
    assert out.eq(2).all()
    assert driver.peak <= 1.1 * (3 * SIZE + spare // 2)
    store = tw.current_session().store
    assert all(trial.works for key in list(store.keys()) for trial in store.trials(key))


@pytest.mark.slow
def test_configs_that_fail_leave_nothing_either(written):
    driver, _ = tune(
        written(KERNEL.format(body=PURE)).kernel,
        effect=double,
        fault=lambda launch: REFUSED if launch.config["num_warps"] == 2 else None,
    )
    assert driver.launches


def test_a_search_in_which_nothing_works_leaves_nothing(written):
    kernel, x, out = written(KERNEL.format(body=PURE)).kernel, torch.ones(SIZE // 4), torch.ones(SIZE // 4)
    misbehavior = Misbehavior(fault=lambda launch: REFUSED, flush_bytes=SIZE)
    with hostile_device(HostileDriver(A100, misbehavior=misbehavior, effect=double)) as driver:
        driver.adopt(x, out)
        with suppress(tw.NothingWorked):
            kernel[(4,)](x, out, SIZE // 4)
        assert driver.allocated == 2 * SIZE


def test_too_little_memory_for_the_buffer_is_said(written):
    x, out = torch.ones(SIZE // 4), torch.ones(SIZE // 4)
    kernel, misbehavior = written(KERNEL.format(body=PURE)).kernel, Misbehavior(memory=2 * SIZE, flush_bytes=SIZE)
    with hostile_device(HostileDriver(A100, misbehavior=misbehavior)) as driver:
        driver.adopt(x, out)
        with pytest.raises(tw.TunewrightError, match=r"no memory for the buffer.* Free some"):
            kernel[(4,)](x, out, SIZE // 4)
    assert not list(tw.current_session().store.keys())
