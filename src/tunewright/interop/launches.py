"""Launches: what a config of a Triton kernel may set, and what none can be launched with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

from tunewright.interop import edge

MOST_STAGES = 16
MOST_ELEMENTS = 1 << 20
"""Of one tensor in a Triton kernel."""

BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")

AMD = frozenset({"waves_per_eu", "matrix_instr_nonkdim", "kpack"})
"""What only AMD's compiler knows; any other stops at it."""


def _whole(value: Any, low: int, high: int = 1 << 31) -> bool:
    return type(value) is int and low <= value <= high


def _power(value: Any, high: int) -> bool:
    return _whole(value, 1, high) and value & (value - 1) == 0


Check = tuple[Callable[[Any], bool], str]

CHECKS: dict[str, Check] = {
    **dict.fromkeys(BLOCKS, (lambda value: _power(value, MOST_ELEMENTS), "a power of two")),
    "GROUP_SIZE_M": (lambda value: _whole(value, 1), "a positive whole number"),
    "SPLIT_K": (lambda value: _whole(value, 1), "a positive whole number"),
    "num_warps": (lambda value: _power(value, 32), "1, 2, 4, 8, 16 or 32"),
    "num_stages": (lambda value: _whole(value, 0, MOST_STAGES), f"0 to {MOST_STAGES}"),
    "num_ctas": (lambda value: _power(value, 16), "1, 2, 4, 8 or 16"),
    "maxnreg": (lambda value: _whole(value, 1, 255), "1 to 255"),
    "waves_per_eu": (lambda value: _whole(value, 0, 16), "0 to 16"),
    "matrix_instr_nonkdim": (lambda value: value in (0, 4, 16, 32) and type(value) is int, "0, 4, 16 or 32"),
    "kpack": (lambda value: value in (1, 2) and type(value) is int, "1 or 2"),
    "USE_TMA": (lambda value: isinstance(value, bool), "true or false"),
}


def impossible(config: Mapping[str, Any]) -> Iterator[str]:
    """What a config sets that cannot be, in words."""
    sound = True
    for name, value in config.items():
        if name in CHECKS and not CHECKS[name][0](value):
            sound = sound and name not in BLOCKS
            yield f"{name} is {edge.shown(value)}, not {CHECKS[name][1]}"
    blocks = [config[name] for name in BLOCKS if name in config]
    if sound and any(one * other > MOST_ELEMENTS for one, other in combinations(blocks, 2)):
        tile = " x ".join(map(str, blocks))
        yield f"a tile of {tile} has more than {MOST_ELEMENTS:,} elements, which is the most that Triton takes"
