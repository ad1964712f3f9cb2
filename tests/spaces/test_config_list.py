"""A rule made of a list."""

import numpy as np
import pytest

from tunewright.spaces.config import Config
from tunewright.spaces.config_list import rule_from_rows
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space

KNOBS = (
    Knob("tile", [32, 8, 16]),
    Knob("opt", ["-O3", "-O1"]),
    Knob("recorded", [True, False]),
    Knob("part", [0.5, 0.25, 1]),
)
MIXED = (*KNOBS, Knob("lanes", [1, "all", 2]))


@pytest.mark.parametrize("knobs", [KNOBS, MIXED], ids=["columns", "one by one"])
def test_a_listed_space_has_the_listed_configs_and_no_others(knobs) -> None:
    every = list(Space(*knobs))
    chosen = [every[i] for i in np.random.default_rng(0).permutation(len(every))[: len(every) // 3]]
    space = Space(*knobs, rules=[rule_from_rows(knobs, chosen, "listed")])
    assert set(space) == set(chosen)
    assert all((config in space) == (config in set(chosen)) for config in every)
    assert all(space[space.index(config)] == config for config in chosen)


def test_whole_columns_are_looked_up_at_once() -> None:
    rule = rule_from_rows(KNOBS, [Config(tile=8, opt="-O1", recorded=True, part=1)], "listed")
    answer = rule.vectorized(*(np.array(column) for column in ([8, 8], ["-O1", "-O3"], [1, 1], [1.0, 1.0])))
    assert answer.tolist() == [True, False]


def test_a_list_of_nothing_leaves_nothing() -> None:
    space = Space(*KNOBS, rules=[rule_from_rows(KNOBS, [], "listed")])
    assert space.size == 0
