"""Reduced precision that a user allows by name: products with weights in bfloat16, or with weights rounded to int8.

Without being allowed, no candidate computes in less precision than the model asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.nn.functional import linear

from tunewright.errors import SettingsError

FULL, BFLOAT16, INT8 = "full", "bfloat16", "int8"

MAX_ERROR = 0.05
"""Relative error that a graph may have at most, however large that of its products in reduced precision is."""

Rewrite = Callable[[Any, Any, Any, Any, Any], Any]

_LINEAR = (linear, torch.ops.aten.linear.default)
"""A linear layer in a graph that was captured from a call, and in an exported one."""


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of allowed precisions in their usual order; raises SettingsError for one that is unknown."""
    if isinstance(names, str) or (unknown := set(names) - _REWRITES.keys()):
        odd = names if isinstance(names, str) else unknown.pop()
        raise SettingsError(f"numerics has {odd!r}; give a list of names among {', '.join(_REWRITES)}")
    return tuple(name for name in _REWRITES if name in names)


def products_with_weights(module: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the products of a frozen or exported graph, with their weights and biases."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in _LINEAR or node.kwargs:
            continue
        sources = [argument for argument in node.args[1:] if argument is not None]
        if sources and all(source.op == "get_attr" for source in sources):
            weight, *rest = (attrgetter(source.target)(module) for source in sources)
            yield node, weight, rest[0] if rest else None


def can_reduce(module: Any) -> bool:
    """Whether a frozen graph has a product whose precision can be reduced."""
    return any(_is_matrix(weight) for _, weight, _ in products_with_weights(module))


def reduce_products(module: Any, precision: str) -> None:
    """Computes the products of a frozen or exported graph that are in float32 in a precision that was allowed."""
    graph = module.graph
    for node, weight, _ in products_with_weights(module):
        if not _is_matrix(weight):
            continue
        with graph.inserting_before(node):
            product = _REWRITES[precision](module, graph, node, weight.detach(), node.args[0])
            if product is None:
                continue
            product = graph.call_method("to", (product, torch.float32))
            if len(node.args) > 2 and node.args[2] is not None:
                product = graph.call_function(torch.add, (product, node.args[2]))
        node.replace_all_uses_with(product)
        graph.erase_node(node)
    graph.lint()
    module.recompile()


def _is_matrix(weight: Any) -> bool:
    return bool(weight.dim() == 2 and weight.dtype == torch.float32)


def _in_bfloat16(module: Any, graph: Any, node: Any, weight: Any, left: Any) -> Any:
    stored = _store(module, graph, node, "bfloat16", weight.to(torch.bfloat16))
    return graph.call_function(linear, (graph.call_method("to", (left, torch.bfloat16)), stored))


def _in_int8(module: Any, graph: Any, node: Any, weight: Any, left: Any) -> Any:
    """Products whose weights are rounded to int8, one scale for each column; their inputs are in bfloat16."""
    shape = getattr(left.meta.get("example_value", left.meta.get("val")), "shape", None)
    if shape is None or not all(isinstance(size, int) for size in shape) or not shape.numel():
        return None
    scales = (weight.abs().amax(1) / 127).clamp_min(torch.finfo(torch.bfloat16).tiny).to(torch.bfloat16)
    rounded = (weight / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
    stored = [_store(module, graph, node, name, value) for name, value in (("int8", rounded), ("scales", scales))]
    rows = graph.call_method("reshape", (left, (-1, shape[-1])))
    narrow = graph.call_method("to", (rows, torch.bfloat16))
    product = graph.call_function(torch.ops.aten._weight_int8pack_mm.default, (narrow, *stored))
    return graph.call_method("reshape", (product, (*shape[:-1], weight.shape[0])))


def _store(module: Any, graph: Any, node: Any, name: str, value: Any) -> Any:
    name = f"{node.name}_{name}"
    module.register_buffer(name, value)
    return graph.get_attr(name)


_REWRITES: Mapping[str, Rewrite] = {BFLOAT16: _in_bfloat16, INT8: _in_int8}
