"""Contract tests of strategies: subclass `StrategyContract` and define the fixture `make` (the class)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from tunewright.backends import expressions
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.ports.strategy import Strategy
from tunewright.spaces.config import Config
from tunewright.spaces.space import Knob, Rule, Space, Variant

Make = Callable[[Space, np.random.Generator], Strategy]
Answer = Callable[[Config], Trial]

SMALL = Space(
    Knob("tile", [8, 16, 32, 64]),
    Knob("unroll", [1, 2, 4]),
    Knob("fast", [False, True]),
    rules=[Rule("no more unrolling than tile allows", lambda tile, unroll: tile >= 16 * unroll)],
)
VARIED = Space(
    Knob("threads", [1, 2]),
    variants=[
        Variant("library"),
        Variant("blocked", Knob("tile", [8, 16, 32]), Knob("order", ["ij", "ji"])),
        Variant("packed", Knob("tile", [4, 8]), Knob("depth", [0, 1, 2]), rules=[Rule("tile", lambda tile: tile > 4)]),
    ],
)
ALONE = Space(Knob("tile", [8]))
LARGE = Space(*(Knob(f"k{i}", range(10)) for i in range(8)), rules=[Rule("k0 <= k1", lambda k0, k1: k0 <= k1)])


def _chain(length: int) -> Space:
    """Returns a space in which each knob has a rule with the next, so that all form one island."""
    rules = [expressions.parse_rule(f"k{i} != k{i + 1}") for i in range(length - 1)]
    return Space(*(Knob(f"k{i}", range(10)) for i in range(length)), rules=rules)


TIED = _chain(7)
"""Ten million combinations in one island, too many to enumerate."""

BEYOND = _chain(20)
"""More combinations in one island than can be indexed."""


def _mark(config: Config) -> int:
    """Returns a number that depends on every knob, the same in every process."""
    return sum(crc32(f"{name}={value}".encode()) % 97 for name, value in config.items())


def timed(config: Config) -> Trial:
    """Returns a trial with a time that depends on every knob."""
    return Trial(config, Timing((1e-3 * (1 + _mark(config)),)))


def failed(config: Config) -> Trial:
    """Returns a failed trial."""
    return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "nothing works here"))


def half_failed(config: Config) -> Trial:
    """Returns a trial that fails for about half of the configs."""
    return timed(config) if _mark(config) % 2 else failed(config)


def run(strategy: Strategy, batch: int, most: int, answer: Answer = timed) -> list[Config]:
    """Returns what a strategy proposes until it ends or `most` configs were proposed."""
    proposed: list[Config] = []
    while len(proposed) < most and (configs := strategy.ask(count := min(batch, most - len(proposed)))):
        assert len(configs) <= count
        proposed.extend(configs)
        strategy.tell([answer(config) for config in configs])
    return proposed


def fly(strategy: Strategy, width: int, most: int, answer: Answer = timed) -> list[Config]:
    """The same with `width` proposals in flight, asked for one by one and told in any order."""
    rng = np.random.default_rng(width)
    asked: list[Config] = []
    flying: list[Config] = []
    while True:
        while len(flying) < width and len(asked) < most and (wave := strategy.ask(1)):
            asked.extend(wave)
            flying.extend(wave)
        if not flying:
            return asked
        strategy.tell([answer(flying.pop(int(rng.integers(len(flying)))))])


def fresh_members(space: Space, asked: Sequence[Config]) -> bool:
    """Returns whether all configs are in the space and none is repeated."""
    return all(config in space for config in asked) and len(set(asked)) == len(asked)


class StrategyContract:
    """Tests of what `ports.strategy.Strategy` promises.

    A strategy that ends before it has proposed every config sets `covers = False`; one that must enumerate the space
    sets `samples = False`, and is not tested on spaces that are too large.
    """

    covers = True
    samples = True

    def test_it_proposes_only_configs_of_the_space_and_none_twice(self, make: Make) -> None:
        for space in (SMALL, VARIED, ALONE, LARGE):
            for batch in (1, 3, 8, 50):
                asked = run(make(space, np.random.default_rng(0)), batch, max(24, batch + 6))
                assert asked
                assert fresh_members(space, asked)

    def test_eight_may_be_in_flight_and_come_back_in_any_order(self, make: Make) -> None:
        for space in (SMALL, VARIED, ALONE, LARGE):
            for answer in (timed, half_failed):
                asked = fly(make(space, np.random.default_rng(6)), 8, 30, answer)
                assert fresh_members(space, asked)
                assert len(asked) == min(30, space.size) or not self.covers

    def test_it_goes_on_while_nothing_is_told(self, make: Make) -> None:
        strategy = make(LARGE, np.random.default_rng(7))
        asked = [config for _ in range(8) for config in strategy.ask(1)]
        assert len(asked) == 8
        assert fresh_members(LARGE, asked)

    def test_it_ends_when_the_space_is_exhausted_and_has_proposed_everything(self, make: Make) -> None:
        for space in (SMALL, VARIED, ALONE):
            for answer in (timed, half_failed, failed):
                strategy = make(space, np.random.default_rng(1))
                asked = run(strategy, 4, 10_000, answer)
                assert fresh_members(space, asked)
                assert len(asked) == space.size or not self.covers
                assert list(strategy.ask(3)) == []

    def test_the_same_seed_gives_the_same_proposals(self, make: Make) -> None:
        for space in (SMALL, VARIED, LARGE):
            first, second = (run(make(space, np.random.default_rng(5)), 4, 30) for _ in range(2))
            assert first == second

    def test_it_survives_a_space_where_everything_fails(self, make: Make) -> None:
        for space in (SMALL, LARGE):
            asked = run(make(space, np.random.default_rng(2)), 2, 40, failed)
            assert fresh_members(space, asked)
            assert len(asked) == min(40, space.size) or not self.covers

    def test_half_of_a_large_space_may_fail(self, make: Make) -> None:
        asked = run(make(LARGE, np.random.default_rng(8)), 1, 40, half_failed)
        assert len(asked) == 40
        assert fresh_members(LARGE, asked)

    def test_what_it_is_told_of_unasked_it_does_not_propose(self, make: Make) -> None:
        for space in (SMALL, VARIED, ALONE):
            told = list(space)[::2]
            strategy = make(space, np.random.default_rng(3))
            strategy.tell([timed(config) for config in told])
            asked = run(strategy, 1, 1000)
            assert fresh_members(space, asked)
            assert not set(asked) & set(told)
            assert len(asked) + len(told) == space.size or not self.covers

    def test_it_searches_spaces_too_large_to_enumerate(self, make: Make) -> None:
        for space in (TIED, BEYOND) if self.samples else ():
            asked = run(make(space, np.random.default_rng(9)), 5, 30, half_failed)
            assert len(asked) == 30
            assert fresh_members(space, asked)

    def test_asking_for_nothing_gives_nothing(self, make: Make) -> None:
        assert list(make(SMALL, np.random.default_rng(4)).ask(0)) == []
