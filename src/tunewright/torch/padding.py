"""Padding: weights of matrix products rounded up to faster sizes, where a race shows a gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear
from torch.nn.functional import pad as pad_tensor

from tunewright.backends.host import cpu
from tunewright.measure.evaluator import Evaluator
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space
from tunewright.torch.captured import CapturedGraph, describe_argument
from tunewright.torch.oracle import ExpectedTensors
from tunewright.torch.reduced_precision import products_with_weights
from tunewright.torch.resolver import Resolver, host_environment
from tunewright.torch.tensor_sets import CallArguments
from tunewright.torch.workload import TorchWorkload

NAME = "torch.padding"
STEPS = (1, 8, 16, 32, 64)
"""Sizes are rounded up to a multiple of one of these; 1 leaves them."""

MAX_SEED_WORK = 1.5
"""How many times the work a padded product may take to be among the seeds."""


class LinearLayer(NamedTuple):
    """A product with a weight: the shape of its left operand, the weight and the bias."""

    input_shape: tuple[int, ...]
    weight: Any
    bias: Any


class ExtraSize(NamedTuple):
    """Columns and depth that padding adds to a weight."""

    columns: int
    depth: int


def can_pad(captured: CapturedGraph) -> bool:
    """Whether a graph has a product with a weight whose sizes can be rounded up."""
    nodes = [node for node in captured.graph.graph.nodes if node.target is linear]
    numbers = {node: i for i, node in enumerate(captured.placeholders)}
    weights = [captured.values[numbers[node.args[1]]] for node in nodes if node.args[1] in numbers]
    return any(not why_not(weight) for weight in weights)


def why_not(weight: Any) -> str:
    """Returns why a product with this weight is not padded; empty if it may be."""
    if weight.dim() != 2 or not weight.dtype.is_floating_point:
        return "its weight is not a floating-point matrix"
    return "" if any(size % STEPS[1] for size in weight.shape) else f"its sizes are multiples of {STEPS[1]} already"


def pad(module: Any, resolver: Resolver) -> list[str]:
    """Pads the products of a frozen graph as decided for each; returns the names of those that were padded."""
    padded = []
    for node, weight, bias in products_with_weights(module):
        if why_not(weight):
            continue
        left = node.args[0].meta.get("example_value")
        if left is None or any(not isinstance(size, int) for size in left.shape):
            continue
        decision = decide_padding(LinearLayer(tuple(left.shape), weight, bias), resolver)
        extra = _extra_size(weight, decision.config)
        if any(extra):
            _rewrite(module, node, (weight, bias), extra)
            padded.append(node.name)
    module.graph.lint()
    module.recompile()
    return padded


def decide_padding(layer: LinearLayer, resolver: Resolver) -> Decision:
    """Returns the decision by how much a product is padded."""
    weight, bias = layer.weight, "bias" if layer.bias is not None else ""
    rows = torch.Size(layer.input_shape[:-1]).numel()
    columns, depth = weight.shape
    environment = host_environment()
    signature = Signature(
        (f"{list(layer.input_shape)}", describe_argument(weight), bias), {"M": rows, "N": columns, "K": depth}
    )
    key = Key(NAME, "1", signature, cpu(), environment.toolchain, environment.mode)
    space = Space(
        Knob("columns", STEPS),
        Knob("depth", STEPS),
        rules=[
            Rule("columns are a multiple already", lambda columns: columns == 1 or weight.shape[0] % columns != 0),
            Rule("the depth is a multiple already", lambda depth: depth == 1 or weight.shape[1] % depth != 0),
        ],
    )
    default = Config({"columns": 1, "depth": 1})
    padded = [Config({"columns": step, "depth": other}) for step in STEPS[1:] for other in (1, step)]
    seeds = (config for config in padded if config in space and _work_ratio(weight, config) <= MAX_SEED_WORK)
    problem = Problem(key, space, default, seeds=(default, *seeds))
    return resolver(problem, [f"padding {rows}x{columns}x{depth}"], lambda: _evaluator(layer, resolver))


def _work_ratio(weight: Any, config: Config) -> float:
    """Returns how many times as much work a padded product is."""
    extra = _extra_size(weight, config)
    return float((1 + extra.columns / weight.shape[0]) * (1 + extra.depth / weight.shape[1]))


def _evaluator(layer: LinearLayer, resolver: Resolver) -> Evaluator:
    weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    left = torch.randn(layer.input_shape).to(weight.dtype)

    def expect(values: Sequence[Any]) -> ExpectedTensors:
        exact = linear(values[0].double(), weight.double(), None if bias is None else bias.double())
        return ExpectedTensors.of([linear(values[0], weight, bias)], [exact])

    call = CallArguments((left,), structured=False)
    return Evaluator(TorchWorkload(NAME, _builder(weight, bias), call, expect, resolver.timing_options()))


def _builder(weight: Any, bias: Any) -> Callable[[Config], Callable[[Any], Any]]:
    def build(config: Config) -> Callable[[Any], Any]:
        extra = _extra_size(weight, config)
        padded_weight, padded_bias = _padded((weight, bias), extra)

        def launch(left: Any) -> Any:
            padded_left = pad_tensor(left, (0, extra.depth)) if extra.depth else left
            return linear(padded_left, padded_weight, padded_bias)[..., : weight.shape[0]]

        return launch

    return build


def _extra_size(weight: Any, config: Config) -> ExtraSize:
    return ExtraSize(-weight.shape[0] % int(config["columns"]), -weight.shape[1] % int(config["depth"]))


def _padded(tensors: tuple[Any, Any], extra: ExtraSize) -> tuple[Any, Any]:
    """Returns a weight and its bias, padded with zeros."""
    weight, bias = tensors
    padded_weight = pad_tensor(weight.detach(), (0, extra.depth, 0, extra.columns))
    return padded_weight, None if bias is None else pad_tensor(bias.detach(), (0, extra.columns))


def _rewrite(module: Any, node: Any, tensors: tuple[Any, Any], extra: ExtraSize) -> None:
    """Replaces a product by one with a padded weight, whose extra columns are cut off."""
    graph, names = module.graph, []
    for part, value in zip(("weight", "bias"), _padded(tensors, extra), strict=True):
        if value is not None:
            names.append(f"padded_{node.name}_{part}")
            module.register_buffer(names[-1], value)
    with graph.inserting_before(node):
        left = graph.call_function(pad_tensor, (node.args[0], (0, extra.depth))) if extra.depth else node.args[0]
        product = graph.call_function(linear, (left, *(graph.get_attr(name) for name in names)))
        result = graph.call_method("narrow", (product, -1, 0, tensors[0].shape[0])) if extra.columns else product
    node.replace_all_uses_with(result)
    graph.erase_node(node)
