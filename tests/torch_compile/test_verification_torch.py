"""What computes something else while it is timed is never chosen; what is honest is not refused."""

from random import Random

import pytest
import torch

import corpus
from tunewright import Config, Knob, Session, Space
from tunewright.measure.evaluator import Evaluator, EvaluatorOptions
from tunewright.measure.race import RaceOptions
from tunewright.model.decision import Problem
from tunewright.model.trial import Incumbent, TrialRequest
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY
from tunewright.torch.candidate import TorchTimingOptions
from tunewright.torch.oracle import Errors, ExpectedTensors, Oracle
from tunewright.torch.tensor_sets import CallArguments, TensorContents, TensorSet, bits_of, roll, scale, scale_by_size
from tunewright.torch.workload import TorchWorkload

calls = corpus.load("torch_calls")
CHEATS, HONEST = (corpus.cases("torch", cheats=cheats) for cheats in (True, False))
SIZE, right = calls.SIZE, calls.product
honest = calls.PRODUCT.honest
FEW_ROUNDS = RaceOptions(rounds=6, seconds=60.0, fixed=True)


def expect(values):
    return ExpectedTensors.of([right(*values)], [right(*(value.double() for value in values))])


def tune(ways, call, expect, **timing):
    """The decision between ways to compute something, of which the first is the default, and the trials."""
    built = {way.__name__: way for way in ways}
    workload = TorchWorkload("call", lambda config: built[config["how"]](), call, expect, TorchTimingOptions(**timing))
    problem = Problem(KEY, Space(Knob("how", list(built))), Config(how=ways[0].__name__))
    session = Session(store=MemoryStore(), pool="serial", strategy="exhaustive", min_expected_gain=0.0)
    decision = session.tune(problem, Evaluator(workload))
    return outcome(calls.Tuning(decision, list(session.store.trials(KEY)), ()))


def outcome(tuning):
    """The way that was chosen, and the trials by way."""
    return tuning.decision.config["how"], {trial.config["how"]: trial for trial in tuning.trials}


@pytest.fixture
def product():
    """A product with a weight, as arguments."""
    return CallArguments((torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)), constant=frozenset({1}))


TRIED = (
    "first_calls", "by_pointer", "one_call_late", "same_memory", "two_buffers", "stale_view", "writes_an_input",
    "writes_a_weight", "writes_an_input_later", "writes_between_rows", "decaying_precision", "one_wrong_element",
    "other_dtype", "late_thread", "now_and_then", "up_to_scale", "up_to_scale_of_structures", "knows_its_callers",
    "waits_for_poison", "waits_for_a_change",
)  # fmt: skip
"""Some of the corpus; `benchmarks/referee.py` tunes all."""


@pytest.mark.parametrize("name", TRIED)
def test_what_computes_something_else_is_never_chosen(name):
    chosen, trials = outcome(calls.tune(CHEATS[name], 0))
    assert chosen == "honest"
    assert trials["honest"].works
    assert not trials[name].works, "it is not faster, but it is wrong"


@pytest.mark.parametrize("name", ["by_two_values", "by_version"])
def test_what_remembers_results_by_their_contents_is_timed_on_new_ones(name):
    chosen, trials = outcome(calls.tune(CHEATS[name], 0))
    assert chosen == "honest"
    assert not trials[name].works or trials[name].seconds > 0.8 * trials["honest"].seconds


class Trusting:
    """A workload whose results nobody looks at, nor whether they are remembered."""

    def __init__(self, workload):
        self._workload = workload

    def __getattr__(self, name):
        return getattr(self._workload, name)

    def load(self, config, artifact):
        candidate = self._workload.load(config, artifact)
        candidate.verify = lambda seconds=0.0: (None, "")
        candidate.check = lambda draw, *, launches: None
        candidate._seconds_on_new_contents = lambda ratio, seconds: 0.0
        return candidate


SLOW = {name: pytest.param(name, marks=pytest.mark.slow) for name in CHEATS}
FEW = "first_calls", "writes_a_weight", "up_to_scale", "waits_for_poison", "late_thread"


