"""Models are called as people call them: with keywords, dicts and lists, by every keyword of `torch.compile`."""

import logging
import time

import pytest
import torch

import tunewright.torch as tt
from tunewright.errors import SettingsError, SignatureError
from tunewright.session import Session
from tunewright.torch.calls import Call
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.compile_model import TuningBackend, make_problem
from tunewright.torch.inductor import adapter, graphs, releases
from tunewright.torch.overrides import Overrides
from tunewright.torch.resolver import Resolver

EAGER = {"graph *": "eager"}


class Masked(torch.nn.Module):
    """Takes keywords in another order than that of the alphabet, and returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, *, weight=None, bias=None, parts=()):
        y = self.linear(x) * weight + bias
        return {"sum": sum(parts, y), "y": y}


def masked():
    torch.manual_seed(0)
    return Masked().eval(), {"weight": torch.full((4,), 3.0), "bias": torch.full((4,), 5.0), "parts": [torch.ones(4)]}


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (torch.ones(2), ["float32[2]/[1]@cpu"]),
        ((torch.ones(2), 3), ["float32[2]/[1]@cpu", "3"]),
        ({"b": torch.ones(1), "a": True}, ["a=True", "b=float32[1]/[1]@cpu"]),
        (Call([torch.ones(1)], mask=None), ["float32[1]/[1]@cpu", "mask=None"]),
    ],
)
def test_a_call_is_written_as_it_comes(value, described) -> None:
    assert list(Call.read(value).describe()) == described


@pytest.mark.parametrize("value", [[torch.ones(2)], 3, {1: torch.ones(2)}])
def test_what_is_no_call_is_named_with_what_to_write(value) -> None:
    with pytest.raises(SignatureError, match=r"write its arguments as a tuple"):
        Call.read(value)


def test_tensors_in_lists_and_keywords_are_changed_too() -> None:
    call = Call([torch.ones(2)], deep={"x": (torch.ones(3), "text")})
    doubled = call.with_tensors(lambda tensor: 2 * tensor)
    assert [tensor.sum().item() for tensor in doubled.tensors()] == [4, 6]
    assert doubled.kwargs["deep"]["x"][1] == "text"
    assert [tensor.sum().item() for tensor in call.tensors()] == [2, 3]


def test_the_doctor_takes_keywords_beside_those_of_torch_compile() -> None:
    model, keywords = masked()
    with torch.no_grad():
        diagnosis = tt.doctor(model, torch.ones(2, 4), **keywords, backend="eager", dynamic=False)
    assert not [note for note in diagnosis.notes if "not checked" in note]


def test_the_doctor_takes_a_call_and_reports_on_layers() -> None:
    model, keywords = masked()
    with torch.no_grad():
        diagnosis = tt.doctor(model, Call(torch.ones(2, 4), **keywords), backend="eager", layers=True)
    assert {error.layer for error in diagnosis.drifts} == {"the whole model", "linear"}
    assert not [note for note in diagnosis.notes if "not checked" in note]


@pytest.mark.slow
def test_a_bundle_is_made_for_keywords_and_called_with_them(tmp_path) -> None:
    model, keywords = masked()
    x = torch.randn(2, 4)
    digest = tt.bundle(tmp_path / "m.bundle", model, Call(x, **keywords))
    loaded = tt.load(tmp_path / "m.bundle", pin=digest)
    with torch.no_grad():
        expected = model(x, **keywords)
    for given in (keywords, dict(reversed(keywords.items()))):
        got = loaded(x, **given)
        assert got.keys() == expected.keys()
        torch.testing.assert_close(got, expected)
    with pytest.raises(SignatureError, match=r"bias=float32\[4\].*weight=float32\[4\]"):
        loaded(x)


@pytest.mark.parametrize("mode", ["default", "max-autotune", "reduce-overhead"])
def test_every_mode_of_torch_compile_is_taken(mode) -> None:
    compiled = tt.compile(torch.sin, mode=mode, backend="inductor", overrides=EAGER)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), torch.sin(x))
    assert len(tt.decisions(compiled)) == 1


def test_it_is_a_decorator_with_options() -> None:
    @tt.compile(overrides=EAGER, budget="2,1s")
    def twice(x):
        return x + x

    assert twice(torch.ones(2)).tolist() == [2, 2]
    assert len(tt.decisions(twice)) == 1


def test_what_cannot_be_tuned_is_said_at_once() -> None:
    with pytest.raises(SettingsError, match=r"there is no mode 'fastest' of torch\.compile"):
        tt.compile(torch.sin, mode="fastest")
    with pytest.raises(SettingsError, match=r"for the backend 'eager', call torch\.compile itself"):
        tt.compile(torch.sin, backend="eager")


@pytest.mark.slow
@pytest.mark.parametrize(("training", "warned"), [(False, True), (True, False)])
def test_a_forgotten_no_grad_is_said_of_a_model_in_eval_mode(training, warned, caplog) -> None:
    model = torch.nn.Linear(2, 2).train(training)
    compiled = tt.compile(model, overrides=EAGER, mode="default")
    with caplog.at_level(logging.WARNING):
        compiled(torch.ones(1, 2)).sum().backward()
    assert ("call it under torch.no_grad()" in caplog.text) == warned
    assert tt.decisions(compiled) == {}


def test_a_symbolic_size_has_one_key_whatever_the_first_length_is() -> None:
    keys = set()
    for length in (7, 12, 90):
        torch.compiler.reset()
        compiled = tt.compile(lambda x: (x @ x.T).softmax(0), dynamic=True, overrides=EAGER)
        compiled(torch.ones(length, 4))
        (decision,) = tt.decisions(compiled).values()
        keys.add(decision.key.digest)
        assert decision.key.signature.args == ("size", "size", "float32[n0,n1]")
        assert decision.key.mode["shapes"].startswith("dynamic n0=2..")
    assert len(keys) == 1


def test_sizes_that_must_differ_or_be_equal_are_different_keys() -> None:
    keys = []
    for others in ((5, 6), (5, 5)):
        torch.compiler.reset()
        compiled = tt.compile(lambda x, y: x.sum() + y.sum(), dynamic=True, overrides=EAGER)
        compiled(*map(torch.ones, others))
        (decision,) = tt.decisions(compiled).values()
        keys.append(decision.key.signature.args)
    assert keys == [("size", "float32[n0]", "size", "float32[n1]"), ("size", "float32[n0]", "float32[n0]")]


def test_a_part_of_a_graph_has_no_more_time_than_the_graph_can_spare(monkeypatch) -> None:
    graph = Resolver(None, Overrides(), "8,20m")
    part = Resolver(None, Overrides(), "8,5m", within=graph)
    assert part._make_budget().seconds == 300
    graph._running = graph._make_budget()
    monkeypatch.setattr(graph._running, "left", lambda: 312.0)  # a quarter of 20 minutes is for its final race
    assert part._make_budget().seconds == 12
    assert part._make_budget(effort=0.25).seconds == 3
    monkeypatch.setattr(graph._running, "left", lambda: 30.0)
    assert part._make_budget().seconds == 0


def test_what_a_process_does_once_is_part_of_the_budget_and_of_no_trial(monkeypatch) -> None:
    """Compiling headers takes as long as many a graph: the default, which comes first, would seem as dear as that."""
    began, budgets = [], []
    monkeypatch.setattr(graphs, "start_compiler", lambda: began.append(time.sleep(0.2)))
    monkeypatch.setattr(Session, "tune", lambda self, problem, evaluator, budget, **_: budgets.append(budget))
    resolver = TuningBackend(Session(store="memory:", mode="tune"), budget="3,30s").graph_resolver
    problem = make_problem(CapturedGraph(torch.fx.symbolic_trace(lambda x: x.cos()), [torch.ones(2)]), {})
    for effort in (1.0, 0.0):
        resolver(problem, ["graph model 1"], lambda: None, effort)
    assert len(began) == len(budgets) == 1
    assert 29 < budgets[0].seconds < 29.81


def test_a_build_that_passed_the_self_test_is_not_tested_again_and_compiled_code_stays(monkeypatch) -> None:
    compiled = torch.compile(torch.cos, backend="eager")
    compiled(torch.ones(2))
    monkeypatch.setattr(adapter, "VERSION", "2.98.0")
    tested = []
    monkeypatch.setattr(releases, "self_test", lambda: tested.append(1) or {})
    for _ in range(2):
        releases.require_supported.cache_clear()
        releases.require_supported()
    releases.require_supported.cache_clear()
    assert len(tested) == 1
    with adapter.capture_records() as records:
        assert releases._trace_problems() == []
        before = len(records)
        compiled(torch.ones(2))
    assert len(records) == before
