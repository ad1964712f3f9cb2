"""A kernel of the corpus, and the list of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

CASES: dict[str, Case] = {}

NAN = float("nan")


@dataclass(frozen=True)
class Case:
    """A kernel: its function, how to make its arguments, its grid, its configs, and what it should store."""

    name: str
    function: Any
    inputs: Callable[[], Mapping[str, Any]]
    grid: Callable[[Mapping[str, Any]], Sequence[int]]
    configs: tuple[Mapping[str, Any], ...]
    reference: Callable[..., Any]
    targets: tuple[str, ...] = ("sm_80", "sm_89", "sm_90")


def add(case: Case) -> None:
    """Lists a case."""
    assert case.name not in CASES, case.name
    assert len(case.configs) == 4, case.name
    CASES[case.name] = case


def configs(warps: Sequence[int] = (1, 2, 4, 8), stages: Sequence[int] = (1, 2, 3, 4), **knobs: Sequence[Any]) -> Any:
    """Four configs: the i-th has the i-th value of each knob, in a circle."""
    return tuple(
        {
            **{name: values[number % len(values)] for name, values in knobs.items()},
            "num_warps": warps[number % len(warps)],
            "num_stages": stages[number % len(stages)],
        }
        for number in range(4)
    )


def randn(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Any:
    """Random numbers that are the same every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def unset(*shape: int, dtype: Any = torch.float32) -> Any:
    """An output that nothing has written: not-a-number, or a large number."""
    return torch.full(shape, NAN if dtype.is_floating_point else 77, dtype=dtype)


def cdiv(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)
