"""Verdicts follow from launches alone: planted times give the outcome that they must."""

import numpy as np
import pytest

from tunewright.referee.draws import FRESH, REPEAT
from tunewright.referee.verdict import (
    EXIT_STATUSES,
    Incident,
    LaunchRecord,
    MatchRules,
    compare,
    judge,
)

MS = 1_000_000


def launches(ratio: float, *, sittings: int = 4, count: int = 20, noise: float = 0.01, kind: str = FRESH, wall=None):
    rng = np.random.default_rng(3)
    records = []
    for sitting in range(sittings):
        for _ in range(count):
            base = MS * float(np.exp(rng.normal(0, 0.2)))
            own = base * ratio * float(np.exp(rng.normal(0, noise)))
            clocked = int(own), int(base)
            walls = clocked if wall is None else (int(base * wall), int(base))
            records.append(LaunchRecord(sitting, kind, 0, 1, 0, walls, clocked))
    return records


def outcome(records, incidents=(), rules: MatchRules | None = None, baselines=("base",)) -> str:
    return judge(records, incidents, rules or MatchRules(), baselines).outcome


@pytest.mark.parametrize(
    ("ratio", "right"),
    [(0.5, "faster"), (0.97, "faster"), (1.0, "tie"), (1.01, "tie"), (1.03, "slower"), (2.0, "slower")],
)
def test_the_ratio_of_times_decides(ratio, right) -> None:
    assert outcome(launches(ratio)) == right


def test_the_interval_has_the_true_ratio() -> None:
    ratio, low, high = compare(launches(1.1), 1, "cpu")
    assert low < 1.1 < high
    assert ratio == pytest.approx(1.1, rel=0.01)


def test_a_difference_between_processes_is_not_a_difference_of_the_code() -> None:
    rng = np.random.default_rng(1)
    records = []
    for sitting, bias in enumerate((0.05, -0.05, 0.04, -0.03)):
        for _ in range(30):
            own = MS * float(np.exp(bias + rng.normal(0, 0.001)))
            records.append(LaunchRecord(sitting, FRESH, 0, 1, 0, (int(own), MS), (int(own), MS)))
    verdict = judge(records, [], MatchRules(), ["base"])
    assert verdict.outcome == "tie"
    assert verdict.high / verdict.low > 1.05


def test_too_few_launches_tell_nothing() -> None:
    verdict = judge(launches(0.5, count=3), [], MatchRules(), ["base"])
    assert verdict.outcome == "tie"
    assert "too few" in verdict.reason


def test_only_launches_on_new_inputs_are_timed() -> None:
    records = launches(1.0) + launches(0.7, kind=REPEAT)
    assert outcome(records) == "tie"


def test_a_candidate_that_is_much_faster_on_old_inputs_keeps_results() -> None:
    verdict = judge(launches(1.0) + launches(0.1, kind=REPEAT), [], MatchRules(), ["base"])
    assert verdict.outcome == "suspect"
    assert "keeps results" in verdict.reason


def test_who_beats_the_machine_is_suspect() -> None:
    assert outcome(launches(0.3), rules=MatchRules(least_seconds=(0.9e-3,))) == "suspect"
    assert outcome(launches(0.5), rules=MatchRules(least_seconds=(0.5e-3,))) == "faster"


def test_a_bound_that_a_baseline_beats_was_measured_wrongly() -> None:
    assert outcome(launches(0.3), rules=MatchRules(least_seconds=(9e-3,))) == "faster"


def test_less_cpu_time_and_more_wall_time_is_suspect() -> None:
    assert outcome(launches(0.5, wall=0.5)) == "faster"
    assert outcome(launches(0.5, wall=1.5)) == "suspect"


def test_incidents_decide_before_times_and_the_gravest_first() -> None:
    wrong, suspect = Incident("wrong", "off by one", FRESH, 0, 7), Incident("suspect", "it spoke")
    verdict = judge(launches(0.5), [wrong], MatchRules(), ["base"])
    assert (verdict.outcome, verdict.failing) == ("wrong", wrong)
    assert outcome(launches(0.5), [wrong, suspect]) == "suspect"
    assert outcome(launches(0.5), [wrong, suspect, Incident("refused", "policy")]) == "refused"


def test_the_fastest_of_several_baselines_counts() -> None:
    records = [
        LaunchRecord(sitting, FRESH, 0, 1, 0, times, times)
        for sitting in range(4)
        for times in [(8 * MS + 1000 * i, 10 * MS, 4 * MS) for i in range(10)]
    ]
    verdict = judge(records, [], MatchRules(), ["slow", "quick"])
    assert verdict.outcome == "slower"
    assert [each.against for each in verdict.comparisons] == ["slow", "quick"]
    assert verdict.ratio == pytest.approx(2, rel=0.01)


def test_without_a_time_that_counts_a_candidate_is_right_or_wrong_and_nothing_else() -> None:
    rules = MatchRules(least_seconds=(2e-3,), untimed="it was interpreted")
    verdict = judge(launches(0.5), [], rules, ["base"])
    assert (verdict.outcome, verdict.ratio) == ("checked", None)
    assert verdict.reason == "right in 80 launches; checked, not timed: it was interpreted"
    assert outcome(launches(0.5), [Incident("wrong", "off by one", FRESH, 0, 7)], rules) == "wrong"


def test_every_outcome_has_an_exit_status_of_its_own() -> None:
    assert set(EXIT_STATUSES) == {"faster", "tie", "slower", "wrong", "suspect", "refused", "checked"}
    assert len(set(EXIT_STATUSES.values())) == 7
    assert not {1, 2, 130} & set(EXIT_STATUSES.values()), "these mean that the command itself failed"
