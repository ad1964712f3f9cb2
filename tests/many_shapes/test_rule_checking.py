import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import NoDecision
from tunewright.shapes.checking import race_rule, unseen_shapes
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.shape_rule import RuleLeaf, RuleSplit, ShapeRule
from tunewright.stores.memory import MemoryStore
from worked_time import work

SPACE = tw.Space(tw.Knob("x", [1, 2, 3]))
RULE = ShapeRule("counted", ("M",), RuleSplit("M", 20, RuleLeaf({"x": 1}, ((16,),)), RuleLeaf({"x": 2}, ((64,),))))
TABLE = ShapeTable(("M",), ((16,), (64,), (500,)), tuple(SPACE), np.ones((3, 3)), np.ones(3))


def counted(a: tw.In("M"), *, x):
    """Config 1 is fast below 40, config 2 above; 3 is wrong."""
    work(100 + 50 * ((x == 1) == (len(a) > 40)))
    return a + (2 if x == 3 else 1)


def test_unseen_shapes_are_served_and_were_not_tuned() -> None:
    found = [sizes["M"] for sizes in unseen_shapes(RULE, TABLE, 8)]
    assert len(set(found)) == 8
    assert all(9 <= m <= 15 or 33 <= m <= 63 for m in found)
    assert unseen_shapes(RULE, TABLE, 8) == unseen_shapes(RULE, TABLE, 8)


@pytest.mark.usefixtures("by_work")
def test_a_rule_is_raced_where_it_was_not_fitted_and_a_wrong_config_is_found() -> None:
    session = tw.Session(store=MemoryStore(), pool="serial")
    kernel = tw.tune(SPACE, reference=lambda a: a + 1, session=session)(counted)
    good, bad = (race_rule(kernel, RULE, {"M": m}) for m in (10, 35))
    assert (good.regret, good.problem) == (0.0, "")
    assert bad.regret == pytest.approx(0.5, abs=0.1), "x=1 is faster below 40"
    with pytest.raises(NoDecision, match="does not serve"):
        race_rule(kernel, RULE, {"M": 500})
    wrong = ShapeRule("counted", ("M",), RuleLeaf({"x": 3}, ((16,),)))
    found = race_rule(kernel, wrong, {"M": 10})
    assert found.problem
    assert found.regret == float("inf")
