"""Configs that win without computing are never chosen, wherever they cheat; the fake driver computes (rung 2)."""

from math import inf

import pytest

import corpus
import tunewright as tw
from tunewright.triton import adapter

launches = corpus.load("triton_launches")
CASES = corpus.cases("triton", cheats=True)
CHEATING = launches.CHEATING


def tuned(name, **options):
    """The kernel after a call, which raises if the caller finds anything but what is right."""
    return launches.tune_call(CASES[name].kernel, **options)


def failures():
    store = tw.current_session().store
    (key,) = store.keys()
    return {trial.config["BLOCK"]: trial.outcome for trial in store.trials(key) if not trial.works}


def test_there_are_twenty_five():
    assert len(CASES) >= 25


@pytest.mark.parametrize("referred", [True, False], ids=["reference", "default"])
@pytest.mark.parametrize("name", CASES)
def test_a_cheat_is_not_chosen(name, referred):
    kernel = tuned(name, reference=CASES[name].kernel.options.get("reference") if referred else None)
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert {block: str(failure.kind) for block, failure in failures().items()} == {CHEATING: "wrong"}
    assert {config.kwargs["BLOCK"]: times for config, times in kernel.configs_timings.items()}[CHEATING] == [inf] * 3


@pytest.mark.parametrize("name", CASES)
def test_a_cheat_would_be_chosen_if_results_were_not_compared(name, monkeypatch):
    """Or else it does not gain, and is no attack."""
    monkeypatch.setattr(adapter, "has_results", lambda: False)
    call = CASES[name].kernel._replace(repeats=False)  # nor does anybody look at the results of the call
    kernel = launches.tune_call(call)
    assert kernel.best_config.kwargs == {"BLOCK": CHEATING}
    assert failures() == {}


def test_the_failure_says_at_which_launch_and_by_whom_it_was_found():
    tuned("computes_at_first", reference=None)
    reason = failures()[CHEATING].reason
    assert "out_ptr is wrong in" in reason
    assert "the default config gives" in reason
    assert "declare reference= or tolerance=" in reason
    assert "(launch " in reason


def test_a_kernel_that_writes_an_input_says_which():
    tuned("writes_an_input")
    assert "it changed y_ptr, which it should only read" in failures()[CHEATING].reason
    assert "x_ptr" not in failures()[CHEATING].reason


def test_a_kernel_that_writes_past_its_output_says_so():
    tuned("writes_past_its_output")
    assert "it changed memory beside out_ptr" in failures()[CHEATING].reason


def test_by_the_benchmark_of_a_user_results_are_judged_too():
    def bench(call, quantiles):
        call()
        return [1.0 / benched.pop(0)] * 3

    benched = [32, 64, 128]
    kernel = tuned("computes_at_first", do_bench=bench)
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert str(failures()[CHEATING].kind) == "wrong"
    assert benched == []  # each was benchmarked once
