"""Candidates for a dynamic graph are raced at several sizes of its range, each of which counts about the same."""

import pytest
import torch

from tunewright.model.trial import TrialRequest
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config
from tunewright.stores.memory import MemoryStore
from tunewright.torch import graph_space
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.compile_model import GraphTuner, TuningBackend
from tunewright.torch.sizes import SeveralSizes

EAGER = Config({VARIANT: graph_space.EAGER})


def at_sizes(fn, *args, then=lambda captured: None):
    """Returns the calls at several sizes, made while the graph is captured, where sizes are symbols."""
    found = []

    def keep(graph, inputs):
        captured = CapturedGraph(graph, inputs)
        found.append(SeveralSizes(captured))
        then(captured)
        return graph

    with torch.no_grad():
        torch.compile(fn, backend=keep, dynamic=True)(*args)
    return found[0]


def rows(several):
    """The length of the input that is no weight, and how often it is launched, at each size."""
    tensors = [[value for value in call.values if type(value) is torch.Tensor] for call in several.calls]
    return [(len(tensor[0]), call.launches) for tensor, call in zip(tensors, several.calls, strict=True)]


def test_the_size_of_the_call_a_quarter_and_four_times_of_it_are_raced() -> None:
    weight = torch.nn.Parameter(torch.randn(6, 5))
    several = at_sizes(lambda x: x @ weight, torch.randn(16, 6))
    assert rows(several) == [(16, 4), (4, 8), (64, 1)]
    results = several.bind(lambda *values: [values[-1].sum()], *several.call.values)()
    assert len(results) == 3


@pytest.mark.parametrize(
    ("condition", "sizes"),
    [(lambda n: n < 40, [16, 4, 39]), (lambda n: n % 16 == 0, [16, 64]), (lambda n: n > 8, [16, 9, 64])],
)
def test_only_sizes_that_the_conditions_of_the_graph_allow_are_raced(condition, sizes) -> None:
    several = at_sizes(lambda x: x * 2 if condition(x.shape[0]) else x * 3, torch.ones(16))
    assert [size for size, _ in rows(several)] == sizes


def test_a_size_at_which_the_graph_does_not_run_is_left_out() -> None:
    table = torch.nn.Parameter(torch.ones(20, 3))
    several = at_sizes(lambda x: table[torch.arange(x.shape[0])] + x[:, None], torch.ones(16))
    assert [size for size, _ in rows(several)] == [16, 4]


def test_a_candidate_that_is_wrong_at_another_size_is_found(tmp_path) -> None:
    kinds: list = []
    backend = TuningBackend(Session(store=MemoryStore(), mode="tune", cache=str(tmp_path)))

    def judge(captured):
        tuner = GraphTuner(backend, captured, {})
        evaluator = tuner._evaluator()
        kinds.append(evaluator(TrialRequest(EAGER)).works)
        right = captured.graph
        tuner._workload.built[EAGER] = lambda *values: [
            result if len(result) == 16 else result + 1 for result in right(*values)
        ]
        kinds.append(evaluator(TrialRequest(EAGER)).outcome.kind)

    at_sizes(lambda x: x * 2, torch.randn(16), then=judge)
    assert kinds == [True, "wrong"]


@pytest.mark.parametrize("written", [True, False])
def test_an_input_that_is_written_to_is_launched_on_once(written) -> None:
    def fn(x):
        return (x.add_(1) if written else x + 1) * 2

    assert {launches for _, launches in rows(at_sizes(fn, torch.ones(16)))} == ({1} if written else {4, 8, 1})
