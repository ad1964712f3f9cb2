"""Every planted cause is found where it is, its remedy removes it, and the healthy are left alone."""

import json
import re
from pathlib import Path

import healthy
import pytest
import torch

from tunewright.errors import SignatureError
from tunewright.torch import doctor
from tunewright.torch.diagnostics.doctor import examine_target
from tunewright.torch.report.diagnosis import Cause, CodeLocation, as_dict, describe, render_page

SUBJECTS = Path(__file__).parent / "subjects"
COMPILED = {"bypassing", "inert", "missing"}
QUICK = sorted(path.stem for path in SUBJECTS.glob("*.py") if path.stem not in COMPILED)


def planted(name, mark="# planted: "):
    """What is wrong with a subject, by line, as its source says."""
    lines = enumerate((SUBJECTS / f"{name}.py").read_text().splitlines(), 1)
    return {(number, Cause(line.partition(mark)[2])) for number, line in lines if mark in line}


def examine(module, which, **options):
    return examine_target(getattr(module, which)(), CodeLocation(module.__file__), options)


def found(diagnosis, name):
    file = str(SUBJECTS / f"{name}.py")
    return {(one.place.line, one.cause) for one in diagnosis.symptoms if one.place.file == file}


@pytest.mark.parametrize("name", QUICK)
def test_what_is_planted_is_found_at_its_line_and_nothing_else_is(name, subject):
    diagnosis = examine(subject(name), "make", backend="eager")
    assert planted(name)
    assert planted(name) <= found(diagnosis, name), list(describe(diagnosis))
    # All subjects are tiny, which is a symptom too.
    assert {one.cause for one in diagnosis.symptoms} - {Cause.SMALL} <= {cause for _, cause in planted(name)}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_advice_applied_removes_the_cause(name, subject):
    diagnosis = examine(subject(name), "healed", backend="eager")
    assert not {one.cause for one in diagnosis.symptoms} - {Cause.SMALL}, list(describe(diagnosis))
    assert Cause.SMALL not in {cause for _, cause in planted(name)} or not diagnosis.symptoms


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COMPILED))
def test_what_only_inductor_shows_is_found_and_its_advice_removes_it(name, subject):
    module = subject(name)
    with torch.no_grad():
        diagnosis, after = examine(module, "make"), examine(module, "healed")
    expected = planted(name) | planted(name, "# follows: ")
    assert expected <= found(diagnosis, name), list(describe(diagnosis))
    assert {one.cause for one in diagnosis.symptoms} - {Cause.SMALL} == {cause for _, cause in expected}
    assert not {cause for _, cause in planted(name)} & {one.cause for one in after.symptoms}, list(describe(after))


FIRST = healthy.EVERYONE[0]


@pytest.mark.parametrize(
    "make",
    [FIRST, *(pytest.param(make, marks=pytest.mark.slow) for make in healthy.EVERYONE if make is not FIRST)],
    ids=lambda make: make.__name__,
)
def test_the_healthy_are_left_alone(make):
    diagnosis = examine_target(make(), CodeLocation(healthy.__file__), {"backend": "eager"})
    assert diagnosis.healthy, list(describe(diagnosis))


@pytest.mark.slow
@pytest.mark.parametrize("make", [healthy.layer, healthy.layer_in_bfloat16, healthy.convolution])
def test_the_healthy_are_left_alone_by_inductor_too(make):
    diagnosis = examine_target(make(), CodeLocation(healthy.__file__), {})
    assert diagnosis.healthy, list(describe(diagnosis))
    assert dict(diagnosis.phases)["C++ compiler"] > 0
    assert not diagnosis.notes


def test_a_recompilation_for_a_size_comes_with_the_measured_cost_of_dynamic_shapes(subject):
    (size,) = examine(subject("lengths"), "make", backend="eager").of(Cause.SIZE)
    assert "mark_dynamic(x, 0)" in size.remedy
    assert re.search(r"dynamic=True: [\d.]+x the time of a call, no recompilation left", size.remedy)
    assert size.once > 0


