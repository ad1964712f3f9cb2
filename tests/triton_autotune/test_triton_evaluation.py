"""Trials and races of a Triton kernel by the evaluator that all kernels share (rung 2)."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tunewright as tw
from tunewright.measure import clock, evaluator, race
from tunewright.model.trial import Kind, Stage
from tunewright.testing.triton_driver import FakeDriver, fake_driver
from tunewright.triton import Config, adapter, autotune

TRUE = 1e-3


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 3 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


class Uncompiled:
    """A kernel whose launches take time on the fake clock; nothing is compiled, since there are too many configs."""

    def __init__(self, driver, seconds):
        self.fn, self.arg_names = scale, scale.arg_names
        self._driver, self._seconds = driver, seconds

    def run(self, *args, warmup, BLOCK, **kwargs):
        if not warmup:
            self._driver.passed(self._seconds(BLOCK))


def tuned(kernel, n=256, out=None):
    x = torch.randn(n)
    kernel[(4,)](x, torch.zeros(n) if out is None else out, n)
    return kernel


def trials(session=None):
    store = (session or tw.current_session()).store
    return [trial for key in list(store.keys()) for trial in store.trials(key)]


def configs(*sizes):
    return [Config({"BLOCK": size}, num_warps=1) for size in sizes]


@pytest.fixture
def still(monkeypatch):
    """Seconds of the host by a clock that only pauses move."""
    passed = [0.0]

    def sleep(seconds):
        passed[0] += seconds

    shown = SimpleNamespace(monotonic=lambda: passed[0], perf_counter=lambda: passed[0], sleep=sleep, time=lambda: 0.0)
    for module in (race, evaluator):
        monkeypatch.setattr(module, "time", shown)
    monkeypatch.setattr(clock, "perf_counter", shown.perf_counter)


def later_times(seed) -> float:
    """The center of what the last trials of a search are said to take, over what they take."""
    rng = np.random.default_rng(seed)
    options = {"store": "memory:", "strategy": "random", "trials": 150, "min_expected_gain": 0.0}
    session = tw.Session(**options, seed=seed)
    with fake_driver(FakeDriver()) as driver:
        noisy = Uncompiled(driver, lambda _: TRUE * float(np.exp(rng.normal(0, 0.25))))
        space = tw.Space(tw.Knob("BLOCK", range(1, 1001)))
        tuned(autotune(space=space, key=["n"], model=False, session=session)(noisy))
    return float(np.median([trial.seconds for trial in trials(session)][-50:])) / TRUE


@pytest.mark.slow
def test_times_do_not_sink_from_rival_to_rival(still) -> None:
    """Where one short lucky race was believed, times of equal configs sank to a fraction."""
    found = [later_times(seed) for seed in range(4)]
    assert np.median(found) > 0.75, found
    assert min(found) > 0.5, found


def test_a_finalist_that_fails_does_not_end_the_race() -> None:
    launches = {32: 0, 64: 0, 128: 0}

    def seconds(block):
        launches[block] += 1
        if block == 128 and launches[32] > 250:  # the default has been tried and raced for some rounds
            raise RuntimeError("an illegal instruction was encountered")
        return 1e-2 / block

    with fake_driver(FakeDriver()) as driver:
        kernel = tuned(autotune(configs(32, 64, 128), ["n"])(Uncompiled(driver, seconds)))
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    failed = [trial for trial in trials() if not trial.works]
    assert [(trial.config["BLOCK"], trial.outcome.kind) for trial in failed] == [(128, Kind.RAISED)]
    decision = next(tw.current_session().store.decisions())
    assert decision.evidence.over_default.low > 1  # by the race of the others
    assert {config.kwargs["BLOCK"] for config, times in kernel.configs_timings.items() if times[0] == np.inf} == {128}


def test_a_device_without_memory_for_a_config_may_have_some_later() -> None:
    class OutOfMemoryError(RuntimeError):
        """Named as torch's."""

    class OutOfResources(RuntimeError):
        """Named as Triton's."""

    def seconds(block):
        if block == 64:
            raise OutOfMemoryError("tried to allocate 20 GiB")
        if block == 128:
            raise OutOfResources("out of resource: shared memory")
        return 1e-3

    with fake_driver(FakeDriver()) as driver:
        tuned(autotune(configs(32, 64, 128), ["n"])(Uncompiled(driver, seconds)))
    kinds = {trial.config["BLOCK"]: trial.outcome.kind for trial in trials() if not trial.works}
    assert kinds == {64: Kind.MEMORY, 128: Kind.REFUSED}


def test_the_session_knows_what_was_chosen() -> None:
    def choice(fast):
        session = tw.Session(store="memory:")
        with fake_driver(FakeDriver()) as driver:
            kernel = Uncompiled(driver, lambda block: 1e-4 if block == fast else 1e-3)
            tuned(autotune(configs(32, 64), ["n"], session=session)(kernel))
        (config,) = session.chosen.values()
        assert config["BLOCK"] == fast
        return session.choice

    assert choice(64) == choice(64) != choice(32)


