"""The clock of tuning on simulated devices (rung 2): short launches, and what disturbs a card in the evidence."""

import pytest
import torch
import triton
import triton.language as tl

import tunewright as tw
from tunewright.backends.gpu_state import GpuState
from tunewright.testing.hostile_device import HostileDriver, Misbehavior, hostile_device
from tunewright.testing.triton_driver import A100, FakeDriver, fake_driver
from tunewright.triton import adapter, autotune


@triton.jit
def short(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n), at < n)


CONFIGS = [triton.Config({"BLOCK": block}, num_warps=1) for block in (32, 64, 128)]


def gap(number: int) -> float:
    """The host takes between 15 and 45 us, which has nothing to do with the config."""
    return 1.5e-5 + 3e-5 * (number * 7919 % 101) / 101


def tuned_on(driver) -> tuple[int, tw.Session]:
    kernel = autotune(CONFIGS, ["n"])(short)
    kernel[(4,)](torch.ones(100), torch.zeros(100), 100)
    return kernel.best_config.kwargs["BLOCK"], tw.current_session()


@pytest.mark.parametrize("best", [32, 64, 128])
def test_short_launches_are_ordered_right_though_the_host_takes_longer(best):
    seconds = {block: 5e-6 if block == best else 5.3e-6 for block in (32, 64, 128)}
    misbehavior = Misbehavior(host_gap=gap)
    driver = HostileDriver(A100, misbehavior=misbehavior, seconds=lambda launch: seconds[launch.config["BLOCK"]])
    with hostile_device(driver):
        assert tuned_on(driver)[0] == best
    (decision,) = tw.current_session().store.decisions()
    assert decision.evidence.seconds == pytest.approx(5e-6)


def test_without_a_pause_the_host_would_be_timed(monkeypatch):
    monkeypatch.setattr(adapter.EventClock, "pause", lambda self: None)
    driver = HostileDriver(A100, misbehavior=Misbehavior(host_gap=gap), seconds=lambda launch: 5e-6)
    with hostile_device(driver):
        tuned_on(driver)
    (decision,) = tw.current_session().store.decisions()
    assert decision.evidence.seconds > 1.5e-5


def test_before_long_launches_the_device_does_not_pause():
    with hostile_device(HostileDriver(A100, seconds=lambda launch: 1e-3)) as driver:
        tuned_on(driver)
    assert driver.pauses <= 3 * len(CONFIGS)  # the first launch of each candidate, whose time is not known yet
    assert len(driver.launches) > 30 * len(CONFIGS)


def test_what_disturbed_the_card_is_in_the_evidence():
    class HotDriver(FakeDriver):
        def gpu_states(self):
            hot = GpuState(A100.name, slowed_by=("its temperature (by the hardware)",))
            return [hot, GpuState("another card", others=(1,))]

    with fake_driver(HotDriver(A100)):
        tuned_on(None)
    (decision,) = tw.current_session().store.decisions()
    sentence = f"{A100.name} is slowed down by its temperature (by the hardware)"
    assert decision.evidence.conditions.gpu == (sentence,)
    assert sentence in decision.evidence.conditions.complaints()


def test_a_card_that_nothing_disturbs_leaves_no_note():
    with fake_driver(FakeDriver(A100)):
        tuned_on(None)
    (decision,) = tw.current_session().store.decisions()
    assert decision.evidence.conditions.gpu == ()
