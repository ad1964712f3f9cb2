"""Times are ratios to the best so far, handed on from rival to rival: luck must not be handed on with them."""

from types import SimpleNamespace

import numpy as np
import pytest

import tunewright as tw
from tunewright.backends.python import Python
from tunewright.measure import clock, evaluator, race

TRUE = 1e-3


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """Seconds by a clock that only launches and pauses move."""
    passed = [0.0]

    def sleep(seconds):
        passed[0] += seconds

    shown = SimpleNamespace(monotonic=lambda: passed[0], perf_counter=lambda: passed[0], sleep=sleep, time=lambda: 0.0)
    for module in (race, evaluator):
        monkeypatch.setattr(module, "time", shown)
    monkeypatch.setattr(clock, "perf_counter", shown.perf_counter)
    return passed


class Timer:
    """A launch that takes the same time for every config, on a machine that is now slower, now faster."""

    clock = "cpu"

    def __init__(self, rng):
        self._rng = rng

    def __call__(self, count):
        return count * TRUE * float(np.exp(self._rng.normal(0, 0.25)))

    def flush(self, *, whole):
        pass


class Noisy(Python):
    """A backend by whose clock all configs are alike."""

    def __init__(self, rng):
        super().__init__()
        self._rng = rng

    def timer(self, launch, args, threads):
        return Timer(self._rng)


def later_times(seed) -> float:
    """The centre of what the last trials of a search are said to take, over what they take."""
    session = tw.Session(
        store="memory:", pool="serial", strategy="random", trials=150, min_expected_gain=0.0, seed=seed
    )
    backend = Noisy(np.random.default_rng(seed))

    @tw.tune(tw.Space(tw.Knob("step", range(1, 1001))), backend=backend, session=session)
    def same(x: tw.In("N"), *, step: int):
        return x

    same.tune(np.ones(4))
    (key,) = session.store.keys()
    return float(np.median([trial.seconds for trial in session.store.trials(key)][-50:])) / TRUE


@pytest.mark.slow
def test_times_do_not_sink_from_rival_to_rival() -> None:
    """Where each seemingly faster one became the measure of the others, they sank to a hundredth."""
    found = [later_times(seed) for seed in range(6)]
    assert np.median(found) > 0.75, found
    assert min(found) > 0.5, found


class Lasting(Python):
    """A backend by whose clock a launch takes as many hundredths of a second as its config says."""

    def __init__(self, now):
        super().__init__()
        self._now = now

    def timer(self, launch, args, threads):
        class Exact:
            clock = "cpu"

            def __call__(timer, count):  # noqa: N805 - inside another's method
                took = count * launch.keywords["hundredths"] / 100
                self._now[0] += took
                return took

            def flush(timer, *, whole): ...  # noqa: N805 - as above

        return Exact()


def test_a_slow_kernel_that_is_much_faster_is_believed_after_few_rounds(now) -> None:
    """There is no time for the rounds that an interval takes: each was said to be 3 % faster, and no more."""
    session = tw.Session(store="memory:", pool="serial", strategy="exhaustive", min_expected_gain=0.0, seed=0)

    @tw.tune(tw.Space(tw.Knob("hundredths", [30, 15, 5])), backend=Lasting(now), session=session)
    def slow(x: tw.InOut("N"), *, hundredths: int): ...

    decision = slow.tune(np.ones(4))
    trials = {trial.config["hundredths"]: trial for trial in session.store.trials(decision.key)}
    assert decision.config["hundredths"] == 5
    assert len(trials[15].outcome.samples) < race.FIRST_TEST
    assert trials[15].seconds / trials[30].seconds == pytest.approx(1 / 2)
    assert trials[5].seconds / trials[30].seconds == pytest.approx(1 / 6)
