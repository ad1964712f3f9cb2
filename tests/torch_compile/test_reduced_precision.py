"""Products in reduced precision: only where it is allowed by name, and never with larger errors than that explains."""

import copy

import pytest
import torch
from torch import nn

from tunewright.errors import SettingsError
from tunewright.session import Session
from tunewright.spaces.config import Config
from tunewright.torch import compile, decisions, graph_space
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.compile_model import make_problem
from tunewright.torch.diagnostics.numerics import relative_error
from tunewright.torch.reduced_precision import BFLOAT16, FULL, INT8, MAX_ERROR


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32, bias=False)).eval().to(dtype)


def captured(*numerics, rows=(3, 8), dtype=torch.float32):
    graphs = []

    def take(graph, inputs):
        graphs.append(CapturedGraph(graph, inputs, numerics))
        return graph.forward

    with torch.no_grad():
        torch.compile(model(dtype), backend=take)(torch.randn(*rows, 64, dtype=dtype))
    return graphs[0]


def results(graph, precision):
    with torch.no_grad():
        return graph._results(graph.frozen().reduced(precision), graph.values)


@pytest.mark.parametrize("rows", [(8,), (3, 8), (2, 1, 5), (1,)])
@pytest.mark.parametrize("precision", [BFLOAT16, INT8])
def test_a_product_keeps_its_shape_dtype_and_bias(rows, precision):
    graph = captured(precision, rows=rows)
    (reduced,), (right,) = results(graph, precision), graph.expect(graph.values).results
    assert (reduced.shape, reduced.dtype) == (right.shape, torch.float32)
    assert 1e-4 < relative_error([reduced], [right]) < MAX_ERROR


def test_a_weight_of_zeros_stays_zero():
    graph = captured(INT8)
    with torch.no_grad():
        for value in graph.values:
            if isinstance(value, nn.Parameter):
                value.zero_()
    (reduced,) = results(graph, INT8)
    assert torch.count_nonzero(reduced) == 0


def test_without_being_allowed_no_candidate_is_reduced_and_the_key_is_as_before():
    plain, allowed = make_problem(captured(), {}), make_problem(captured(BFLOAT16), {})
    assert "precision" not in plain.space.names
    assert plain.key.digest != allowed.key.digest
    assert allowed.key.mode["numerics"] == BFLOAT16
    assert {seed.get("precision") for seed in allowed.seeds} == {None, FULL, BFLOAT16}
    assert allowed.default["precision"] == FULL


def test_weights_that_are_not_frozen_are_not_rounded():
    space = graph_space.make_space(gemms=True, padding=False, numerics=[INT8])
    config = graph_space.default(space)
    assert config in space
    assert config.with_value("precision", INT8) not in space


def test_a_graph_without_products_in_single_precision_has_nothing_to_reduce():
    assert "precision" not in make_problem(captured(BFLOAT16, dtype=torch.bfloat16), {}).space.names


def test_errors_that_the_precision_explains_are_allowed_and_others_are_not():
    plain, allowed = captured(), captured(BFLOAT16)
    (reduced,) = results(allowed, BFLOAT16)

    def returns(result):
        return lambda *_: (result,)

    with torch.no_grad():
        assert plain.find_problem(returns(reduced), plain.values)
        assert allowed.find_problem(returns(reduced), allowed.values) is None
        wrong = reduced * (1 + 2 * MAX_ERROR)
        assert allowed.find_problem(returns(wrong), allowed.values)
        one_wrong = reduced.clone()
        one_wrong.view(-1)[5] += 3 * reduced.abs().max()
        assert allowed.find_problem(returns(one_wrong), allowed.values)


def test_a_precision_whose_own_error_is_too_large_is_not_right():
    graph = captured(INT8)
    with torch.no_grad():
        first = next(value for value in graph.values if isinstance(value, nn.Parameter) and value.dim() == 2)
        first[:, 0] *= 1e4  # one column rules the scale, and all others are rounded to nothing
        inputs = [i for i, value in enumerate(graph.values) if not isinstance(value, nn.Parameter)]
        graph.values[inputs[0]][..., 0] = 0
        assert graph.find_problem(graph.frozen().reduced(INT8), graph.values)


@pytest.mark.parametrize("numerics", [["float16"], "bfloat16", ["int8", "int4"]])
def test_an_unknown_precision_is_refused_with_the_known_ones(numerics):
    with pytest.raises(SettingsError, match="bfloat16, int8"):
        compile(model(), numerics=numerics)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [BFLOAT16, INT8])
@pytest.mark.parametrize("products", ["library", "chosen"])
def test_a_model_is_compiled_in_an_allowed_precision(precision, products):
    made, x = model(), torch.randn(16, 64)
    own = {"graph *": {"freezing": True, "precision": precision, "products": products}, "matmul *": "library"}
    compiled = compile(made, session=Session(mode="off"), overrides=own, numerics=[precision])
    with torch.no_grad():
        right = copy.deepcopy(made).double()(x.double())
        assert 1e-4 < relative_error([compiled(x)], [right]) < MAX_ERROR
        made[0].weight.mul_(2)
        assert relative_error([compiled(x)], [copy.deepcopy(made).double()(x.double())]) < MAX_ERROR


@pytest.mark.slow
def test_an_allowed_precision_is_raced_and_remembered(tmp_path):
    made = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).eval()
    x, place = torch.randn(64, 512), str(tmp_path / "store.sqlite")
    session = Session(store=place, mode="tune", cache=str(tmp_path))
    with torch.no_grad():
        tuned = compile(made, session=session, budget="9", each="1", numerics=[BFLOAT16])
        tuned(x)
    (decided,) = [found for name, found in decisions(tuned).items() if name.startswith("graph")]
    raced = [Config(trial.config) for trial in session.store.trials(decided.key)]
    assert {config.get("precision") for config in raced} >= {FULL, BFLOAT16}
    assert all(trial.works for trial in session.store.trials(decided.key))
