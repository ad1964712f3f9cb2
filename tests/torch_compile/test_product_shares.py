"""Time goes to the products on which a graph spends its own."""

import pytest
import torch
from torch import nn

from tunewright.torch.captured import CapturedGraph
from tunewright.torch.product_shares import BALANCE, MIN_SHARE, ProductShares, convolution_cost, estimate_cost


def captured(model, *inputs):
    graphs = []

    def take(graph, values):
        graphs.append(CapturedGraph(graph, values))
        return graph.forward

    with torch.no_grad():
        torch.compile(model, backend=take, dynamic=False)(*inputs)
    return graphs


class Mixed(nn.Module):
    """Two equal layers, one of another size, and a head for one row."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 256)
        self.wide, self.head = nn.Linear(256, 1024, bias=False), nn.Linear(1024, 8)

    def forward(self, x):
        return self.head(self.wide(self.second(self.first(x)))[:, 0])


def test_products_of_the_same_sizes_count_together() -> None:
    shares = ProductShares.of(captured(Mixed().eval(), torch.randn(2, 64, 256)))
    small, wide, head = (128, 256, 256), (128, 1024, 256), (2, 8, 1024)
    costs = {small: 2 * estimate_cost(small, 4), wide: estimate_cost(wide, 4), head: estimate_cost(head, 4)}
    assert shares.take(small) == pytest.approx(costs[small] / sum(costs.values()))
    assert shares.take(wide) == pytest.approx(costs[wide] / (costs[wide] + costs[head]))
    assert costs[head] < MIN_SHARE * sum(costs.values())
    assert shares.take(head) == 0


@pytest.mark.parametrize(
    "call",
    [
        torch.matmul,
        lambda x, w: x @ w,
        lambda x, w: x.matmul(w),
        lambda x, w: torch.addmm(torch.zeros(24), x, w),
        lambda x, w: torch.addmm(torch.zeros(24), mat1=x, mat2=w),
        lambda x, w: torch.matmul(x, other=w),
        lambda x, w: torch.matmul(input=x, other=w),
        lambda x, w: torch.mm(x, mat2=w),
        lambda x, w: x.matmul(other=w),
        lambda x, w: x.mm(w),
    ],
    ids=[
        "matmul",
        "operator",
        "method",
        "addmm",
        "addmm by names",
        "matmul by name",
        "matmul by names",
        "mm by name",
        "method by name",
        "mm method",
    ],
)
def test_a_product_is_found_however_it_is_written(call) -> None:
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 24))

        def forward(self, x):
            return call(x, self.weight)

    shares = ProductShares.of(captured(Written().eval(), torch.randn(6, 16)))
    assert shares.take((6, 24, 16)) == 1
    assert shares._left == {}


class Named(nn.Module):
    """A layer whose weight is given by name, with or without its input."""

    def __init__(self, input_named):
        super().__init__()
        self.layer, self.input_named = nn.Linear(16, 24), input_named

    def forward(self, x):
        weight, bias = self.layer.weight, self.layer.bias
        linear = nn.functional.linear
        return linear(input=x, weight=weight, bias=bias) if self.input_named else linear(x, weight=weight, bias=bias)


@pytest.mark.parametrize("input_named", [False, True])
def test_a_layer_whose_weight_is_given_by_name_is_found(input_named) -> None:
    shares = ProductShares.of(captured(Named(input_named).eval(), torch.randn(6, 16)))
    assert shares._left.keys() == {(6, 24, 16)}


def test_a_convolution_whose_weight_is_given_by_name_counts() -> None:
    class NamedConvolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 8, 3, 3))

        def forward(self, x):
            return nn.functional.conv2d(x, weight=self.weight, padding=1)

    (graph,) = captured(NamedConvolution().eval(), torch.randn(1, 8, 20, 20))
    assert convolution_cost(graph) == pytest.approx(2 * 16 * 20 * 20 * 8 * 9 / BALANCE)


def test_a_product_whose_sizes_are_not_known_may_take_all_the_time() -> None:
    shares = ProductShares({(8, 8, 8): 1.0})
    assert shares.take((8, 16, 8)) == 1
    assert shares.take((8, 8, 8)) == 1
    assert shares.take((8, 8, 8)) == 1


def test_a_product_that_hardly_matters_is_not_tuned_with_another_epilogue_either() -> None:
    shares = ProductShares({(2, 8, 8): 1.0, (8, 8, 8): 1000.0, (16, 8, 8): 2999.0})
    assert [shares.take((2, 8, 8)) for _ in range(3)] == [0, 0, 0]
    assert [shares.take((8, 8, 8)) for _ in range(2)] == pytest.approx([1000 / 3999, 1 / 4])
    assert [shares.take((16, 8, 8)) for _ in range(2)] == pytest.approx([1, 2999 / 4000])


def test_products_of_inputs_alone_do_not_count() -> None:
    graphs = captured(lambda x, y: x @ y, torch.randn(8, 8), torch.randn(8, 8))
    assert ProductShares.of(graphs)._left == {}


def test_few_rows_cost_what_reading_their_weights_does() -> None:
    assert estimate_cost((1, 1000, 1000), 4) == pytest.approx(4e6, rel=0.01)
    assert estimate_cost((512, 1000, 1000), 4) > 20 * estimate_cost((1, 1000, 1000), 4)


def test_convolutions_count_by_their_arithmetic() -> None:
    (graph,) = captured(nn.Conv2d(8, 16, 3, padding=1).eval(), torch.randn(1, 8, 20, 20))
    assert convolution_cost(graph) == pytest.approx(2 * 16 * 20 * 20 * 8 * 9 / BALANCE)
    assert convolution_cost(captured(nn.Linear(8, 8).eval(), torch.randn(2, 8))[0]) == 0
