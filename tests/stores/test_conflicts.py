"""Two decisions for one key: the better evidence wins, whichever is named first, and the reason is said."""

import msgspec
import pytest

from tunewright import Config
from tunewright.model.decision import Gain
from tunewright.stores.conflicts import resolve_conflict
from tunewright.testing.keys import DECISION, EVIDENCE, other_decision


def chose(tile, **evidence):
    return other_decision(config=Config(tile=tile), evidence=msgspec.structs.replace(EVIDENCE, **evidence))


@pytest.mark.parametrize(
    ("better", "worse", "said"),
    [
        (chose(1), other_decision(config=Config(tile=2), evidence=None), "no evidence"),
        (chose(1), chose(2, complete=False), "interrupted"),
        (chose(1, over_default=Gain(3.0, 2.9, 3.1)), chose(2, over_default=Gain(2.0, 1.9, 2.1)), "3.00x the default"),
        (chose(1, when="2027"), chose(2, over_default=Gain(2.0, 1.0, 9.0)), "newer"),
        (chose(1, when="2027"), chose(1), "both chose the same"),
    ],
)
def test_the_better_evidence_wins_and_the_reason_is_said(better, worse, said) -> None:
    for pair in ((better, worse), (worse, better)):
        winner, reason = resolve_conflict(*pair)
        assert winner == better
        assert said in reason


def test_a_draw_is_settled_the_same_way_round() -> None:
    one, other = chose(1), chose(2)
    assert resolve_conflict(one, other) == resolve_conflict(other, one)
    assert "canonical order" in resolve_conflict(one, other)[1]
    assert resolve_conflict(DECISION, DECISION)[0] == DECISION
