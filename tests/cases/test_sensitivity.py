"""Results near zero are compared relative to the terms they are made of, so that honest kernels are not accused."""

from pathlib import Path

import numpy as np
import pytest

import tunewright as tw
from tunewright.backends.python import Python
from tunewright.cases import expected
from tunewright.cases.inputs import Array, Inputs
from tunewright.cases.sensitivity import sensitivities
from tunewright.cases.validation import Content
from tunewright.errors import BackendError
from tunewright.measure.judge import KernelJudge
from tunewright.measure.kernel_workload import CheckOptions, KernelWorkload
from tunewright.model.signature import Parameter
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import Config

SEEDS = 2000


def total(x: tw.In("N")):
    return x.sum()


def judge_of(function, reference, count):
    kernel = Kernel("kernel", function, Parameter.of(function, []), Path())
    cases = (Inputs(tuple(Array((count,), "float32") for _ in kernel.parameters)),)
    return KernelJudge(KernelWorkload(Python(), kernel, cases, Config(), CheckOptions(reference)))


def problems(judge, compute, seeds=SEEDS):
    """Returns what is found wrong with a kernel's results on so many contents."""
    found = []
    for seed in range(seeds):
        results = judge._workload.prepare_case(0, seed).run(compute)
        found.append(judge.compare(Content(0, seed), results))
    return [problem for problem in found if problem]


def in_single_precision(x):
    result = np.float32(0)
    for value in x:
        result += value
    return result


@pytest.mark.parametrize("reference", [lambda x: x.sum(), None])
@pytest.mark.slow
def test_an_honest_sum_is_never_accused_however_near_to_zero_it_is(reference, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(expected, "sensitivities", lambda *args: asked.append(args) or sensitivities(*args))
    assert problems(judge_of(total, reference, 64), in_single_precision) == []
    assert asked, "no sum was near zero"


@pytest.mark.parametrize("wrong", [lambda x: x.sum() * 1.001, lambda x: x[1:].sum(), lambda x: x.sum() + 1e-3])
def test_a_wrong_sum_is_found_on_most_contents(wrong) -> None:
    assert len(problems(judge_of(total, lambda x: x.sum(), 64), wrong, 300)) > 280


def test_a_result_may_move_as_far_as_its_terms_are_large() -> None:
    x = np.array([1e6, -1e6 + 1, 3.0])
    moved = sensitivities(lambda nudge: [nudge(x).sum(), nudge(x)], [x.sum(), x])
    assert 1e6 < moved[0] < 2.1e6
    np.testing.assert_allclose(moved[1], np.abs(x), rtol=1e-3)


def test_what_is_not_a_number_or_cannot_be_computed_again_does_not_move() -> None:
    def refuse(nudge):
        raise BackendError("not normalized")

    assert sensitivities(refuse, [np.ones(3)])[0].tolist() == [0, 0, 0]
    assert sensitivities(lambda nudge: [["a", [1]], np.arange(3)], [["b", [1]], np.ones(3, int)])[1].tolist() == [0] * 3
    assert sensitivities(lambda nudge: [np.ones(2), np.nan], [np.ones(3), 1.0])[1] == 0
