"""Times are ratios to the best so far, handed on from rival to rival: luck must not be handed on with them."""

import time

import numpy as np
import pytest

import tunewright as tw
from tunewright.backends.python import Python

TRUE = 1e-3


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
    session = tw.Session(store="memory:", pool="serial", strategy="random", trials=150, worth=0.0, seed=seed)
    backend = Noisy(np.random.default_rng(seed))

    @tw.tune(tw.Space(tw.Knob("step", range(1, 1001))), backend=backend, session=session)
    def same(x: tw.In("N"), *, step: int):
        return x

    same.tune(np.ones(4))
    (key,) = session.store.keys()
    return float(np.median([trial.seconds for trial in session.store.trials(key)][-50:])) / TRUE


def test_times_do_not_sink_from_rival_to_rival() -> None:
    """Where each seemingly faster one became the measure of the others, they sank to a hundredth."""
    found = [later_times(seed) for seed in range(6)]
    assert np.median(found) > 0.75, found
    assert min(found) > 0.5, found


@pytest.mark.slow
def test_a_slow_kernel_that_is_much_faster_is_believed_after_few_rounds() -> None:
    """There is no time for the rounds that an interval takes: each was said to be 3 % faster, and no more."""
    session = tw.Session(store="memory:", pool="serial", strategy="exhaustive", worth=0.0, seed=0)

    @tw.tune(tw.Space(tw.Knob("hundredths", [30, 15, 5])), backend=Python(), session=session)
    def slow(x: tw.InOut("N"), *, hundredths: int):
        until = time.thread_time() + hundredths / 100
        while time.thread_time() < until:
            pass

    decision = slow.tune(np.ones(4))
    trials = {trial.config["hundredths"]: trial.seconds for trial in session.store.trials(decision.key)}
    assert decision.config["hundredths"] == 5
    assert trials[15] / trials[30] == pytest.approx(1 / 2, rel=0.25)
    assert trials[5] / trials[30] == pytest.approx(1 / 6, rel=0.25)
