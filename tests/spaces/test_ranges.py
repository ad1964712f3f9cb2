"""Ranges: knobs with thousands of values, which are searched and not listed."""

import time
from math import log

import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import SpaceError
from tunewright.model.trial import Timing, Trial
from tunewright.ports import plugins


def square(**options) -> tw.Space:
    return tw.Space(
        tw.Knob("a", tw.Range(1, 4096, scale="log")), tw.Knob("b", tw.Range(1, 4096, scale="log")), **options
    )


@pytest.mark.parametrize(
    ("values", "listed"),
    [
        (tw.Range(1, 5), [1, 2, 3, 4, 5]),
        (tw.Range(8, 30, step=8), [8, 16, 24]),
        (tw.Range(0.0, 1.0, step=0.1), [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        (tw.Range(-1, 1, step=0.5), [-1.0, -0.5, 0.0, 0.5, 1.0]),
        (tw.Range(7, 7), [7]),
        (tw.Range(np.int64(1), np.float64(2.0), step=1), [1.0, 2.0]),
    ],
)
def test_a_range_has_both_ends_and_readable_numbers(values, listed) -> None:
    assert list(values) == listed
    assert [type(value) for value in values] == [type(value) for value in listed]
    assert tw.Knob("k", values).values == tuple(listed)


def test_floats_on_a_log_scale_have_a_constant_ratio() -> None:
    values = np.array(tw.Range(1e-4, 1.0, scale="log"))
    assert len(values) == 1001
    assert (values[0], values[-1]) == (1e-4, 1.0)
    np.testing.assert_allclose(values[1:] / values[:-1], 10 ** (4 / 1000))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: tw.Range(5, 1), "smallest value to its largest"),
        (lambda: tw.Range(0, 8, scale="log"), "begins above 0"),
        (lambda: tw.Range(1, 8, scale="logarithmic"), '"linear" or "log"'),
        (lambda: tw.Range(1, 8, step=0), "larger than 0"),
        (lambda: tw.Range(1, "8"), "high of a range is a number"),
        (lambda: tw.Range(1, float("inf")), "high of a range is a number"),
        (lambda: tw.Range(1, 10**9), "larger step="),
        (lambda: tw.Knob("k", tw.Range(1, 8), numerics=[9]), "which it cannot have"),
    ],
)
def test_a_range_that_makes_no_sense_says_why(make, reason) -> None:
    with pytest.raises(SpaceError, match=reason):
        make()


def test_values_of_a_range_are_in_the_space_and_others_are_not_and_the_message_lists_none() -> None:
    space = square()
    assert {"a": 4096, "b": 1} in space
    assert {"a": np.int64(77), "b": 1} in space
    for outside in (0, 4097, 2.5, "8"):
        (problem,) = space.objections({"a": outside, "b": 1})
        assert problem.endswith("allowed: 1 to 4096, log scale")
    assert len(repr(space.knobs[0])) < 60


def test_two_ranges_connected_by_a_rule_are_not_enumerated() -> None:
    space = square(rules=[tw.Rule("a holds b", lambda a, b: a >= b)])
    began = time.process_time()
    assert space.first == {"a": 1, "b": 1}
    assert len(space.sample(np.random.default_rng(0), 100)) == 100
    assert time.process_time() - began < 2
    with pytest.raises(SpaceError, match="searched, not enumerated"):
        _ = space.size


def test_a_log_scale_draws_small_values_as_often_as_large_ones() -> None:
    drawn = np.array([config["a"] for config in square().sample(np.random.default_rng(0), 4000)])
    assert 0.4 < np.mean(drawn <= 64) < 0.6
    linear = tw.Space(tw.Knob("a", tw.Range(1, 4096))).sample(np.random.default_rng(0), 4000)
    assert np.mean([config["a"] <= 64 for config in linear]) < 0.05


@pytest.mark.parametrize("name", ["portfolio", "bayes", "anneal", "evolve", "random"])
@pytest.mark.parametrize("rules", [[], [tw.Rule("a holds b", lambda a, b: a >= b)]])
def test_strategies_find_a_good_config_among_sixteen_million(name, rules) -> None:
    space = square(rules=rules)
    strategy = plugins.load("strategies", name)(space, np.random.default_rng(1))
    seen = []
    for _ in range(60):
        (config,) = strategy.ask(1)
        assert config in space
        seen.append(config)
        seconds = 1e-3 * (1 + abs(log(config["a"] / 700)) + abs(log(config["b"] / 37)))
        strategy.tell([Trial(config, Timing((seconds,) * 3, "thread"), 0.0, 0.0)])
    assert len(set(seen)) == 60
    nearness = [abs(log(config["a"] / 700)) + abs(log(config["b"] / 37)) for config in seen]
    # A random config is about 3 away; all but random search should come much closer.
    assert min(nearness) < (1.5 if name == "random" else 0.6)


def test_a_kernel_with_a_range_is_tuned_and_the_choice_is_stored_as_a_plain_number() -> None:
    session = tw.Session(pool="serial", trials=12)

    @tw.tune(tw.Space(tw.Knob("block", tw.Range(1, 4096, scale="log"))), session=session)
    def total(x: tw.In("N"), *, block=256):
        return sum(float(x[i : i + block].sum()) for i in range(0, len(x), block))

    assert total.default == {"block": 256}
    assert total(np.ones(4096)) == 4096
    chosen = total.decide(np.ones(4096)).config["block"]
    assert type(chosen) is int
    assert chosen > 8
