import logging
import sys

import numpy as np
import pytest

from tunewright import Config, Knob, Space
from tunewright.errors import PluginError
from tunewright.model.trial import Timing, Trial
from tunewright.strategies.tpe import Tpe
from tunewright.testing.strategy_kit import LARGE, VARIED, StrategyContract, half_failed, run

optuna = pytest.importorskip("optuna")

BOWL = Space(*(Knob(f"k{i}", range(16)) for i in range(5)))


def bowl(config: Config) -> Trial:
    """Best at 11 everywhere."""
    return Trial(config, Timing((1e-3 * (1 + sum((value - 11) ** 2 for value in config.values())),)))


class TestTpe(StrategyContract):
    @pytest.fixture
    def make(self):
        return Tpe


@pytest.mark.slow
def test_it_estimates_better_than_chance() -> None:
    best = [min(bowl(c).seconds for c in run(Tpe(BOWL, np.random.default_rng(s)), 1, 100, bowl)) for s in range(3)]
    assert np.median(best) <= 9e-3  # a random draw as good comes once in 960


def test_it_says_nothing_and_leaves_the_verbosity_of_others_alone(capfd: pytest.CaptureFixture[str]) -> None:
    optuna.logging.set_verbosity(logging.INFO)
    for space in (LARGE, VARIED):
        run(Tpe(space, np.random.default_rng(0)), 3, 20, half_failed)
    assert optuna.logging.get_verbosity() == logging.INFO
    assert capfd.readouterr() == ("", "")


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(PluginError, match=r"tunewright\[tpe\]"):
        Tpe(LARGE, np.random.default_rng(0))
