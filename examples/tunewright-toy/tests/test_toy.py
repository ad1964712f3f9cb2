"""The toy machine keeps the backend contract, is found by entry points, tuned by its own clock and dispatched."""

from pathlib import Path

import numpy as np
import pytest
from tunewright_toy.backend import Toy
from tunewright_toy.machine import DEVICE, Refused
from tunewright_toy.operators import SPACE, axpy

import tunewright as tw
from tunewright.model.signature import Parameter
from tunewright.operators import dispatch
from tunewright.ports import plugins
from tunewright.ports.backend import Kernel
from tunewright.testing.backend_kit import BackendContract


def doubled(x: tw.In("N"), y: tw.In("N"), out: tw.Out("N")) -> None: ...


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TUNEWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def session() -> tw.Session:
    return tw.Session(pool="serial")


class TestToy(BackendContract):
    @pytest.fixture
    def backend(self):
        return Toy(axpy)

    @pytest.fixture
    def kernel(self, tmp_path):
        return Kernel("doubled", doubled, Parameter.of(doubled, ()), tmp_path)

    @pytest.fixture
    def config(self):
        return tw.Config(width=8, unroll=2)

    @pytest.fixture
    def args(self):
        return [np.ones(1024, np.float32), np.ones(1024, np.float32), np.zeros(1024, np.float32)]


def test_entry_points_alone_bring_it() -> None:
    assert plugins.load("backends", "toy") is Toy
    assert dispatch("axpy").operator.name == "axpy"


def test_every_config_of_the_space_computes_what_is_right() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 4608)).astype(np.float32)
    tried = [config for config in SPACE if 4608 % (config["width"] * config["unroll"]) == 0]
    assert len(tried) > 15
    for config in tried:
        out = np.zeros_like(x)
        axpy(**config).run([x, y, out])
        assert np.allclose(out, 2 * x + y), config


def test_too_many_registers_are_refused_before_anything_runs() -> None:
    with pytest.raises(Refused, match="registers are needed"):
        axpy(width=32, unroll=8)


def test_a_search_finds_the_config_with_the_fewest_cycles(session) -> None:
    tuned = tw.tune(SPACE, backend=Toy(axpy), reference=lambda x, y: 2 * x + y, session=session)(doubled)
    x = np.ones(4608, np.float32)
    decision = tuned.decide(x, x, np.zeros_like(x))
    possible = {c: axpy(**c).cycles * 4608 // (c["width"] * c["unroll"]) for c in SPACE}
    possible = {c: cycles for c, cycles in possible.items() if 4608 % (c["width"] * c["unroll"]) == 0}
    assert possible[decision.config] <= 1.01 * min(possible.values())
    assert decision.key.device == DEVICE
    assert decision.evidence.clock == "toy cycles"


def test_where_it_does_not_fit_it_is_not_raced_and_says_why() -> None:
    x = np.ones(1000, np.float32)
    assert dispatch("axpy").exclusion_reasons(x, x)["toy"] == "the toy machine takes multiples of 256 elements"


def test_numpy_wins_against_an_interpreted_machine_unless_that_is_asked_for() -> None:
    x = np.ones(65536, np.float32)
    assert dispatch("axpy").decide(x, x).config["variant"] == "plain"
    only = dispatch("axpy", only="toy")
    assert only.decide(x, x).config["variant"] == "toy"
    assert np.array_equal(only(x, x), 3 * x)
