"""A crash, a hang, a leak and an out-of-memory cost one cell each, and are named; the others are measured."""

import pytest

from tunewright.bench.metrics import metric_rows


def kinds(run):
    return {cell.implementation: cell.failure.kind if cell.failure else None for _, cell in run.cells()}


@pytest.mark.slow
@pytest.mark.clock("who hangs is ended after 3 s; the honest ones must not take that long in any stage")
def test_a_crash_a_hang_a_leak_and_a_hog_cost_their_own_cells_and_are_named(benched) -> None:
    run = benched("good", "crashing", "hanging", "leaking", "hogging", "also_good", deadline=3.0)
    assert kinds(run) == {
        "good": None, "crashing": "crashed", "hanging": "hung", "leaking": "leaked", "hogging": "memory",
        "also_good": None,
    }  # fmt: skip
    for name in ("good", "also_good"):
        assert len(run.comparisons[0].cell(name).samples[0]) == 12
    said = {row[2]: row[-1] for row in metric_rows(run, ("latency",), "good")}
    assert "SIGSEGV" in said["crashing"]
    assert "no end within 3 s" in said["hanging"]
    assert "each launch leaves 1 MiB behind" in said["leaking"]
    assert "memory" in said["hogging"]
    assert said["good"] == said["also_good"] == ""


@pytest.mark.slow
def test_what_is_wrong_raises_or_refuses_is_told_as_it_is(benched) -> None:
    run = benched("good", "wrong", "raising", "picky")
    assert kinds(run) == {"good": None, "wrong": "wrong", "raising": "raised", "picky": "refused"}
    failures = {cell.implementation: cell.failure for _, cell in run.cells()}
    assert "wrong in" in failures["wrong"].reason
    assert "RuntimeError: no such instruction" in failures["raising"].reason
    assert "it takes float64, not float32" in failures["picky"].reason


@pytest.mark.slow
def test_who_crashes_in_a_later_round_leaves_and_the_others_run_all_theirs(benched) -> None:
    run = benched("good", "late", "also_good", rounds=40)
    assert kinds(run) == {"good": None, "late": "crashed", "also_good": None}
    assert run.comparisons[0].cell("late").failure.stage == "time"
    assert len(run.comparisons[0].cell("good").samples[0]) == 40


@pytest.mark.slow
def test_a_slow_leak_is_seen_in_the_rounds(benched) -> None:
    run = benched("good", "seeping")
    assert kinds(run) == {"good": None, "seeping": "leaked"}
    assert "rounds" in run.comparisons[0].cell("seeping").failure.reason


@pytest.mark.slow
def test_without_isolation_a_crash_is_still_one_cell_since_the_others_start_again(benched) -> None:
    run = benched("good", "crashing", "also_good", isolated=False)
    assert kinds(run) == {"good": None, "crashing": "crashed", "also_good": None}
    assert run.comparisons[0].cell("also_good").samples


@pytest.mark.slow
def test_who_has_failed_is_not_tried_in_the_next_repeat(benched) -> None:
    run = benched("good", "crashing", repeats=2)
    assert len(run.comparisons[0].cell("good").samples) == 2
    assert len(run.comparisons[0].anchors) == 2
    assert kinds(run)["crashing"] == "crashed"
