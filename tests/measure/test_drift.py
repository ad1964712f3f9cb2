"""Times are ratios to the best so far, handed on from rival to rival: luck must not be handed on with them."""

import numpy as np

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
