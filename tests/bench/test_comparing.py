"""Comparing: what is beyond the noise is said, what is not is not, whatever the machine did between two sessions."""

import msgspec
import numpy as np
import pytest

from tunewright.bench.calls import OperatorCall
from tunewright.bench.compare import compare_runs, describe_changes
from tunewright.bench.intervals import Estimate, estimate, log_ratios
from tunewright.bench.results import SCHEMA, BenchRun, CallComparison, CandidateFailure, Cell, load_run, save_run
from tunewright.bench.work import CallWork, MachineRoofline
from tunewright.errors import StoreError, WireError
from tunewright.stats import student_t_quantile

NAMES = [f"impl{i}" for i in range(6)]


def session(rng, changes, *, pace=1.0, repeats=6, rounds=30, noise=0.05, between=0.004, failed=()):
    """A run in which each implementation takes `changes` times as long; the pace strikes all, the anchor too."""
    moods = pace * np.exp(0.2 * rng.standard_normal((repeats, rounds)))

    def samples(times):
        own = np.exp(between * rng.standard_normal((repeats, 1)) + noise * rng.standard_normal((repeats, rounds)))
        return tuple(map(tuple, (times * moods * own).tolist()))

    cells = [
        Cell(name, failure=CandidateFailure("crashed", "time", "SIGSEGV"))
        if name in failed
        else Cell(name, samples(times))
        for name, times in zip(NAMES, changes, strict=True)
    ]
    comparison = CallComparison(
        OperatorCall("gemm", {"M": 8, "K": 8, "N": 8}), tuple(cells), CallWork(1.0, 1), "thread", "dense", samples(1.0)
    )
    return BenchRun(SCHEMA, "0", 0.0, "here", {"python": "3"}, 1, False, MachineRoofline(), (comparison,))


def test_a_change_is_found_although_the_second_session_ran_at_half_the_speed() -> None:
    rng = np.random.default_rng(0)
    before = session(rng, [1.0] * 6)
    after = session(rng, [1.0, 1.1, 0.9, 1.0, 1.05, 1.0], pace=2.0)
    found = compare_runs(before, after)
    assert [change.verdict for change in found.changes] == ["same", "slower", "faster", "same", "slower", "same"]
    slower = found.changes[1]
    assert slower.low < 1.1 < slower.high
    assert found.regressed
    lines = describe_changes(found)
    assert lines[-1].startswith("3 others   no change beyond")
    assert any("slower" in line and "impl1" in line for line in lines)


def test_what_did_not_change_is_reported_in_at_most_one_comparison_of_twenty() -> None:
    rng = np.random.default_rng(1)
    alarms = sum(
        compare_runs(session(rng, [1.0] * 6), session(rng, [1.0] * 6, pace=1.3), margin=0.0).regressed
        for _ in range(60)
    )
    assert alarms <= 0.05 * 60


def test_a_difference_between_processes_is_part_of_the_doubt_if_there_are_repeats_to_show_it() -> None:
    run = session(np.random.default_rng(2), [1.0] * 6, between=0.05, noise=0.002)
    comparison = run.comparisons[0]
    for cell in comparison.cells:
        repeats = log_ratios(cell.samples, comparison.anchors)
        assert estimate(repeats).error > 5 * estimate([np.concatenate(repeats)[:30]]).error
        _, low, high = estimate(repeats).bounds(0.001)
        assert low < 1 < high


def test_who_crashes_now_is_broken_and_who_did_before_is_mended() -> None:
    rng = np.random.default_rng(3)
    found = compare_runs(
        session(rng, [1.0] * 6, failed=["impl0", "impl2"]), session(rng, [1.0] * 6, failed=["impl1", "impl2"])
    )
    assert [change.verdict for change in found.changes[:3]] == ["mended", "broken", "failing"]
    assert found.regressed
    assert any("broken: crashed (time): SIGSEGV" in line for line in describe_changes(found))


def test_runs_of_other_machines_or_of_few_repeats_say_so() -> None:
    rng = np.random.default_rng(4)
    before = session(rng, [1.0] * 6, repeats=2)
    after = msgspec.structs.replace(before, machine="elsewhere", toolchain={"python": "4"}, complaints=("it was loud",))
    said = " ".join(compare_runs(before, after).notes)
    for part in ("different machines", "python 3, then on python 4", "fewer than three repeats", "after: it was loud"):
        assert part in said


def test_runs_without_a_cell_in_common_are_refused() -> None:
    run = session(np.random.default_rng(5), [1.0] * 6)
    empty = msgspec.structs.replace(run, comparisons=())
    with pytest.raises(StoreError, match="no cell in common"):
        compare_runs(run, empty)


def test_a_run_is_the_same_after_it_was_saved(tmp_path) -> None:
    run = session(np.random.default_rng(6), [1.0] * 6, failed=["impl3"])
    save_run(run, tmp_path / "a")
    assert load_run(tmp_path / "a") == run
    with pytest.raises(StoreError, match=r"no run in .*; make one with: tunewright bench --save"):
        load_run(tmp_path / "b")
    (tmp_path / "a" / "run.json").write_text("{}")
    with pytest.raises(WireError, match=r"run\.json"):
        load_run(tmp_path / "a")


@pytest.mark.parametrize(
    ("freedom", "chance", "right"), [(1, 0.05, 12.706), (5, 0.05, 2.571), (2, 0.01, 9.925), (30, 0.002, 3.385)]
)
def test_quantiles_are_those_of_students_tables(freedom, chance, right) -> None:
    assert student_t_quantile(freedom, chance) == pytest.approx(right, rel=1e-3)


def test_two_doubts_together_are_larger_than_either_and_few_repeats_say_little() -> None:
    one, other = Estimate(0.1, 0.03, 4), Estimate(0.0, 0.04, 4)
    both = one.minus(other)
    assert both.error == pytest.approx(0.05)
    assert 4 < both.freedom <= 8
    assert Estimate(0.0, 0.01, 0).half_width() > 10
    assert estimate([]).half_width() > 10
