"""Our strategies inside Kernel Tuner."""

import random

import pytest

from tunewright.interop import kernel_tuner

pytestmark = pytest.mark.filterwarnings("ignore")


def searched(table, path, evaluations, seed=None, **more):
    kt = pytest.importorskip("kernel_tuner")
    from kernel_tuner.strategies.wrapper import OptAlgWrapper

    from tunewright.interop.kernel_tuner_strategy import KernelTunerStrategy

    kernel_tuner.write(table, path)
    results, _ = kt.tune_kernel(
        "scale", "__global__ void scale() {}", (4096, 2), [], {k.name: list(k.values) for k in table.knobs},
        restrictions=list(table.constraints), cache=str(path), simulation_mode=True, lang="CUDA", quiet=True,
        strategy=OptAlgWrapper(KernelTunerStrategy("random", seed)),
        strategy_options={"max_fevals": evaluations}, **more,
    )  # fmt: skip
    return [tuple(result[knob.name] for knob in table.knobs) for result in results]


def test_a_strategy_tries_what_it_asks_for_until_the_budget_is_spent(table, tmp_path) -> None:
    tried = searched(table, tmp_path / "scale.json", 12)
    assert len(tried) == len(set(tried)) == 12


def test_a_strategy_that_tries_everything_ends_with_the_space(table, tmp_path) -> None:
    tried = searched(table, tmp_path / "scale.json", 10_000)
    assert sorted(tried) == sorted(tuple(t.config[k.name] for k in table.knobs) for t in table.trials)


def test_the_seed_is_the_one_given_or_comes_from_where_kernel_tuner_draws_its_own(table, tmp_path) -> None:
    path = tmp_path / "scale.json"
    assert searched(table, path, 8, seed=5) == searched(table, path, 8, seed=5) != searched(table, path, 8, seed=6)
    drawn = []
    for seed in (1, 1, 2):
        random.seed(seed)
        drawn.append(searched(table, path, 8))
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_strategy_learns_times_failures_and_costs(table, tmp_path, monkeypatch) -> None:
    from tunewright.ports import plugins
    from tunewright.strategies.random import RandomSearch

    told = []

    class Listening(RandomSearch):
        def tell(self, trials):
            told.extend(trials)

    monkeypatch.setattr(plugins, "load", lambda port, name: Listening)
    searched(table, tmp_path / "scale.json", 10_000)
    recorded = {trial.config: trial for trial in table.trials}
    assert len(told) >= len(recorded) - 1  # Kernel Tuner ends the search instead of returning the last
    for trial in told:
        assert trial.works == recorded[trial.config].works
        assert trial.seconds == pytest.approx(recorded[trial.config].seconds)
        assert trial.build_seconds == pytest.approx(recorded[trial.config].build_seconds)