@pytest.mark.parametrize("name", [*FEW, *(SLOW[name] for name in CHEATS if name not in FEW)])
def test_a_cheat_would_be_chosen_if_results_were_not_compared(name):
    """Or else it does not gain, and is no attack."""
    options = EvaluatorOptions(verified=False)
    chosen, trials = outcome(calls.tune(CHEATS[name], 0, lambda workload: Evaluator(Trusting(workload), options)))
    assert all(trial.works for trial in trials.values())
    assert chosen == name


@pytest.mark.parametrize("sample_seconds", [0.0, 0.01])
def test_a_finalist_that_fails_is_dropped_and_the_others_are_raced(product, sample_seconds):
    calls = []

    def breaks(x, w):
        calls.append(1)
        if len(calls) > 50:
            raise RuntimeError("out of order")
        return right(x, w)

    def decays(x, w):
        calls.append(1)
        return right(x, w) * (1 + 1e-3 * (len(calls) > 50))

    for wrong, kind in ((breaks, "raised"), (decays, "wrong")):
        calls.clear()
        ways = {"honest": honest(), "wrong": wrong, "plain": right}
        timing = TorchTimingOptions(sample_seconds=sample_seconds)
        workload = TorchWorkload("call", lambda config, ways=ways: ways[config["how"]], product, expect, timing)
        race = Evaluator(workload).race([Config(how=how) for how in ways], FEW_ROUNDS)
        assert {number: failure.kind for number, failure in race.failures.items()} == {1: kind}
        assert race.standings[0].samples
        assert race.standings[2].samples
        assert Config(how="wrong") not in workload.built


@pytest.mark.parametrize("name", sorted(set(HONEST) - {"takes_50_ms"}))
def test_what_is_honest_is_not_refused(name):
    call = HONEST[name].kernel
    evaluator = Evaluator(call.workload(name, call.arguments()))
    one, other = (Config(how=way) for way in call.ways)
    trials = [evaluator(TrialRequest(one)), evaluator(TrialRequest(other, Incumbent(one, 1e-5)))]
    assert [trial.outcome for trial in trials if not trial.works] == []
    assert evaluator.race([one, other], FEW_ROUNDS).failures == {}


def test_the_callers_tensors_are_left_alone(product):
    held = torch.randn(SIZE)
    call = CallArguments((product.values[0], product.values[1], held), frozenset({1}), frozenset({2}))
    before = [value.clone() for value in call.values]

    def way():
        return lambda x, w, held: held.add_(right(x, w).sum(0))

    def expect(values):
        result = values[2] + right(values[0], values[1]).sum(0)
        return ExpectedTensors.of([result, result], [result.double(), result.double()])

    tune([way], call, expect)
    assert all(map(torch.equal, call.values, before))
    assert call.values[1]._version == 0


def test_sets_lie_at_different_addresses_and_weights_are_the_same_objects(product):
    workload = TorchWorkload("call", lambda _: right, product, expect, TorchTimingOptions())
    workload.prepare()
    first, second = workload._sets
    assert first.values[0].data_ptr() != second.values[0].data_ptr() != product.values[0].data_ptr()
    assert first.values[1] is second.values[1] is product.values[1]


def test_large_arguments_have_one_set(product, monkeypatch):
    monkeypatch.setattr("tunewright.torch.workload.MAX_ROTATED_BYTES", 4 * SIZE * SIZE - 1)
    ways = [CHEATS[name].kernel.ways[name] for name in ("by_pointer", "first_calls")]
    chosen, trials = tune([honest, *ways], product, expect)
    assert chosen == "honest"
    assert [how for how, trial in trials.items() if trial.works] == ["honest"]


def test_draws_change_floats_and_nothing_else():
    x, mask = torch.randn(4, 4), torch.full((4,), -torch.inf)
    contents = TensorContents(
        CallArguments((x, torch.arange(4), torch.tensor([True]), mask, 7, torch.ones(2)), frozenset({5}))
    )
    contents.change = scale
    drawn, again, original = contents.make(5), contents.make(5), contents.make(0)
    assert not torch.equal(drawn[0], x)
    assert torch.equal(drawn[0], again[0])
    assert torch.equal(original[0], x)
    assert all(torch.equal(drawn[i], contents.call.values[i]) for i in (1, 2, 3))
    assert drawn[5] is contents.call.values[5]
    contents.seed = 9
    assert not torch.equal(contents.make(0)[0], x)