def test_a_function_that_is_given_up_is_said_to_be(subject):
    (loud,) = examine(subject("looping"), "make", backend="eager").of(Cause.PRINT)
    assert "gives up on the whole function" in loud.wrong


def test_more_recompilations_than_allowed_are_said_to_end_in_python(subject):
    model, call, *_ = subject("counting").make()
    diagnosis = doctor(model, *call, more=[call] * 9, backend="eager")
    (value,) = diagnosis.of(Cause.VALUE)
    assert "after 8 times PyTorch gives up" in value.wrong


def test_a_compiler_that_computes_something_else_is_found_by_layer():
    def wrong(graph, _):
        return lambda *given: tuple(one * 1.01 if one.dtype.is_floating_point else one for one in graph(*given))

    model, call = healthy.mlp()
    diagnosis = doctor(model, *call, backend=wrong)
    said = " ".join(one.wrong for one in diagnosis.of(Cause.NUMERICS))
    assert "compiled, though not run by Python" in said
    assert diagnosis.symptoms[0].cause is Cause.NUMERICS, "wrong results come before slow ones"


@pytest.mark.slow
def test_layers_are_judged_one_by_one_when_asked_for():
    model, call = healthy.layer()
    diagnosis = doctor(model, *call, layers=True, backend="eager")
    assert {"the whole model", "joint", "wide", "after"} <= {one.layer for one in diagnosis.drifts}
    assert all(one.eager < 1e-5 for one in diagnosis.drifts)


def test_random_results_are_not_judged_and_that_is_said():
    diagnosis = examine_target(healthy.training(), CodeLocation(), {"backend": "eager"})
    assert any("random" in note for note in diagnosis.notes)
    assert not diagnosis.drifts


def test_a_loop_that_waits_for_its_results_ends_though_graphs_only_remember():
    def halved(x):
        while x.sum() > 100:
            x = x * 0.5
        return x

    diagnosis = doctor(halved, torch.ones(64, 64), backend="eager")
    assert diagnosis.of(Cause.BRANCH)
    assert "compiled" in dict(diagnosis.times)


def test_a_call_is_not_taken_for_a_print_because_a_hint_names_one():
    def reading(x):
        x = x * 2
        open("/dev/null").close()
        return x + 1

    diagnosis = doctor(reading, torch.ones(8), backend="eager")
    assert diagnosis.of(Cause.CALL)
    assert not diagnosis.of(Cause.PRINT)


def test_symptoms_are_ranked_by_the_time_at_stake(subject):
    diagnosis = examine(subject("mixed"), "make", backend="eager")
    stakes = [one.stake(diagnosis.calls) for one in diagnosis.symptoms]
    assert stakes == sorted(stakes, reverse=True)
    assert stakes[-1] > 0


def test_a_look_leaves_the_model_as_it_was(subject):
    model, *calls = subject("counting").make()
    doctor(model, *calls[0], more=calls[1:], backend="eager")
    assert model.step == 0


def test_a_diagnosis_reads_as_text_as_json_and_as_a_page(subject):
    diagnosis = examine(subject("branch"), "make", backend="eager")
    symptoms = json.loads(json.dumps(as_dict(diagnosis)))["symptoms"]  # in an order that depends on their times
    assert ("graph break", "branch", 7) in [(one["kind"], one["cause"], one["place"]["line"]) for one in symptoms]
    text = "\n".join(describe(diagnosis))
    assert "if x.sum() > 0:" in text
    assert "torch.where" in text
    html = render_page(diagnosis)
    assert "if x.sum() &gt; 0:" in html
    assert "<script" not in html


def test_what_is_no_call_is_refused():
    with pytest.raises(SignatureError, match="return model"):
        examine_target(torch.nn.Linear(2, 2), CodeLocation(), {})
