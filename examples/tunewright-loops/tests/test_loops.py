"""The language, its tuner, and the contract of backends."""

from pathlib import Path

import loops
import numpy as np
import pytest
from loops.tuning import SPACE

import tunewright as tw
from tunewright.model.signature import Parameter
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import Config
from tunewright.testing.backend_kit import BackendContract


def damped(x, y):
    return (x * 2.0 + y) * (x - y) + 1.0


RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 100_000))


@pytest.mark.parametrize("schedule", [loops.Schedule(256, True), loops.Schedule(4096, False), loops.Schedule(1 << 20)])
def test_every_schedule_computes_the_same(schedule):
    run = loops.compile_program(loops.trace(damped), schedule)
    for size in (1, 255, 1000, 100_000):
        np.testing.assert_array_equal(run(X[:size], Y[:size]), damped(X[:size], Y[:size]))


def test_a_program_is_tuned_once_and_computes_the_same(tmp_path):
    session = tw.Session(cache=str(tmp_path), pool="serial", trials=6)
    kernel = loops.tuned(damped, session=session)
    assert kernel.default == {"part": 4096, "reuse": True}
    np.testing.assert_allclose(kernel(X, Y), damped(X, Y))
    decision = kernel.decide(X, Y)
    assert decision.config in SPACE
    assert decision.evidence.trials == 6
    again = loops.tuned(damped, session=tw.Session(cache=str(tmp_path), mode="strict"))
    assert again.decide(X, Y).config == decision.config


def test_another_program_is_another_key():
    def other(x, y):
        return (x * 2.0 + y) * (x - y) + 2.0

    first, second = loops.tuned(damped, name="k"), loops.tuned(other, name="k")
    assert "source" in first.problem([X, Y]).key.differences(second.problem([X, Y]).key)


class TestLoops(BackendContract):
    @pytest.fixture
    def backend(self):
        return loops.tuned(damped).backend

    @pytest.fixture
    def kernel(self):
        return Kernel("damped", damped, Parameter.of(damped, []), Path())

    @pytest.fixture
    def config(self):
        return Config(part=1024, reuse=True)

    @pytest.fixture
    def args(self):
        return [X, Y]
