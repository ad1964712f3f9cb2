"""A device that fails during tuning: who is blamed, what is stored, and what the next process does."""

import pytest
import torch

import tunewright as tw
from tunewright.errors import DeviceLost
from tunewright.model.event import FinalRaceStarted
from tunewright.model.trial import Failure, Kind
from tunewright.testing.hostile_device import (
    ILLEGAL_ACCESS,
    REFUSED,
    STICKY,
    HostileDriver,
    Misbehavior,
    dying_compiler,
    hostile_device,
)
from tunewright.testing.triton_driver import A100, Launch

SCALE = """
import triton, triton.language as tl

@triton.autotune(configs=[triton.Config({{"BLOCK": b}}, num_warps=1) for b in (32, 64, 128)], key=["n"]{options})
@triton.jit
def scale(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, at < n) + seed, at < n)
"""
BLOCKS = (32, 64, 128)


def compute(launch: Launch) -> None:
    """What the kernel does."""
    x, out, n, seed = launch.args[:4]
    out[:n] = 2 * x[:n] + seed


def driver_with(bad: int, what: str = ILLEGAL_ACCESS, **options) -> HostileDriver:
    misbehavior = Misbehavior(fault=lambda launch: what if launch.config["BLOCK"] == bad else None, **options)
    return HostileDriver(
        A100, misbehavior=misbehavior, effect=compute, seconds=lambda launch: 1e-3 / launch.config["BLOCK"]
    )


def call(kernel, x=None, out=None) -> torch.Tensor:
    x, out = torch.ones(100) if x is None else x, torch.zeros(100) if out is None else out
    kernel[(4,)](x, out, 100, 3)
    return out


def stored() -> tuple[list, dict]:
    """All decisions, and for each block how its last trial failed; None if it worked."""
    store = tw.configure().store
    trials = {}
    for key in list(store.keys()):
        for trial in store.trials(key):
            trials[trial.config["BLOCK"]] = trial.outcome.kind if isinstance(trial.outcome, Failure) else None
    return list(store.decisions()), trials


@pytest.mark.parametrize("what", STICKY)
@pytest.mark.parametrize("delay", [0, 7])
@pytest.mark.parametrize("bad", BLOCKS)
def test_the_config_that_loses_the_device_is_named_and_not_tried_again(written, what, delay, bad):
    module = written(SCALE.format(options=""))
    with hostile_device(driver_with(bad, what, delay=delay)) as driver, pytest.raises(DeviceLost) as lost:
        call(module.scale)
    said = str(lost.value)
    assert f"BLOCK={bad} " in said
    assert all(f"BLOCK={other} " not in said for other in BLOCKS if other != bad)
    assert what in said
    assert "restart" in said
    decisions, trials = stored()
    assert decisions == []
    assert not any(trials.values()), "an innocent config was recorded as failed"

    module = written(SCALE.format(options=""))  # as the next process does
    with hostile_device(driver_with(bad, what, delay=delay)) as driver:
        assert call(module.scale)[0] == 5
        assert all(launch.config["BLOCK"] != bad for launch in driver.launches)
    (decision,), trials = stored()
    assert decision.evidence.complete
    assert decision.config["BLOCK"] == max(block for block in BLOCKS if block != bad)
    assert trials == {block: Kind.CRASHED if block == bad else None for block in BLOCKS}


@pytest.mark.parametrize("bad", BLOCKS)
def test_with_a_reference_too_nothing_runs_again(written, bad):
    options = ", reference=lambda x_ptr, seed: 2 * x_ptr + seed"
    for number in range(3):
        module = written(SCALE.format(options=options))
        with hostile_device(driver_with(bad)) as driver:
            if number == 0:
                with pytest.raises(DeviceLost, match=f"BLOCK={bad} "):
                    call(module.scale)
            else:
                call(module.scale)
                assert all(launch.config["BLOCK"] != bad for launch in driver.launches)


def test_a_config_that_fails_only_in_the_race_is_named(written):
    module, events, launches = written(SCALE.format(options="")), [], []
    tw.current_session().listeners.append(lambda event: events.append(type(event)))

    def fault(launch):
        if FinalRaceStarted in events and launch.config["BLOCK"] == 128:
            launches.append(launch)
        return ILLEGAL_ACCESS if len(launches) == 40 else None

    misbehavior = Misbehavior(fault=fault, delay=3)
    driver = HostileDriver(A100, misbehavior=misbehavior, seconds=lambda launch: 1e-5)
    with hostile_device(driver), pytest.raises(DeviceLost, match="BLOCK=128 "):
        call(module.scale)
    decisions, trials = stored()
    assert decisions == []
    assert not any(trials.values())


