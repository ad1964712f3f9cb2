"""The torture suite goes through every front end, and finds the same there."""

import sys
from pathlib import Path

import pytest

from tunewright.testing.torture import NEAR_TIES, SCENARIOS, torture

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def fronts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import torture_fronts

    yield torture_fronts
    sys.modules.pop("torture_fronts", None)


@pytest.mark.parametrize("name", ["TorchTuner", "TritonTuner"])
@pytest.mark.slow
def test_near_ties_and_failing_candidates_through_every_front(fronts, name) -> None:
    pytest.importorskip("triton")
    tuner = getattr(fronts, name)()
    failing = [scenario for scenario in SCENARIOS if scenario.name in ("crashes", "refusals", "poisoned")]
    assert len(failing) == 3
    scores = torture(tuner, [NEAR_TIES, *failing], problems=1)
    assert [(score.flips, score.losers, score.lost) for score in scores] == [(0, 0, 0)] * 4
    assert all(score.kernel_seconds > 0 for score in scores)
