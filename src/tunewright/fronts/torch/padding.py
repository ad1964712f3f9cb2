"""Padding: weights of matrix products rounded up to sizes that are faster, where a race says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.functional import linear
from torch.nn.functional import pad as widened

from tunewright.backends.host import cpu
from tunewright.fronts.torch.attempt import Attempt, Launch
from tunewright.fronts.torch.captured import Captured, spelt
from tunewright.fronts.torch.deciding import Deciding, machine
from tunewright.fronts.torch.numerics import error
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space

NAME = "torch.padding"
STEPS = (1, 8, 16, 32, 64)
"""What sizes are rounded up to a multiple of; 1 leaves them."""

MOST = 1.5
"""How many times as much work a padded product may be, to be tried first."""


def possible(captured: Captured) -> bool:
    """Whether a product with a weight has sizes that could be rounded up."""
    nodes = [node for node in captured.graph.graph.nodes if node.target is linear]
    numbers = {node: i for i, node in enumerate(captured.places)}
    held = [captured.values[numbers[node.args[1]]] for node in nodes if node.args[1] in numbers]
    return any(not why_not(weight) for weight in held)


def why_not(weight: Any) -> str:
    """Why a product with this weight is not padded; empty if it may be."""
    if weight.dim() != 2 or not weight.dtype.is_floating_point:
        return "its weight is no matrix of numbers"
    return "" if any(size % STEPS[1] for size in weight.shape) else f"its sizes are multiples of {STEPS[1]} already"


def pad(module: Any, deciding: Deciding) -> list[str]:
    """Have the products of a frozen graph padded as is decided for each; the names of those that are."""
    done = []
    for node, weight, bias in list(_candidates(module)):
        left = node.args[0].meta.get("example_value")
        if left is None or any(not isinstance(size, int) for size in left.shape):
            continue
        decision = decided((tuple(left.shape), weight, bias), deciding)
        columns, depth = _more(weight, decision.config)
        if columns or depth:
            _rewrite(module, node, (weight, bias), (columns, depth))
            done.append(node.name)
    module.graph.lint()
    module.recompile()
    return done


def _candidates(module: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The products of a graph whose weights it holds, with them."""
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target is not linear or node.kwargs:
            continue
        held = [one for one in node.args[1:] if one is not None]
        if all(one.op == "get_attr" for one in held):
            weight, *rest = (getattr(module, one.target) for one in held)
            if not why_not(weight):
                yield node, weight, rest[0] if rest else None


def decided(product: tuple[tuple[int, ...], Any, Any], deciding: Deciding) -> Decision:
    """By how much a product is padded."""
    shape, weight, bias = product
    rows = torch.Size(shape[:-1]).numel()
    columns, depth = weight.shape
    key = Key(
        NAME, "1",
        Signature((f"{list(shape)}", spelt(weight), "bias" if bias is not None else ""),
                  {"M": rows, "N": columns, "K": depth}),
        cpu(), machine().toolchain, machine().mode,
    )  # fmt: skip
    offered = Space(
        Knob("columns", STEPS),
        Knob("depth", STEPS),
        rules=[
            Rule("columns are a multiple already", lambda columns: columns == 1 or weight.shape[0] % columns != 0),
            Rule("the depth is a multiple already", lambda depth: depth == 1 or weight.shape[1] % depth != 0),
        ],
    )
    plain = Config({"columns": 1, "depth": 1})
    steps = [(step, other) for step in STEPS[1:] for other in (1, step)]
    wider = [Config({"columns": step, "depth": other}) for step, other in steps]
    seeds = tuple(one for one in wider if one in offered and _work(weight, one) <= MOST)
    problem = Problem(key, offered, plain, seeds=(plain, *seeds))
    names = [f"padding {rows}x{columns}x{depth}"]
    return deciding(problem, names, lambda: _attempt(product, deciding))


def _work(weight: Any, config: Config) -> float:
    """How many times as much work a product is, padded."""
    columns, depth = _more(weight, config)
    return float((1 + columns / weight.shape[0]) * (1 + depth / weight.shape[1]))


def _attempt(product: tuple[tuple[int, ...], Any, Any], deciding: Deciding) -> Attempt:
    shape, weight, bias = product[0], product[1].detach(), None if product[2] is None else product[2].detach()
    left = torch.randn(shape).to(weight.dtype)
    right = linear(left.double(), weight.double(), None if bias is None else bias.double())
    plain = error([linear(left, weight, bias)], [right])

    def judge(result: Any) -> str | None:
        off = error([result], [right])
        return None if off <= 4 * plain else f"its result is off by {off:.1e} of its size, unpadded {plain:.1e}"

    return Attempt(_builder(left, weight, bias), judge, deciding.surroundings())


def _builder(left: Any, weight: Any, bias: Any) -> Callable[[Config], Launch]:
    def build(config: Config) -> Launch:
        columns, depth = _more(weight, config)
        wide, wider = _padded((weight, bias), (columns, depth))

        def launch() -> Any:
            given = widened(left, (0, depth)) if depth else left
            return linear(given, wide, wider)[..., : weight.shape[0]]

        return launch

    return build


def _more(weight: Any, config: Config) -> tuple[int, int]:
    """Columns and depth to be added."""
    columns, depth = (-size % int(config[name]) for size, name in zip(weight.shape, ("columns", "depth"), strict=True))
    return columns, depth


def _padded(held: tuple[Any, Any], more: tuple[int, int]) -> tuple[Any, Any]:
    (weight, bias), (columns, depth) = held, more
    wide = widened(weight.detach(), (0, depth, 0, columns))
    return wide, None if bias is None else widened(bias.detach(), (0, columns))


def _rewrite(module: Any, node: Any, held: tuple[Any, Any], more: tuple[int, int]) -> None:
    """The product of a node on a wider weight, and the rest of it cut off."""
    columns, depth = more
    graph, names = module.graph, []
    for part, value in zip(("weight", "bias"), _padded(held, more), strict=True):
        if value is not None:
            names.append(f"padded_{node.name}_{part}")
            module.register_buffer(names[-1], value)
    with graph.inserting_before(node):
        left = graph.call_function(widened, (node.args[0], (0, depth))) if depth else node.args[0]
        product = graph.call_function(linear, (left, *(graph.get_attr(name) for name in names)))
        cut = graph.call_method("narrow", (product, -1, 0, held[0].shape[0])) if columns else product
    node.replace_all_uses_with(cut)
    graph.erase_node(node)