@pytest.mark.parametrize(
    ("what", "after"), [(REFUSED, 9), (REFUSED, 60), ("changes an input", 0), ("changes an input", 9)]
)
def test_a_default_that_fails_while_others_are_compared_with_it_is_blamed_alone(written, what, after):
    module, launches = written(SCALE.format(options="")), []

    def is_bad(launch):
        return launch.config["BLOCK"] == 32 and len(launches) > after

    def fault(launch):
        launches.extend([launch] if launch.config["BLOCK"] == 32 else [])
        return what if is_bad(launch) and what == REFUSED else None

    def effect(launch):
        compute(launch)
        launch.args[0][:50] += is_bad(launch)

    driver = HostileDriver(
        A100, misbehavior=Misbehavior(fault=fault), effect=effect, seconds=lambda launch: 1e-3 / launch.config["BLOCK"]
    )
    with hostile_device(driver):
        assert call(module.scale)[0] == 5
    (decision,), trials = stored()
    assert decision.config["BLOCK"] == 128
    assert {block for block, kind in trials.items() if kind is not None} <= {32}
    assert trials[32] is not None or after == 60


BY_ADDRESS = """
import triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=1) for b in (32, 128)], key=["n"])
@triton.jit
def fill(addresses, x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(tl.load(addresses).to(tl.pointer_type(tl.float32)) + at, tl.load(x_ptr) + 1, at < n)
"""


def test_what_a_kernel_stores_by_addresses_in_memory_is_no_damage(written):
    def effect(launch):
        launch.args[1][1:] = launch.args[1][0] + 1

    x = torch.ones(100)
    with hostile_device(HostileDriver(A100, effect=effect, seconds=lambda launch: 1e-3 / launch.config["BLOCK"])):
        written(BY_ADDRESS).fill[(4,)](torch.tensor([x.data_ptr() + 4]), x, 99)
    (decision,), trials = stored()
    assert (decision.config["BLOCK"], trials) == (128, {32: None, 128: None})


def test_what_the_caller_broke_is_no_configs_fault(written):
    module = written(SCALE.format(options=""))
    with hostile_device(driver_with(0)) as driver:
        driver.misbehavior = Misbehavior(fault=lambda launch: ILLEGAL_ACCESS, delay=50)
        driver.launch(Launch("theirs", (1, 1, 1), {"BLOCK": 1}, 0, ()))
        with pytest.raises(DeviceLost, match="before a config was tried") as lost:
            call(module.scale)
    assert lost.value.config is None
    assert isinstance(lost.value.__cause__, RuntimeError)
    assert stored() == ([], {})


def test_after_the_loss_the_same_process_blames_nobody_else(written):
    module, x, out = written(SCALE.format(options="")), torch.ones(100), torch.zeros(100)
    with hostile_device(driver_with(64)):
        with pytest.raises(DeviceLost, match="BLOCK=64 "):
            call(module.scale, x, out)
        for _ in range(2):
            with pytest.raises(DeviceLost, match="before a config was tried"):
                call(module.scale, x, out)
    assert not any(stored()[1].values())


def test_a_launch_that_is_refused_is_a_failed_trial(written):
    module = written(SCALE.format(options=""))
    with hostile_device(driver_with(64, REFUSED)):
        assert call(module.scale)[0] == 5
    (decision,), trials = stored()
    assert (decision.config["BLOCK"], trials[64]) == (128, Kind.REFUSED)
    assert trials[32] is trials[128] is None


def test_a_users_benchmark_that_loses_the_device_is_named_too(written):
    text = SCALE.format(options=", do_bench=bench").replace(
        "@triton.autotune", "def bench(call, quantiles):\n    call()\n    return [1.0] * 3\n\n@triton.autotune"
    )
    module = written(text)
    with hostile_device(driver_with(128)), pytest.raises(DeviceLost, match="BLOCK=128 "):
        call(module.scale)
    assert not any(stored()[1].values())


def test_a_compiler_that_dies_is_a_failed_trial(written, tmp_path, monkeypatch, own_triton_cache):
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(dying_compiler(tmp_path, ".reqntid 64")))
    module = written(SCALE.format(options="").replace("num_warps=1", "num_warps=2 if b == 64 else 1"))
    with hostile_device(driver_with(0)):
        assert call(module.scale)[0] == 5
    (decision,), trials = stored()
    assert (decision.config["BLOCK"], trials[64]) == (128, Kind.REFUSED)
