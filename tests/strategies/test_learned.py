import sys

import numpy as np
import pytest

from tunewright import Config, Knob, Space
from tunewright.errors import PluginError
from tunewright.model.trial import Timing, Trial
from tunewright.strategies.learned import Learned, TreeFeatures
from tunewright.testing.strategy_kit import LARGE, VARIED, StrategyContract, failed, half_failed, run

pytest.importorskip("lightgbm")

BOWL = Space(*(Knob(f"k{i}", range(16)) for i in range(5)))


def bowl(config: Config) -> Trial:
    """Best at 11 everywhere; what is even in the first knob fails."""
    if config["k0"] % 2 == 0:
        return failed(config)
    return Trial(config, Timing((1e-3 * (1 + sum((value - 11) ** 2 for value in config.values())),)))


class TestLearned(StrategyContract):
    @pytest.fixture
    def make(self):
        return Learned


def test_it_learns_better_than_chance() -> None:
    best = [min(bowl(c).seconds for c in run(Learned(BOWL, np.random.default_rng(s)), 1, 120, bowl)) for s in range(3)]
    assert np.median(best) <= 9e-3


def test_it_learns_from_failures_where_not_to_look() -> None:
    asked = run(Learned(BOWL, np.random.default_rng(0)), 1, 120, bowl)
    late = [bowl(config).works for config in asked[60:]]
    assert np.mean(late) > 0.75  # half the space fails


def test_numbers_become_logs_or_ranks_texts_columns_and_absent_knobs_minus_one() -> None:
    encoding = TreeFeatures(VARIED)
    # Three variants; threads and blocked's tile as log2, its order by rank; packed's tile and depth are absent.
    assert encoding.row(Config(variant="blocked", threads=2, tile=16, order="ji")) == [0, 1, 0, 1, 4, 1, -1, -1]
    texts = TreeFeatures(Space(Knob("shift", [-1, 0, 3]), Knob("mode", ["a", "b", "c"])))
    assert texts.row(Config(shift=3, mode="b")) == [2, 0, 1, 0]


def test_it_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for space in (LARGE, VARIED):
        run(Learned(space, np.random.default_rng(0)), 3, 20, half_failed)
    assert capfd.readouterr() == ("", "")


def test_without_lightgbm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(PluginError, match=r"tunewright\[learned\]"):
        Learned(LARGE, np.random.default_rng(0))
