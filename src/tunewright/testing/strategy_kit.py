"""The contract every strategy keeps: subclass, give a `make` fixture (the class), done."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.ports.strategy import Strategy
from tunewright.spaces.config import Config
from tunewright.spaces.space import Knob, Rule, Space, Variant

Make = Callable[[Space, np.random.Generator], Strategy]

SMALL = Space(
    Knob("tile", [8, 16, 32, 64]),
    Knob("unroll", [1, 2, 4]),
    Knob("fast", [False, True]),
    rules=[Rule("no more unrolling than tile allows", lambda tile, unroll: tile >= 16 * unroll)],
)
VARIED = Space(
    Knob("threads", [1, 2]),
    variants=[Variant("library"), Variant("blocked", Knob("tile", [8, 16, 32]), Knob("order", ["ij", "ji"]))],
)
ALONE = Space(Knob("tile", [8]))
LARGE = Space(*(Knob(f"k{i}", range(10)) for i in range(8)), rules=[Rule("k0 <= k1", lambda k0, k1: k0 <= k1)])


def _timed(config: Config) -> Trial:
    """A made-up time that depends on every knob."""
    return Trial(config, Timing((1e-3 * (1 + sum(hash((n, v)) % 97 for n, v in config.items())),)))


def _failed(config: Config) -> Trial:
    return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "nothing works here"))


def run(strategy: Strategy, batch: int, most: int, answer: Callable[[Config], Trial] = _timed) -> list[Config]:
    """What a strategy proposes until it is done or `most` are asked for."""
    asked: list[Config] = []
    while len(asked) < most and (wave := strategy.ask(min(batch, most - len(asked)))):
        assert len(wave) <= batch
        asked.extend(wave)
        strategy.tell([answer(config) for config in wave])
    return asked


class StrategyContract:
    """Tests of what `ports.strategy.Strategy` promises."""

    def test_it_proposes_only_configs_of_the_space_and_none_twice(self, make: Make) -> None:
        for space in (SMALL, VARIED, ALONE, LARGE):
            for batch in (1, 3, 8):
                asked = run(make(space, np.random.default_rng(0)), batch, 60)
                assert all(config in space for config in asked)
                assert len(set(asked)) == len(asked)

    def test_it_ends_when_the_space_is_exhausted(self, make: Make) -> None:
        for space in (SMALL, VARIED, ALONE):
            assert len(run(make(space, np.random.default_rng(1)), 4, 10_000)) <= len(space)

    def test_the_same_seed_gives_the_same_proposals(self, make: Make) -> None:
        for space in (SMALL, VARIED, LARGE):
            first, second = (run(make(space, np.random.default_rng(5)), 4, 30) for _ in range(2))
            assert first == second

    def test_it_survives_a_space_where_everything_fails(self, make: Make) -> None:
        assert run(make(SMALL, np.random.default_rng(2)), 2, 50, _failed)

    def test_it_may_be_told_of_configs_it_did_not_propose(self, make: Make) -> None:
        strategy = make(SMALL, np.random.default_rng(3))
        strategy.tell([_timed(SMALL.first)])
        assert run(strategy, 1, 5)

    def test_asking_for_nothing_gives_nothing(self, make: Make) -> None:
        assert list(make(SMALL, np.random.default_rng(4)).ask(0)) == []