def test_a_change_that_shows_and_suits_is_found():
    def change(fn, *values, structured=True):
        contents = TensorContents(CallArguments(values, structured=structured))

        def expect(values):
            return ExpectedTensors.of([fn(*values)], [fn(*(value.double() for value in values))])

        Oracle(contents, expect).prepare()
        return contents.change

    x = torch.randn(16, 16)
    assert change(torch.exp, x) is scale_by_size
    assert change(torch.exp, x, structured=False) is roll
    assert change(lambda x: torch.nn.functional.layer_norm(x, (16,)), x) is scale_by_size
    assert change(torch.argmax, x) is roll  # does not show that it is scaled
    assert change(torch.sum, x, structured=False) is scale_by_size  # does not show where elements are
    assert change(torch.linalg.cholesky, torch.eye(8) * 4 + 1, structured=False) is scale_by_size
    assert (
        change(torch.linalg.cholesky, x @ x.t() + 1e-3 * torch.eye(16)) is scale
    )  # the other would not be positive definite
    assert change(lambda x: x.long(), torch.zeros(4)) is scale_by_size  # nothing shows, nothing is refused


def test_elements_scaled_by_their_size_keep_their_order_their_signs_and_their_dtype():
    for x in (torch.randn(64).sort().values, torch.randn(8, 8).bfloat16().t(), torch.zeros(3), torch.ones(1)):
        for seed in range(20):
            scaled = scale_by_size(x, Random(seed))
            assert scaled.dtype == x.dtype
            assert scaled.sign().equal(x.sign())
            order = x.flatten().argsort(stable=True)
            assert (scaled.flatten()[order].diff() >= 0).all()
    assert scale_by_size(torch.view_as_complex(torch.randn(8, 2)), Random(1)).is_complex()


def test_a_set_puts_back_what_a_launch_changes_and_says_what_it_must_not():
    call = CallArguments((torch.ones(3), torch.zeros(3), torch.ones(2)), frozenset({2}), frozenset({1}))
    contents = TensorContents(call)
    contents.change = scale
    own = TensorSet(contents)
    own.refresh(3)
    x, held, weight = own.values
    before = held.clone()
    held.add_(x)
    assert own.damage() is None
    own.restore()
    assert torch.equal(held, before)
    x[0] = 5
    assert own.damage() == "it wrote to its input 0"
    own.refresh(3)
    assert own.damage() is None
    weight.mul_(1)
    assert own.damage() == "it wrote to its input 2"


@pytest.mark.parametrize("change", [scale, scale_by_size, roll])
def test_copies_keep_their_strides_whatever_their_contents_are(change):
    sliced, turned = torch.randn(8, 12)[:, :8], torch.randn(8, 6).t()
    contents = TensorContents(CallArguments((sliced, turned, torch.randn(4, 1, 3))))
    contents.change, contents.seed = change, 5
    assert [value.stride() for value in contents.make(3)] == [(12, 1), (1, 6), (3, 3, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int64])
def test_writes_past_the_end_and_between_elements_are_seen(dtype):
    tensor = torch.ones(4, 6).to(dtype)[:, ::2]
    for written in (frozenset(), frozenset({0})):
        own = TensorSet(TensorContents(CallArguments((tensor,), written=written)))
        own.refresh(0)
        assert own.damage() is None
        for place in (1, 4 * 6 - 1):
            stray = own.values[0].as_strided((1,), (1,), place)
            before = bits_of(stray).clone()
            stray.zero_()
            assert "past the end of its argument 0" in own.damage()
            bits_of(stray).copy_(before)
            assert own.damage() is None


def test_nan_past_the_end_is_seen_as_an_unrolled_loop_without_a_remainder_writes_it():
    own = TensorSet(TensorContents(CallArguments((torch.ones(5), torch.ones(5)), written=frozenset({1}))))
    own.refresh(0)
    given, written = (value.as_strided((3,), (1,), 5) for value in own.values)
    written += 2 * given
    assert "past the end of its argument 1" in own.damage()


