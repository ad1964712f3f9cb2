"""Graphs of training: judged by results and gradients together, remembered under keys of their own."""

import copy
import logging

import pytest
import torch
from torch import nn

from tunewright.session import Session
from tunewright.stores.memory import MemoryStore
from tunewright.torch import compile, decisions, graph_space
from tunewright.torch.captured import NEEDS_GRADIENTS, CapturedGraph
from tunewright.torch.compile_model import make_problem
from tunewright.torch.inductor import graphs
from tunewright.torch.training_graph import TrainingGraph
from tunewright.torch.training_graph import capture as capture_graph


@pytest.fixture
def session(tmp_path):
    return Session(store=MemoryStore(), mode="tune", cache=str(tmp_path))


def captured(model, *args, training=True):
    """The graph of a model that is called with gradients."""
    found = []

    def keep(graph, inputs):
        found.append(capture_graph(graph, inputs, training=training))
        assert isinstance(found[0].why_untunable, str)  # decided here, where gradients are recorded
        return graph

    torch.compile(model, backend=keep, dynamic=False)(*args)
    return found[0]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


class WrongBackward(torch.autograd.Function):
    """Right forward, and gradients that are 1 % too large."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.01


def test_a_launch_returns_results_and_gradients() -> None:
    model, x = network(), torch.randn(3, 8)
    graph = captured(model, x)
    assert isinstance(graph, TrainingGraph)
    assert graph.why_untunable == ""
    (result,), gradients = graph.launch(graph.graph)(*graph.values)
    assert torch.equal(result, model(x))
    assert [one.shape for one in gradients] == [graph.values[i].shape for i in graph.learned]
    assert len(gradients) == 4  # two weights and two biases, not the input
    assert all(parameter.grad is None for parameter in model.parameters())


def test_wrong_gradients_are_found_although_the_results_are_right() -> None:
    graph = captured(network(), torch.randn(3, 8))

    def wrong(*values):
        return [WrongBackward.apply(one) for one in graph.graph(*values)]

    assert graph.find_problem(graph.graph, graph.values) is None
    assert "its relative error is" in graph.find_problem(wrong, graph.values)
    frozen = CapturedGraph(graph.graph, graph.values)
    with torch.no_grad():
        assert frozen.find_problem(wrong, graph.values) is None  # results alone do not show it


def test_what_cannot_be_repeated_or_is_in_eval_mode_is_not_tuned() -> None:
    noisy = nn.Sequential(network(), nn.Dropout(0.5))
    assert "random" in captured(noisy, torch.randn(3, 8)).why_untunable
    assert captured(network().eval(), torch.randn(3, 8), training=False).why_untunable == NEEDS_GRADIENTS


def test_training_has_a_key_of_its_own_and_freezes_nothing() -> None:
    model, x = network(), torch.randn(3, 8)
    training = make_problem(captured(model, x), {})
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    inference = make_problem(captured(model, x), {})
    assert training.key != inference.key
    assert "gradients" in training.key.mode
    assert not any(config.get("freezing") for config in training.space)
    assert training.default in training.space
    assert training.seeds[0] == graph_space.UNCOMPILED
    assert len(training.seeds) == 4


def test_statistics_that_a_step_writes_are_written_once() -> None:
    model, x = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)), torch.randn(16, 8)
    alone = copy.deepcopy(model)
    graph = captured(model, x)
    alone(x)
    assert graph.why_untunable == ""
    assert torch.equal(model[1].running_mean, alone[1].running_mean)


@pytest.mark.parametrize("tune", ["now", "background"])
def test_training_is_looked_up_with_now_and_left_alone_in_the_background(tune, session, monkeypatch, caplog) -> None:
    model, x = network(), torch.randn(3, 8)
    first = compile(model, session=session, overrides={"graph *": "eager"}, tune="now")
    first(x).sum().backward()
    (decision,) = decisions(first).values()
    session.store.put(decision)
    monkeypatch.setattr(graphs, "compile_graph", lambda graph, *_: graph)
    runs = []
    monkeypatch.setattr(TrainingGraph, "launch", lambda self, graph: runs.append(graph) or graph)
    later = compile(copy.deepcopy(model), session=session, tune=tune)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        later(x).sum().backward()
    expected = [graph_space.UNCOMPILED] if tune == "now" else []
    assert [one.config for one in decisions(later).values()] == expected
    assert bool(runs) == (tune == "now")
    assert ("tune='now' tunes training" in caplog.text) == (tune == "background")
    assert ("for inference, call eval() of the model and torch.no_grad()" in caplog.text) == (tune == "now")
    assert session.counts["measurements"] == 0


@pytest.mark.slow
def test_a_tuned_step_learns_what_an_eager_one_does(session, caplog) -> None:
    model, x = network(), torch.randn(3, 8)
    alone = copy.deepcopy(model)
    with caplog.at_level(logging.WARNING):
        compiled = compile(model, session=session, tune="now", budget="3,90s")
        for one in (compiled, alone):
            optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                one(x).square().mean().backward()
                optimizer.step()
    assert session.counts["searches"] == 1
    assert session.counts["measurements"] >= 2
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert "failed" not in caplog.text
