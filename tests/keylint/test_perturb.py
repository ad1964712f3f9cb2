"""What a key does not see: perturbations of a call, and who wins under them."""

import os
import signal

import numpy as np
import pytest

import tunewright as tw
from tunewright.cases.inputs import Inputs
from tunewright.errors import NothingWorked
from tunewright.keylint.perturb import MAX_CANDIDATES, PlacedArguments, PlacedWorkload, candidates, perturb_kernel
from tunewright.keylint.perturbations import PAGE, VALUE_CHANGES, PerturbationKind, perturbations
from tunewright.measure.evaluator import Evaluator
from tunewright.measure.race import RaceOptions
from tunewright.model.decision import Decision, Evidence, Finalist
from tunewright.model.trial import Timing, Trial
from worked_time import work

WAYS = tw.Space(tw.Knob("way", ["plain", "other"]))


pytestmark = pytest.mark.usefixtures("by_work")


def tuned(function, space=WAYS, **declared):
    return tw.tune(space, session=tw.Session(pool="serial"), **declared)(function)


def many_zeros(x: tw.In("N"), *, way):
    work(600 if way == "plain" else 1200 if np.count_nonzero(x) > len(x) // 2 else 200)


def by_place(x: tw.In("N"), *, way):
    work(600 if way == "plain" else 1200 if x.ctypes.data % 64 else 200)


def off_line(N):  # noqa: N803 - a size's name
    """Bytes that begin 16 after a cache line."""
    whole = np.zeros(N + 128, np.uint8)
    start = -whole.ctypes.data % 64 + 16
    return [whole[start : start + N]]


def steady(x: tw.In("N"), *, way):
    work(600 if way == "plain" else 900)


def by_float(x: tw.In("N"), alpha: float = 1.0, *, way):
    work(600 if way == "plain" else 1200 if alpha else 200)


def by_size(x: tw.In("N"), *, way):
    work(600 if way == "plain" else 10 * len(x))


def named(kernel, sizes):
    return {one.name: one for one in perturbations(kernel, sizes, kernel.example(sizes))}


def test_values_change_and_nothing_else() -> None:
    kernel = tuned(steady)
    args = kernel.example({"N": 200})
    made = named(kernel, {"N": 200})
    assert set(VALUE_CHANGES) <= set(made)
    for name in VALUE_CHANGES:
        (other,) = made[name].make()
        assert (other.shape, other.dtype) == (args[0].shape, args[0].dtype)
        assert not np.array_equal(other, args[0])
        assert np.isfinite(other).all()
    assert (np.diff(made["ascending"].make()[0]) >= 0).all()
    assert np.count_nonzero(made["sparse"].make()[0]) < 40
    assert len(np.unique(made["few"].make()[0])) <= 4
    denormal = made["denormal"].make()[0]
    assert ((denormal > 0) & (denormal < np.finfo(np.float32).tiny)).all()
    np.testing.assert_array_equal(np.sort(made["shuffled"].make()[0]), np.sort(args[0]))


def test_integers_stay_within_what_they_were_since_they_may_be_places() -> None:
    def picked(x: tw.In("N"), i: tw.In("N"), *, way):
        return x[i]

    def inputs(N):  # noqa: N803 - a size's name
        return [np.ones(N, np.float32), np.arange(5, N + 5) % (N - 5) + 5]

    kernel = tuned(picked, inputs=inputs)
    before = kernel.example({"N": 50})[1]
    for one in named(kernel, {"N": 50}).values():
        places = one.make()[1]
        assert places.min() >= before.min()
        assert places.max() <= before.max()


def test_arrays_lie_where_they_were_put_also_when_they_are_copied_to_be_raced() -> None:
    def pair(a: tw.In("N"), b: tw.In("N"), y: tw.Out("N"), *, way):
        y[:] = a + b

    kernel = tuned(pair)
    made = named(kernel, {"N": 100})
    for offset in (0, 4, 8, 16, 32):
        args = made[f"offset {offset}"].make()
        assert all(arg.ctypes.data % PAGE == offset for arg in args)
        assert all(value.ctypes.data % PAGE == offset for value in PlacedArguments(kernel.parameters, args).values)
    aliased = PlacedArguments(kernel.parameters, made["aliased"].make())
    assert aliased.values[0] is aliased.values[1]
    frozen = PlacedArguments(kernel.parameters, made["read-only"].make())
    assert [value.flags.writeable for value in frozen.values] == [False, False, True]
    frozen.reset()
    np.testing.assert_array_equal(frozen.values[0], frozen.pristine[0])
    frozen._guarded[2][1][5] = 0  # in the guard before it
    assert "before the beginning of y" in frozen.damage()


def test_other_values_lie_where_the_given_ones_did() -> None:
    kernel = tuned(by_place, inputs=off_line)
    before = kernel.example({"N": 64})
    for one in perturbations(kernel, {"N": 64}, before):
        if one.sort is PerturbationKind.VALUES:
            assert one.make()[0].ctypes.data % PAGE == before[0].ctypes.data % PAGE


def test_sizes_are_the_smallest_the_middle_and_beyond_the_last_edge() -> None:
    kernel = tuned(by_size, buckets={"N": [32, 128]})
    assert {"N=33", "N=80", "N=512"} <= set(named(kernel, {"N": 128}))
    powers = tuned(by_size, buckets={"N": "pow2"})
    sizes = [one.name for one in named(powers, {"N": 128}).values() if one.sort is PerturbationKind.SIZE]
    assert sizes == ["N=65", "N=96"]


def test_what_the_key_does_not_see_and_changes_the_winner_is_found_with_its_ratios() -> None:
    found = perturb_kernel(tuned(many_zeros), {"N": 64}, only=["zeros", "ones", "sparse"])
    assert found.winner == tw.Config(way="plain")
    assert [change.name for change in found.changes] == ["zeros", "sparse"]
    assert {change.sort for change in found.changes} == {PerturbationKind.VALUES}
    for change in found.changes:
        assert (change.winner["way"], change.other["way"]) == ("plain", "other")
        assert change.gain.low > 1.05
        assert change.reverse.low > 1.05
        assert "bool" in change.remedy
    assert not found.sound
    assert not found.troubles


@pytest.mark.parametrize(
    ("function", "declared", "sizes", "name"),
    [
        (by_place, {"inputs": off_line}, {"N": 64}, "offset 0"),
        (by_float, {}, {"N": 8}, "alpha=0"),
        (by_size, {"buckets": {"N": [128]}}, {"N": 128}, "N=1"),
    ],
)
def test_places_floats_and_sizes_within_a_bucket_are_found_too(function, declared, sizes, name) -> None:
    found = perturb_kernel(tuned(function, **declared), sizes, only=[name])
    assert [change.name for change in found.changes] == [name]


def test_a_steady_kernel_is_sound_and_what_its_key_holds_is_not_tried() -> None:
    found = perturb_kernel(tuned(steady), {"N": 64}, only=["sparse", "offset 4", "gaps"])
    assert found.sound
    assert found.tried == ("sparse", "offset 4")
    assert "signature.args.0 is float32[N]:order(0)+gaps" in found.apart["gaps"]


def test_an_int_is_in_the_key_and_is_not_tried() -> None:
    def counted(x: tw.In("N"), times: int = 3, *, way):
        work(100 * times)

    found = perturb_kernel(tuned(counted), {"N": 8}, only=["times=4"])
    assert found.tried == ()
    assert "int=4, not int=3" in found.apart["times=4"]


def test_what_we_cannot_perturb_is_said() -> None:
    def labelled(x: tw.In("N"), label: str = "a", *, way):
        work(100)

    assert perturb_kernel(tuned(labelled), {"N": 8}, only=["zeros"]).apart == {"label": "a str is passed as it is"}


def test_results_that_are_wrong_under_a_perturbation_are_reported() -> None:
    found = perturb_kernel(tuned(lowest, reference=np.min), {"N": 64}, only=["positive", "ascending"])
    assert [(one.name, one.config) for one in found.troubles] == [("positive", tw.Config(way="other"))]
    assert "the reference gives" in found.troubles[0].reason
    assert not found.sound


def lowest(x: tw.In("N"), *, way):
    return x.min() if way == "plain" else min(x.min(), np.float32(0))


def fatal(x: tw.In("N"), *, way):
    if way == "other" and not x.any():
        os.kill(os.getpid(), signal.SIGSEGV)
    return float(x.sum())


def test_a_crash_under_a_perturbation_is_reported_and_not_ours() -> None:
    kernel = tw.tune(WAYS, session=tw.Session())(fatal)
    found = perturb_kernel(kernel, {"N": 8}, only=["zeros", "ones"])
    assert [(one.name, one.config) for one in found.troubles] == [("zeros", tw.Config(way="other"))]
    assert "SIGSEGV" in found.troubles[0].reason


def test_a_reference_that_fails_is_said_and_the_rest_goes_on() -> None:
    def picky(x):
        if not x.any():
            raise ValueError("nothing there")
        return x.sum()

    found = perturb_kernel(tuned(summed, reference=picky), {"N": 8}, only=["zeros", "ones"])
    assert [(one.name, one.config) for one in found.troubles] == [("zeros", None)]
    assert "nothing there" in found.troubles[0].reason
    assert found.tried == ("zeros", "ones")


def summed(x: tw.In("N"), *, way):
    return x.sum()


def test_where_all_are_wrong_the_judge_may_be_and_where_all_fail_it_is_said_once() -> None:
    def rounded(x: tw.In("N"), *, way):
        return x.sum() if np.ptp(x) else x.sum() + 1

    found = perturb_kernel(tuned(rounded, reference=np.sum), {"N": 8}, only=["zeros", "ascending"])
    assert found.tried == ("ascending",)
    assert found.apart["zeros"].startswith("every candidate would be wrong: ")
    assert found.sound

    def picky(x: tw.In("N"), *, way):
        if not x.any():
            raise ValueError("nothing there")
        return x.sum()

    (trouble,) = perturb_kernel(tuned(picky, reference=np.sum), {"N": 8}, only=["zeros"]).troubles
    assert (trouble.config, trouble.reason) == (None, "every candidate fails: ValueError: nothing there")


def test_who_is_wrong_unperturbed_is_no_candidate() -> None:
    found = perturb_kernel(tuned(lowest, reference=np.min, inputs=positive), {"N": 8}, only=["ones"])
    assert found.candidates == 1
    assert found.sound


def positive(N):  # noqa: N803 - a size's name
    return [np.arange(1, N + 1, dtype=np.float32)]


def test_where_nothing_works_there_is_nothing_to_perturb() -> None:
    def broken(x: tw.In("N"), *, way):
        raise ValueError("never")

    with pytest.raises(NothingWorked, match="unperturbed"):
        perturb_kernel(tuned(broken, reference=np.sum), {"N": 8})


def test_of_many_configs_the_decided_the_ties_the_default_and_the_best_of_each_value_are_candidates() -> None:
    def wide(x: tw.In("N"), *, tile, order):
        return x.sum()

    kernel = tuned(wide, tw.Space(tw.Knob("tile", range(20)), tw.Knob("order", ["a", "b"])))
    problem = kernel.problem(kernel.example({"N": 8}))
    assert len(candidates(kernel, problem, None)) == MAX_CANDIDATES
    trials = [Trial(config, Timing((1.0 + config["tile"] + (config["order"] == "b"),))) for config in kernel.space]
    kernel.session.store.record(problem.key, trials)
    best, tie = tw.Config(tile=0, order="a"), tw.Config(tile=3, order="b")
    evidence = Evidence(1.0, 1.0, 1.0, ties=(Finalist(tie, 1.0, 1.0, 1.0),))
    chosen = candidates(kernel, problem, Decision(problem.key, best, evidence))
    assert {best, tie, kernel.default, tw.Config(tile=0, order="b")} <= set(chosen)
    assert len(chosen) == len(set(chosen)) == MAX_CANDIDATES


def test_an_arranged_bench_races_on_the_arguments_as_they_lie() -> None:
    seen = []

    def watched(x: tw.In("N"), *, way):
        seen.append(x.ctypes.data % PAGE)

    kernel = tuned(watched)
    usual = kernel.make_evaluator((Inputs(),), kernel.kernel.cache).workload
    args = named(kernel, {"N": 64})["offset 32"].make()
    shared = (usual.backend, usual.kernel, (Inputs(),), usual.default, usual.check, usual.timing)
    evaluator = Evaluator(PlacedWorkload(*shared, make=lambda _: args))
    assert not evaluator.race(list(kernel.space), RaceOptions(rounds=6)).is_empty
    assert set(seen) == {32}
