"""What the matrix products of a graph cost, so that time is spent on those that matter."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from tunewright.torch.captured import CapturedGraph

MIN_SHARE = 0.01
"""A product with a smaller share of the time of all products is not tuned: the library computes it."""

BALANCE = 10.0
"""Operations that one core does while it reads a byte from memory, about: products with few rows take as long as
reading their weights."""

_PRODUCTS = {
    linear: ("input", "weight"),
    torch.matmul: ("input", "other"),
    torch.Tensor.matmul: ("input", "other"),
    operator.matmul: (),
    torch.mm: ("input", "mat2"),
    torch.Tensor.mm: ("input", "mat2"),
    torch.addmm: ("mat1", "mat2"),
    "matmul": ("self", "other"),
    "mm": ("self", "mat2"),
}
"""Functions and methods that are products, and the names of their operands."""

_CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)

Sizes = tuple[int, ...]
"""Rows, columns and depth of a product."""


class Product(NamedTuple):
    """A product with a weight on the right, and about how long it takes, in bytes read from memory."""

    sizes: Sizes
    dtype: torch.dtype
    cost: float


class ProductShares:
    """The shares of the products with weights in some graphs, by their sizes; equal products count together."""

    def __init__(self, costs: Mapping[Sizes, float]) -> None:
        self._costs, self._left = costs, dict(costs)

    @classmethod
    def of(cls, graphs: Iterable[CapturedGraph]) -> ProductShares:
        """Returns the shares in captured graphs, from the sizes of their products."""
        costs: dict[Sizes, float] = {}
        for product in (product for captured in graphs for product in find_products(captured)):
            costs[product.sizes] = costs.get(product.sizes, 0.0) + product.cost
        return cls(costs)

    def take(self, sizes: Sizes) -> float:
        """Returns the share of a product among those that were not taken yet; 0 if it hardly matters among all.

        It is 1 for one that is not known: passes of the compiler may have changed its sizes. One that was taken before,
        with another bias or epilogue, has its share of all.
        """
        cost = self._costs.get(sizes)
        if cost is None:
            return 1.0
        total = sum(self._costs.values())
        left = sum(self._left.values()) if sizes in self._left else total
        self._left.pop(sizes, None)
        return 0.0 if cost < MIN_SHARE * total else cost / left


def estimate_cost(sizes: Sizes, itemsize: int) -> float:
    """Returns about how long a product takes, in bytes read from memory."""
    rows, columns, depth = sizes
    return max(2 * prod(sizes) / BALANCE, itemsize * (rows * depth + depth * columns + rows * columns))


def find_products(captured: CapturedGraph) -> Iterator[Product]:
    """Yields the products of a graph that have a weight on the right."""
    values = dict(zip(captured.placeholders, captured.values, strict=True))
    weights = {captured.placeholders[i] for i in captured.weights}
    for node in captured.graph.graph.nodes:
        operands = _operands(node)
        if operands is None or operands[1] not in weights or not isinstance(operands[0], torch.fx.Node):
            continue
        left, weight = operands[0].meta.get("example_value"), values[operands[1]]
        if node.target is linear:
            weight = weight.t() if weight.dim() == 2 else weight
        shape = getattr(left, "shape", ())
        if weight.dim() == 2 and shape and all(isinstance(size, int) for size in shape):
            sizes = prod(shape[:-1]), int(weight.shape[1]), int(weight.shape[0])
            yield Product(sizes, weight.dtype, estimate_cost(sizes, weight.element_size()))


def convolution_cost(captured: CapturedGraph) -> float:
    """Returns about how long the convolutions of a graph take, in bytes read from memory."""
    cost = 0.0
    for node in captured.graph.graph.nodes:
        result = node.meta.get("example_value")
        if node.op != "call_function" or node.target not in _CONVOLUTIONS:
            continue
        operand = _operand(node, 1, "weight")
        weight = operand.meta.get("example_value") if isinstance(operand, torch.fx.Node) else None
        shapes = [getattr(value, "shape", ()) for value in (result, weight)]
        if all(shapes) and all(isinstance(size, int) for shape in shapes for size in shape):
            cost += 2 * prod(shapes[0]) * prod(shapes[1][1:]) / BALANCE
    return cost


def _operands(node: Any) -> tuple[Any, Any] | None:
    """Returns the operands of a product, by position or by name; None if the node is none."""
    if node.op not in ("call_function", "call_method"):
        return None
    names = _PRODUCTS.get(node.target)
    if names is None or isinstance(node.target, str) is not (node.op == "call_method"):
        return None
    first = 1 if node.target is torch.addmm else 0
    left, right = (_operand(node, first + i, names[i] if names else "") for i in (0, 1))
    return None if left is None or right is None else (left, right)


def _operand(node: Any, place: int, name: str) -> Any:
    """Returns an argument by its place, or else by its name; None if there is none."""
    return node.args[place] if place < len(node.args) else node.kwargs.get(name)
