"""Implementations of matrix products: the library, Inductor's template, or the template with a tuned config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tunewright.backends.host import cpu, digest
from tunewright.measure.evaluator import Evaluator
from tunewright.model.decision import Problem
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space, Variant
from tunewright.torch.inductor.gemms import LIBRARY, TEMPLATE, UNPACKED, Gemm, PreparedGemm
from tunewright.torch.inductor.templates import OWN, OWN_SOURCE, GemmConfig
from tunewright.torch.oracle import Expect, ExpectedTensors
from tunewright.torch.product_shares import ProductShares
from tunewright.torch.resolver import Resolver, host_environment
from tunewright.torch.tensor_sets import CallArguments
from tunewright.torch.workload import TorchWorkload

NAME = "torch.matmul"
TEMPLATED = "drawn"
"""The variant that has a `GemmConfig`."""

VECTOR, MATRIX = "FP32Vec", "AMX"

_BLOCKS = {
    OWN: ("1x64x1", "1x128x1", "2x128x1", "4x64x1", "8x32x1", "8x48x1", "12x32x1", "14x32x1", "16x16x1", "28x16x1"),
    VECTOR: ("4x64x1", "6x64x1", "8x32x1", "8x48x1", "12x32x1", "16x16x1"),
    MATRIX: ("16x16x32", "16x32x32", "16x48x32", "32x16x32", "32x32x32", "48x16x32"),
}
"""Register blocks of each microkernel."""

_CACHE = ("auto", "0x1x512", "0x1x0", "1x4x0", "4x2x256", "4x4x8")


class GemmSelector:
    """Selects the implementation of a GEMM: by an override, from the store, or tuned now.

    `shares` say how the time is shared between the products of a graph; one that hardly matters is not tuned.
    """

    def __init__(self, resolver: Resolver, shares: ProductShares) -> None:
        self._resolver, self._shares = resolver, shares

    def __call__(self, gemm: Gemm) -> tuple[str | GemmConfig, str]:
        """Returns the implementation, and what its kernel is named after."""
        problem = make_problem(gemm)
        rows, columns, depth = gemm.sizes
        names = [f"matmul {rows}x{columns}x{depth}", *([f"matmul {gemm.layer}"] if gemm.layer else [])]
        decision = self._resolver(problem, names, lambda: self._evaluator(gemm), self._shares.take(gemm.sizes))
        return implementation(decision.config), self._resolver.decision_digest(decision.key, names)

    def _evaluator(self, gemm: Gemm) -> Evaluator:
        call = CallArguments(gemm.values, gemm.constant, outputs=frozenset({len(gemm.values) - 1}), structured=False)
        timing = self._resolver.timing_options()
        workload = TorchWorkload(
            NAME, lambda config: gemm.prepare(implementation(config)), call, _expect(gemm), timing, PreparedGemm.bind
        )
        return Evaluator(workload)


def make_problem(gemm: Gemm) -> Problem:
    """Returns the implementation of a GEMM as a problem."""
    environment = host_environment()
    key = Key(
        NAME,
        digest("1", OWN_SOURCE),
        Signature(gemm.operands, dict(zip("MNK", gemm.sizes, strict=True))),
        cpu(),
        environment.toolchain,
        {**environment.mode, "operator": gemm.operator, "fused": gemm.fused},
    )
    space = _make_space(gemm)
    seeds = tuple(config for config in _seeds(gemm) if config in space)
    return Problem(key, space, Config({VARIANT: gemm.kinds[0]}), seeds=seeds)


def _make_space(gemm: Gemm) -> Space:
    microkernels = [name for name in _BLOCKS if _is_supported(name, gemm)]
    plain = [Variant(kind) for kind in gemm.kinds]
    if not microkernels:
        return Space(variants=plain)
    registers = sorted({block for name in microkernels for block in _BLOCKS[name]}, key=_parse_sizes)
    templated = Variant(
        TEMPLATED,
        Knob("micro", microkernels),
        Knob("register", registers),
        Knob("cache", _CACHE),
        Knob("slices", [count for count in (1, 2, 4, 8) if gemm.threads % count == 0]),
        Knob("prefetch", [False, True]),
        rules=[
            Rule("the microkernel has no such register block", lambda micro, register: register in _BLOCKS[micro]),
            Rule("only microkernels for vectors prefetch", lambda micro, prefetch: not prefetch or micro != MATRIX),
        ],
    )
    return Space(variants=[*plain, templated])


def _is_supported(microkernel: str, gemm: Gemm) -> bool:
    features = cpu().features
    if microkernel == MATRIX:
        return gemm.dtype is torch.bfloat16 and "amx_bf16" in features
    return microkernel == VECTOR or {"avx512bw", "avx512vl"} <= set(features)  # every AVX-512 but the first has them


def _seeds(gemm: Gemm) -> list[Config]:
    """Returns what is tried first: plain implementations, then configs that are good for such sizes."""
    rows = gemm.sizes[0]
    usual: list[tuple[str, str, str, bool]]
    if _is_supported(MATRIX, gemm):
        usual = [(MATRIX, "16x16x32", "auto", False), (MATRIX, "32x32x32", "auto", False)]
        usual += [(OWN, "1x64x1", "auto", True)] if rows == 1 else [(MATRIX, "16x48x32", "auto", False)]
    elif rows == 1:
        usual = [(OWN, "1x64x1", "auto", True), (OWN, "1x128x1", "auto", True), (OWN, "1x64x1", "0x1x0", True)]
    elif rows <= 64:
        usual = [(OWN, "8x32x1", "0x1x512", True), (OWN, "8x48x1", "auto", True), (OWN, "16x16x1", "auto", False)]
    else:
        usual = [(OWN, "8x48x1", "0x1x512", False), (OWN, "8x48x1", "auto", True), (OWN, "14x32x1", "auto", False)]
    names = ("micro", "register", "cache", "prefetch")
    templated = [Config({VARIANT: TEMPLATED, "slices": 1, **dict(zip(names, row, strict=True))}) for row in usual]
    return [*(Config({VARIANT: kind}) for kind in (LIBRARY, TEMPLATE, UNPACKED)), *templated]


def implementation(config: Config) -> str | GemmConfig:
    """Returns the implementation that a config stands for."""
    if config[VARIANT] != TEMPLATED:
        return str(config[VARIANT])
    cache = None if config["cache"] == "auto" else _parse_sizes(str(config["cache"]))
    register = _parse_sizes(str(config["register"]))
    return GemmConfig(str(config["micro"]), register, cache, int(config["slices"]), bool(config["prefetch"]))


def _parse_sizes(text: str) -> tuple[int, int, int]:
    rows, columns, depth = map(int, text.split("x"))
    return rows, columns, depth


def _expect(gemm: Gemm) -> Expect:
    """Returns what is right: the result of the first implementation, from which sums in another order differ little."""
    first = gemm.prepare(gemm.kinds[0])
    eps, depth = (float(torch.finfo(gemm.dtype).eps), gemm.sizes[2])
    allowed = 2 * eps + float(torch.finfo(torch.float32).eps) * depth**0.5

    def expect(values: Sequence[Any]) -> ExpectedTensors:
        return ExpectedTensors.within([first.bind(*values)()], allowed)

    return expect
