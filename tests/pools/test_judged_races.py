"""Races whose results were not judged are not trusted; those that lost candidates early are."""

from types import SimpleNamespace

import pytest

from tunewright.measure.race import replay_race
from tunewright.pools.worker import Worker

FAST, SLOW = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98], [3.0, 3.1, 2.9]


@pytest.mark.parametrize(("verdicts", "trusted"), [(2, False), (3, True)])
def test_who_left_a_race_needs_one_verdict_and_who_stayed_two(verdicts, trusted) -> None:
    race = replay_race([FAST, SLOW], {1: 3}, 0.01)
    worker = SimpleNamespace(_is_judged=True, _verdicts=verdicts)
    assert (Worker._distrust_race(worker, race) is race) is trusted


def test_all_who_stayed_need_two() -> None:
    race = replay_race([FAST, FAST], {}, 0.01)
    assert Worker._distrust_race(SimpleNamespace(_is_judged=True, _verdicts=3), race) is None
