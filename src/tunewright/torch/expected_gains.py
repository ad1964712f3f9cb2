"""Which implementations of matrix products are expected to make a graph faster: what they gained in other graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, log
from typing import NamedTuple

import torch

from tunewright.backends.host import cpu
from tunewright.torch.product_shares import Product

FEW_ROWS = 64
"""Rows up to which a product mostly waits for its weights."""


class ProductGain(NamedTuple):
    """Logarithms of how many times as fast as the library's products others are: C++ templates, and chosen ones."""

    template: float
    chosen: float


GAINS: Mapping[tuple[str, str], ProductGain] = {
    ("single", "one"): ProductGain(0.02, 0.10),
    ("single", "few"): ProductGain(-0.54, 0.25),
    ("single", "many"): ProductGain(-0.92, 0.01),
    ("native bfloat16", "one"): ProductGain(0.34, 0.41),
    ("native bfloat16", "few"): ProductGain(0.24, 0.33),
    ("native bfloat16", "many"): ProductGain(-0.10, 0.00),
    ("widened bfloat16", "one"): ProductGain(0.07, 0.37),
    ("widened bfloat16", "few"): ProductGain(0.37, 1.16),
    ("widened bfloat16", "many"): ProductGain(0.07, 0.90),
}
"""By the arithmetic of a product, which depends on the processor, and by its rows: means over the 27 rows of the nine
graphs of `benchmarks/torch_compile.py`, two processors, one and two threads (docs/results/torch.md)."""

NONE = ProductGain(0.0, 0.0)


def expected_gain(products: Iterable[Product], other_cost: float) -> ProductGain:
    """Returns what is expected of a graph with these products, whose other operations cost so much."""
    known = [(product.cost, _gain(product)) for product in products]
    total = other_cost + sum(cost for cost, _ in known)
    if not known or not total:
        return NONE
    times = [other_cost + sum(cost * exp(-gain[i]) for cost, gain in known) for i in range(len(NONE))]
    return ProductGain(*(log(total / time) for time in times))


def _gain(product: Product) -> ProductGain:
    """Returns what is expected of one product."""
    rows = "one" if product.sizes[0] == 1 else "few" if product.sizes[0] <= FEW_ROWS else "many"
    return GAINS.get((_arithmetic(product.dtype), rows), NONE)


def _arithmetic(dtype: torch.dtype) -> str:
    """Returns how this processor multiplies numbers of a dtype."""
    if dtype is torch.float32:
        return "single"
    if dtype is not torch.bfloat16:
        return str(dtype)
    return "native bfloat16" if {"amx_bf16", "avx512_bf16"} & set(cpu().features) else "widened bfloat16"
