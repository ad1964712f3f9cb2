import numpy as np
import pytest

from tunewright.errors import SettingsError
from tunewright.shapes.cover import cover
from tunewright.shapes.rules import fit_rule, rule_lines, verified_buckets
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import RuleLeaf, RuleSplit, ShapeRule, bucket_of


def regret_of(rule: ShapeRule, table: ShapeTable) -> np.ndarray:
    served = [rule.config(table.named(i)) for i in range(len(table.shapes))]
    return np.array([table.regret[i, table.configs.index(config)] for i, config in enumerate(served)])


def test_a_rule_splits_where_configs_change(small) -> None:
    rule = fit_rule(cover(small, 0.05), "toy")
    assert isinstance(rule.tree, RuleSplit)
    assert (rule.tree.size, rule.tree.at_most, rule.depth) == ("M", 22, 1)
    assert rule.config({"M": 3}) == Config(x=2)
    assert rule.config({"M": 300}) == Config(x=1)
    assert [leaf.shapes for leaf in rule.leaves()] == [2, 2]
    assert rule_lines(rule) == [
        "M <= 22:",
        "  x=2  (2 shapes, 3.0% slower than with the best)",
        "M > 22:",
        "  x=1  (2 shapes, 0.0% slower than with the best)",
    ]


def test_a_rule_loses_little_beyond_its_cover(modeled) -> None:
    found = cover(modeled, 0.05)
    rule = fit_rule(found, "toy")
    assert regret_of(rule, modeled).mean() - found.regret.mean() < 0.02
    assert rule.depth <= 4
    assert len(list(rule.leaves())) <= 12


def test_bounds_hold_and_more_leaves_lose_less(modeled) -> None:
    found = cover(modeled, 0.05)
    losses = []
    for leaves in (1, 2, 4, 8):
        rule = fit_rule(found, "toy", max_depth=3, max_leaves=leaves)
        assert len(list(rule.leaves())) <= leaves
        assert rule.depth <= 3
        losses.append(regret_of(rule, modeled).mean())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2
    assert isinstance(fit_rule(found, "toy", max_depth=0).tree, RuleLeaf)
    with pytest.raises(SettingsError, match="at least one leaf"):
        fit_rule(found, "toy", max_leaves=0)


def test_a_rule_serves_no_bucket_on_which_its_config_was_not_verified(small) -> None:
    seconds = small.seconds.copy()
    seconds[0, 2] = np.inf  # wrong at M = 4
    table = ShapeTable(small.names, small.shapes, small.configs, seconds, small.weights)
    assert verified_buckets(table, 2) == ((8,), (64,), (512,))
    rule = ShapeRule("toy", ("M",), RuleLeaf({"x": 2}, verified_buckets(table, 2)))
    assert rule.config({"M": 4}) is None
    assert rule.config({"M": 5}) == rule.config({"M": 8}) == Config(x=2)
    assert rule.config({"M": 1024}) is None, "nothing was tried there"


def test_a_failure_anywhere_in_a_bucket_counts() -> None:
    cells = [({"M": 5}, Config(x=1), 1.0), ({"M": 7}, Config(x=1), float("inf")), ({"M": 7}, Config(x=2), 1.0)]
    assert verified_buckets(ShapeTable.of(cells), 0) == ()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_was_tried_a_rule_gives_only_verified_configs(seed, modeled) -> None:
    rng = np.random.default_rng(seed)
    draws = rng.random(modeled.seconds.shape)
    seconds = np.where(draws < 0.5, modeled.seconds, np.where(draws < 0.6, np.inf, np.nan))
    table = ShapeTable(modeled.names, modeled.shapes, modeled.configs, seconds, modeled.weights)
    rule = fit_rule(cover(table, 0.2), "toy")
    for m, n in rng.integers(1, 400, (200, 2)).tolist():
        config = rule.config({"M": m, "N": n})
        if config is not None:
            same = [i for i, shape in enumerate(table.shapes) if bucket_of(shape) == bucket_of((m, n))]
            tried = table.seconds[same, table.configs.index(config)]
            assert np.isfinite(tried).any()
            assert not np.isinf(tried).any()
