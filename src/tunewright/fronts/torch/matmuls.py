"""Matmuls: who computes each matrix product of a graph: the library, a template, or a blueprint of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tunewright.backends.host import cpu, digest
from tunewright.backends.inductor.products import LIBRARY, TEMPLATE, UNPACKED, Product
from tunewright.backends.inductor.templates import OWN, OWN_SOURCE, Blueprint
from tunewright.fronts.torch.attempt import Attempt, Launch
from tunewright.fronts.torch.deciding import Deciding, machine
from tunewright.fronts.torch.numerics import error
from tunewright.model.decision import Problem
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space, Variant

NAME = "torch.matmul"
DRAWN = "drawn"
"""The variant that follows a blueprint."""

VECTOR, MATRIX = "FP32Vec", "AMX"

_BLOCKS = {
    OWN: ("1x64x1", "1x128x1", "2x128x1", "4x64x1", "8x32x1", "8x48x1", "12x32x1", "14x32x1", "16x16x1", "28x16x1"),
    VECTOR: ("4x64x1", "6x64x1", "8x32x1", "8x48x1", "12x32x1", "16x16x1"),
    MATRIX: ("16x16x32", "16x32x32", "16x48x32", "32x16x32", "32x32x32", "48x16x32"),
}
"""Register blocks of each microkernel."""

_CACHE = ("auto", "0x1x512", "0x1x0", "1x4x0", "4x2x256", "4x4x8")


class Matmuls:
    """Says who computes a product: told, remembered, or raced now."""

    def __init__(self, deciding: Deciding) -> None:
        self._deciding = deciding

    def __call__(self, product: Product) -> tuple[str | Blueprint, str]:
        """Who computes it, and what its kernel is named after."""
        problem = posed(product)
        rows, columns, depth = product.sizes
        names = [f"matmul {rows}x{columns}x{depth}", *([f"matmul {product.layer}"] if product.layer else [])]
        decision = self._deciding(problem, names, lambda: Attempt(_builder(product), _judge(product), self._around()))
        return who(decision.config), self._deciding.trace(problem, names)

    def _around(self) -> Any:
        return self._deciding.surroundings()


def posed(product: Product) -> Problem:
    """A product as a problem."""
    key = Key(
        NAME,
        digest("1", OWN_SOURCE),
        Signature(product.operands, dict(zip("MNK", product.sizes, strict=True))),
        cpu(),
        machine().toolchain,
        {**machine().mode, "operator": product.operator, "fused": product.fused},
    )
    offered = _space(product)
    kinds = product.kinds
    return Problem(
        key, offered, Config({VARIANT: kinds[0]}), seeds=tuple(one for one in _seeds(product) if one in offered)
    )


def _space(product: Product) -> Space:
    micros = [one for one in _BLOCKS if _fits(one, product)]
    plain = [Variant(kind) for kind in product.kinds]
    if not micros:
        return Space(variants=plain)
    registers = sorted({block for one in micros for block in _BLOCKS[one]}, key=_sizes)
    slices = [one for one in (1, 2, 4, 8) if product.threads % one == 0]
    drawn = Variant(
        DRAWN,
        Knob("micro", micros),
        Knob("register", registers),
        Knob("cache", _CACHE),
        Knob("slices", slices),
        Knob("prefetch", [False, True]),
        rules=[
            Rule("the microkernel has no such register block", lambda micro, register: register in _BLOCKS[micro]),
            Rule("only microkernels for vectors prefetch", lambda micro, prefetch: not prefetch or micro != MATRIX),
        ],
    )
    return Space(variants=[*plain, drawn])


def _fits(micro: str, product: Product) -> bool:
    features = cpu().features
    if micro == MATRIX:
        return product.dtype is torch.bfloat16 and "amx_bf16" in features
    return micro == VECTOR or {"avx512bw", "avx512vl"} <= set(features)  # every AVX-512 but the first has them


def _seeds(product: Product) -> list[Config]:
    """What is tried first: everyone as he comes, then what such sizes have liked."""
    rows = product.sizes[0]
    liked: list[tuple[str, str, str, bool]]
    if _fits(MATRIX, product):
        liked = [(MATRIX, "16x16x32", "auto", False), (MATRIX, "32x32x32", "auto", False)]
        liked += [(OWN, "1x64x1", "auto", True)] if rows == 1 else [(MATRIX, "16x48x32", "auto", False)]
    elif rows == 1:
        liked = [(OWN, "1x64x1", "auto", True), (OWN, "1x128x1", "auto", True), (OWN, "1x64x1", "0x1x0", True)]
    elif rows <= 64:
        liked = [(OWN, "8x32x1", "0x1x512", True), (OWN, "8x48x1", "auto", True), (OWN, "16x16x1", "auto", False)]
    else:
        liked = [(OWN, "8x48x1", "0x1x512", False), (OWN, "8x48x1", "auto", True), (OWN, "14x32x1", "auto", False)]
    names = ("micro", "register", "cache", "prefetch")
    drawn = [Config({VARIANT: DRAWN, "slices": 1, **dict(zip(names, one, strict=True))}) for one in liked]
    return [*(Config({VARIANT: kind}) for kind in (LIBRARY, TEMPLATE, UNPACKED)), *drawn]


def who(config: Config) -> str | Blueprint:
    """Whom a config names."""
    if config[VARIANT] != DRAWN:
        return str(config[VARIANT])
    cache = None if config["cache"] == "auto" else _sizes(str(config["cache"]))
    return Blueprint(
        str(config["micro"]), _sizes(str(config["register"])), cache, int(config["slices"]), bool(config["prefetch"])
    )


def _sizes(text: str) -> tuple[int, int, int]:
    one, two, three = map(int, text.split("x"))
    return one, two, three


def _builder(product: Product) -> Callable[[Config], Launch]:
    return lambda config: product.launch(who(config))


def _judge(product: Product) -> Callable[[Any], str | None]:
    """Compares with what the first of them computes: sums in another order differ by little."""
    right: Any = product.launch(product.kinds[0])().double().clone()
    coarse, depth = (float(torch.finfo(product.dtype).eps), product.sizes[2])
    most = 2 * coarse + float(torch.finfo(torch.float32).eps) * depth**0.5

    def judge(result: Any) -> str | None:
        off = error([result], [right])
        return None if off <= most else f"its result is off by {off:.1e} of its size, where {most:.1e} is allowed"

    return judge