def test_an_exceptional_draw_does_not_allow_everything():
    contents = TensorContents(CallArguments((torch.ones(100),)))
    errors = iter([1e-6, 1e-6, 0.5])

    def expect(values):
        return ExpectedTensors([values[0].double()], [torch.float32], Errors(next(errors), 1.0))

    oracle = Oracle(contents, expect)
    oracle.prepare()
    assert oracle.usable(7) == 7
    assert "relative error" in oracle.compare(0, [torch.ones(100) * 1.1])
    assert oracle.compare(0, [torch.ones(100) * (1 + 1e-5)]) is None  # within what eager errors vary by


def test_what_overflows_in_eager_mode_does_not_allow_everything():
    x = torch.full((4,), 300.0, dtype=torch.float16)
    x[1:] = 1.0
    expected = ExpectedTensors.of([x * x], [x.double() * x.double()])
    assert expected.allowed.relative < 0.01
    assert expected.find_problem([x * x], expected.allowed) is None
    assert expected.find_problem([torch.tensor([60000.0, 1, 1, 1]).half()], expected.allowed) is None
    assert "relative error" in expected.find_problem([x * x * 2], expected.allowed)


def test_one_wrong_element_among_many_is_found_in_low_precision():
    """It is a small part of the norm, in which rounding errors of that precision are allowed."""
    exact = torch.randn(512, 512).double()
    expected = ExpectedTensors.of([exact.bfloat16()], [exact])
    wrong = exact.bfloat16()
    assert expected.find_problem([wrong], expected.allowed) is None
    wrong[-1, -1] += 3
    assert "an element" in expected.find_problem([wrong], expected.allowed)


def test_integers_may_differ_as_often_as_those_of_eager():
    exact, eager = torch.arange(100), torch.arange(100)
    eager[0] = 7
    expected = ExpectedTensors.of([eager], [exact])
    off = exact.clone()
    off[:4] = 99
    assert expected.find_problem([off], expected.allowed) is None
    off[:5] = 99
    assert "5.00% of its integers" in expected.find_problem([off], expected.allowed)
    assert ExpectedTensors.of([exact], [exact]).find_problem([eager], Errors()) is not None


def test_an_error_that_is_tiny_by_chance_does_not_bound_a_sum_of_numbers_that_cancel():
    x = torch.randn(2048)
    x -= x.mean()

    def expect(values):
        exact = values[0].double().sum()
        return ExpectedTensors.of([exact.float()], [exact.float().double()])  # as if eager mode had no error

    oracle = Oracle(TensorContents(CallArguments((x,))), expect)
    oracle.prepare()
    right, typical = float(x.double().sum()), 2**-23 * float(x.norm())
    assert oracle.compare(0, [torch.tensor(right + typical)]) is None
    assert "relative error" in oracle.compare(0, [torch.tensor(right + 100 * typical)])


def test_contents_that_do_not_suit_the_call_are_not_used():
    contents, seen = TensorContents(CallArguments((torch.ones(100),))), []

    def expect(values):
        seen.append(float(values[0][0]))
        if len(seen) > 2:
            raise RuntimeError("not positive definite")
        return ExpectedTensors.of([values[0].float()], [values[0].double()])

    oracle = Oracle(contents, expect)
    oracle.prepare()
    assert oracle.usable(7) == 0
    oracle.renew(11)
    assert contents.seed == 0


def test_a_sum_that_is_near_zero_on_some_contents_may_be_off_as_on_others(monkeypatch):
    monkeypatch.setattr("tunewright.torch.oracle.PERTURBATIONS", 0)
    exact, found = (
        ExpectedTensors([torch.tensor(1e-4).double()], [torch.float32], Errors(1e-5, 1e-4)),
        torch.tensor(9e-5),
    )
    assert "relative error" in exact.find_problem([found], exact.allowed)
    assert exact.find_problem([found], exact.allowed, norms=[2.0]) is None
    assert "relative error" in exact.find_problem([found + 1e-3], exact.allowed, norms=[2.0])
    sums = iter([2.0, 3.0, 1e-4])

    def expect(values):
        return ExpectedTensors([torch.tensor(next(sums)).double()], [torch.float32], Errors(1e-5, 1e-4))

    oracle = Oracle(TensorContents(CallArguments((torch.ones(4),))), expect)
    oracle.prepare()
    assert oracle.usable(7) == 7
    assert oracle.compare(7, [found]) is None
    assert oracle.compare(7, [found + 1e-3])
