"""Ten tasks in the style of KernelBench, each with right, slow, wrong and cheating answers."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tunewright.referee import Referee, load_task
from tunewright.referee.checking import ResultChecker
from tunewright.referee.entries import MODULE, load_entry
from tunewright.referee.messages import PlacedLaunch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from referee_matches.corpus import ACCUSED, kernelbench

ANSWERS = list(kernelbench())
SEED = 7


def test_every_task_has_an_answer_of_each_kind_with_the_verdicts_that_are_right() -> None:
    kinds = {"right": {"faster", "tie", "slower"}, "slow": {"slower"}, "wrong": {"wrong"}, "cheat": set(ACCUSED)}
    assert len(ANSWERS) == 40
    assert len({case.task for case in ANSWERS}) == 10
    for case in ANSWERS:
        allowed = kinds[case.name.rpartition("/")[2]]
        assert set(case.verdicts) <= allowed, case.name


@pytest.fixture
def _no_candidate_is_left():
    yield
    sys.modules.pop(MODULE, None)


@pytest.mark.usefixtures("_no_candidate_is_left")
@pytest.mark.parametrize("task", sorted({case.task for case in ANSWERS}), ids=lambda task: task.parent.name)
def test_right_and_slow_answers_agree_with_the_reference_and_wrong_ones_do_not(task) -> None:
    pytest.importorskip("torch")
    loaded = load_task(task)
    checker, arguments = ResultChecker(loaded, SEED), loaded.make_inputs(0, 1, SEED)
    expected, specs = checker.expected(arguments), checker.specs(0, arguments)
    found = {}
    for case in (case for case in ANSWERS if case.task == task and not case.name.endswith("cheat")):
        results = [np.full(shape, np.nan, dtype) for shape, dtype in specs]
        run = load_entry(loaded.candidate_entry(case.candidate.source, SEED))
        run(PlacedLaunch((), ()), arguments, results)
        found[case.name.rpartition("/")[2]] = checker.find_mismatch(expected, results, arguments) is None
    assert found == {"right": True, "slow": True, "wrong": False}


@pytest.mark.slow
@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.name)
def test_every_answer_gets_a_verdict_that_is_right(case) -> None:
    pytest.importorskip("torch")
    length = {"seconds": 1.5, "sittings": 4} if case.verdicts == ("slower",) else {"seconds": 0.4, "sittings": 1}
    verdict = Referee(case.task, **length).run(case.candidate).verdict
    assert verdict.outcome in case.verdicts, verdict.reason
