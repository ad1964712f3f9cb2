"""Every planted cause is found where it is, its remedy removes it, and the healthy are left alone."""

import json
import re
from pathlib import Path

import healthy
import pytest
import torch

from tunewright.errors import SignatureError
from tunewright.fronts.torch.doctor import examine_made
from tunewright.report.diagnosis import Cause, Place, page, plain, told
from tunewright.torch import doctor

PATIENTS = Path(__file__).parent / "patients"
COMPILED = {"bypassing", "inert", "missing"}
QUICK = sorted(path.stem for path in PATIENTS.glob("*.py") if path.stem not in COMPILED)


def planted(name, mark="# planted: "):
    """What is wrong with a patient, by line, as its source says."""
    lines = enumerate((PATIENTS / f"{name}.py").read_text().splitlines(), 1)
    return {(number, Cause(line.partition(mark)[2])) for number, line in lines if mark in line}


def look(module, which, **how):
    return examine_made(getattr(module, which)(), Place(module.__file__), how)


def found(diagnosis, name):
    file = str(PATIENTS / f"{name}.py")
    return {(one.place.line, one.cause) for one in diagnosis.symptoms if one.place.file == file}


@pytest.mark.parametrize("name", QUICK)
def test_what_is_planted_is_found_at_its_line_and_nothing_else_is(name, patient):
    seen = look(patient(name), "make", backend="eager")
    assert planted(name)
    assert planted(name) <= found(seen, name), list(told(seen))
    # All patients are tiny, which is a symptom too.
    assert {one.cause for one in seen.symptoms} - {Cause.SMALL} <= {cause for _, cause in planted(name)}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_advice_applied_removes_the_cause(name, patient):
    seen = look(patient(name), "healed", backend="eager")
    assert not {one.cause for one in seen.symptoms} - {Cause.SMALL}, list(told(seen))
    assert Cause.SMALL not in {cause for _, cause in planted(name)} or not seen.symptoms


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COMPILED))
def test_what_only_inductor_shows_is_found_and_its_advice_removes_it(name, patient):
    module = patient(name)
    with torch.no_grad():
        seen, after = look(module, "make"), look(module, "healed")
    expected = planted(name) | planted(name, "# follows: ")
    assert expected <= found(seen, name), list(told(seen))
    assert {one.cause for one in seen.symptoms} - {Cause.SMALL} == {cause for _, cause in expected}
    assert not {cause for _, cause in planted(name)} & {one.cause for one in after.symptoms}, list(told(after))


FIRST = healthy.EVERYONE[0]


@pytest.mark.parametrize(
    "make",
    [FIRST, *(pytest.param(make, marks=pytest.mark.slow) for make in healthy.EVERYONE if make is not FIRST)],
    ids=lambda make: make.__name__,
)
def test_the_healthy_are_left_alone(make):
    seen = examine_made(make(), Place(healthy.__file__), {"backend": "eager"})
    assert seen.healthy, list(told(seen))


@pytest.mark.slow
@pytest.mark.parametrize("make", [healthy.layer, healthy.layer_in_bfloat16, healthy.convolution])
def test_the_healthy_are_left_alone_by_inductor_too(make):
    seen = examine_made(make(), Place(healthy.__file__), {})
    assert seen.healthy, list(told(seen))
    assert dict(seen.phases)["C++ compiler"] > 0
    assert not seen.notes


def test_a_recompilation_for_a_size_comes_with_the_measured_cost_of_dynamic_shapes(patient):
    (size,) = look(patient("lengths"), "make", backend="eager").of(Cause.SIZE)
    assert "mark_dynamic(x, 0)" in size.remedy
    assert re.search(r"dynamic=True: [\d.]+x the time of a call, no recompilation left", size.remedy)
    assert size.once > 0


def test_a_function_that_is_given_up_is_said_to_be(patient):
    (loud,) = look(patient("looping"), "make", backend="eager").of(Cause.PRINT)
    assert "gives up on the whole function" in loud.wrong


def test_more_recompilations_than_allowed_are_said_to_end_in_python(patient):
    model, call, *_ = patient("counting").make()
    seen = doctor(model, *call, more=[call] * 9, backend="eager")
    (value,) = seen.of(Cause.VALUE)
    assert "after 8 times PyTorch gives up" in value.wrong


def test_a_compiler_that_computes_something_else_is_found_by_layer():
    def wrong(graph, _):
        return lambda *given: tuple(one * 1.01 if one.dtype.is_floating_point else one for one in graph(*given))

    model, call = healthy.mlp()
    seen = doctor(model, *call, backend=wrong)
    said = " ".join(one.wrong for one in seen.of(Cause.NUMERICS))
    assert "compiled, though not run by Python" in said
    assert seen.symptoms[0].cause is Cause.NUMERICS, "wrong results come before slow ones"


def test_layers_are_judged_one_by_one_when_asked_for():
    model, call = healthy.layer()
    seen = doctor(model, *call, layers=True, backend="eager")
    assert {"the whole model", "joint", "wide", "after"} <= {one.layer for one in seen.drifts}
    assert all(one.eager < 1e-5 for one in seen.drifts)


def test_random_results_are_not_judged_and_that_is_said():
    seen = examine_made(healthy.training(), Place(), {"backend": "eager"})
    assert any("random" in note for note in seen.notes)
    assert not seen.drifts


def test_a_loop_that_waits_for_its_results_ends_though_graphs_only_remember():
    def halved(x):
        while x.sum() > 100:
            x = x * 0.5
        return x

    seen = doctor(halved, torch.ones(64, 64), backend="eager")
    assert seen.of(Cause.BRANCH)
    assert "compiled" in dict(seen.times)


def test_a_call_is_not_taken_for_a_print_because_a_hint_names_one():
    def reading(x):
        x = x * 2
        open("/dev/null").close()
        return x + 1

    seen = doctor(reading, torch.ones(8), backend="eager")
    assert seen.of(Cause.CALL)
    assert not seen.of(Cause.PRINT)


def test_symptoms_are_ranked_by_the_time_at_stake(patient):
    seen = look(patient("mixed"), "make", backend="eager")
    stakes = [one.stake(seen.calls) for one in seen.symptoms]
    assert stakes == sorted(stakes, reverse=True)
    assert stakes[-1] > 0


def test_a_look_leaves_the_model_as_it_was(patient):
    model, *calls = patient("counting").make()
    doctor(model, *calls[0], more=calls[1:], backend="eager")
    assert model.step == 0


def test_a_diagnosis_reads_as_text_as_json_and_as_a_page(patient):
    seen = look(patient("branch"), "make", backend="eager")
    (branch,) = json.loads(json.dumps(plain(seen)))["symptoms"][:1]
    assert (branch["kind"], branch["cause"], branch["place"]["line"]) == ("graph break", "branch", 7)
    text = "\n".join(told(seen))
    assert "if x.sum() > 0:" in text
    assert "torch.where" in text
    drawn = page(seen)
    assert "if x.sum() &gt; 0:" in drawn
    assert "<script" not in drawn


def test_what_is_no_call_is_refused():
    with pytest.raises(SignatureError, match="return model"):
        examine_made(torch.nn.Linear(2, 2), Place(), {})