@pytest.mark.parametrize("referred", [True, False], ids=["reference", "default"])
def test_where_the_default_fails_the_first_that_works_is_compared_with(referred) -> None:
    def effect(launch):
        x, out = launch.args[:2]
        if launch.config["BLOCK"] == 32:
            raise RuntimeError("an illegal instruction was encountered")
        out.copy_(2 * x if launch.config["BLOCK"] == 128 else 3 * x)

    options = {"reference": lambda x_ptr: 3 * x_ptr} if referred else {}
    with fake_driver(FakeDriver(seconds=lambda launch: 1e-2 / launch.config["BLOCK"], effect=effect)):
        kernel = tuned(autotune(configs(32, 64, 128), ["n"], **options)(triton.jit(scale.fn)))
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    failed = {trial.config["BLOCK"]: trial.outcome for trial in trials() if not trial.works}
    assert {block: failure.kind for block, failure in failed.items()} == {32: Kind.REFUSED, 128: Kind.WRONG}
    assert failed[128].stage is Stage.VERIFY
    assert ("the first config that works gives" in failed[128].reason) != referred


def test_a_reference_that_fails_is_no_fault_of_configs() -> None:
    out = torch.full((256,), 5.0)
    with fake_driver(FakeDriver(effect=lambda launch: launch.args[1].add_(1))):
        kernel = autotune(configs(32, 64), ["n"], reference=lambda x_ptr: x_ptr.nonsense)(triton.jit(scale.fn))
        with pytest.raises(tw.TunewrightError, match="the reference raised AttributeError"):
            tuned(kernel, out=out)
    assert trials() == []
    assert (out == 5).all()


class Seen:
    """An effect that computes, notes which contents launches find, and may end one of them."""

    def __init__(self, x, end=None, after=0):
        self._x, self._original, self._pointer = x, x.clone(), x.data_ptr()
        self._end, self._after = end, after
        self.contents, self.pointers = set(), set()

    def __call__(self, launch):
        x, out = launch.args[:2]
        if x.data_ptr() == self._pointer:
            assert x.equal(self._original), "the caller's own tensor was changed while another thread may read it"
        self.contents.add(x.numpy().tobytes())
        self.pointers.add(x.data_ptr())
        out.copy_(3 * x)
        if self._end and len(self.contents) > self._after:
            raise self._end


@pytest.mark.parametrize("end", [None, KeyboardInterrupt(), SystemExit()], ids=["", "interrupted", "exit"])
def test_contents_change_in_copies_and_arguments_are_as_they_were_in_the_end(end) -> None:
    x, out = torch.randn(256), torch.full((256,), 5.0)
    before, seen = x.clone(), Seen(x, end, after=5)
    with fake_driver(FakeDriver(seconds=lambda launch: 1e-2 / launch.config["BLOCK"], effect=seen)):
        kernel = autotune(configs(32, 64), ["n"])(triton.jit(scale.fn))
        if end:
            with pytest.raises(type(end)):
                kernel[(4,)](x, out, 256)
        else:
            kernel[(4,)](x, out, 256)
    assert x.numpy().tobytes() == before.numpy().tobytes()
    assert out.equal(torch.full((256,), 5.0) if end else 3 * before)
    assert len(seen.pointers) == 2
    assert len(seen.contents) > (5 if end else 10)


def test_arguments_that_are_too_large_are_not_copied(monkeypatch) -> None:
    monkeypatch.setattr(adapter, "CPU_ROOM", 1000)
    x, out = torch.randn(256), torch.zeros(256)
    seen = Seen(x)
    with fake_driver(FakeDriver(seconds=lambda launch: 1e-2 / launch.config["BLOCK"], effect=seen)):
        autotune(configs(32, 64), ["n"])(triton.jit(scale.fn))[(4,)](x, out, 256)
    assert (len(seen.pointers), len(seen.contents)) == (1, 1)
    assert out.equal(3 * x)


def test_results_have_fingerprints_where_they_must_be_equal_bit_for_bit() -> None:
    def effect(launch):
        x, out = launch.args[:2]
        slightly = {32: 0.0, 64: 0.0, 128: 1e-7}[launch.config["BLOCK"]]
        out.copy_(3 * x * (1 + slightly))

    session = tw.Session(store="memory:", deterministic=True)
    with fake_driver(FakeDriver(seconds=lambda launch: 1e-2 / launch.config["BLOCK"], effect=effect)):
        kernel = tuned(autotune(configs(32, 64, 128), ["n"], session=session)(triton.jit(scale.fn)))
    prints = {trial.config["BLOCK"]: trial.fingerprint for trial in trials(session)}
    assert prints[32] == prints[64] != prints[128] != ""
    assert kernel.best_config.kwargs == {"BLOCK": 64}
