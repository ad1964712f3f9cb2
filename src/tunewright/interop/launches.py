"""Valid values of launch parameters of Triton kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

from tunewright.interop import untrusted

MAX_STAGES = 16
MAX_ELEMENTS = 1 << 20
"""Elements of one tensor in a Triton kernel."""

BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")

AMD_ONLY = frozenset({"waves_per_eu", "matrix_instr_nonkdim", "kpack"})
"""Parameters of AMD's compiler; others reject them."""


def _is_int(value: Any, low: int, high: int = 1 << 31) -> bool:
    return type(value) is int and low <= value <= high


def _is_power_of_two(value: Any, high: int) -> bool:
    return _is_int(value, 1, high) and value & (value - 1) == 0


Check = tuple[Callable[[Any], bool], str]

CHECKS: dict[str, Check] = {
    **dict.fromkeys(BLOCKS, (lambda value: _is_power_of_two(value, MAX_ELEMENTS), "a power of two")),
    "GROUP_SIZE_M": (lambda value: _is_int(value, 1), "a positive whole number"),
    "SPLIT_K": (lambda value: _is_int(value, 1), "a positive whole number"),
    "num_warps": (lambda value: _is_power_of_two(value, 32), "1, 2, 4, 8, 16 or 32"),
    "num_stages": (lambda value: _is_int(value, 0, MAX_STAGES), f"0 to {MAX_STAGES}"),
    "num_ctas": (lambda value: _is_power_of_two(value, 16), "1, 2, 4, 8 or 16"),
    "maxnreg": (lambda value: _is_int(value, 1, 255), "1 to 255"),
    "waves_per_eu": (lambda value: _is_int(value, 0, 16), "0 to 16"),
    "matrix_instr_nonkdim": (lambda value: value in (0, 4, 16, 32) and type(value) is int, "0, 4, 16 or 32"),
    "kpack": (lambda value: value in (1, 2) and type(value) is int, "1 or 2"),
    "USE_TMA": (lambda value: isinstance(value, bool), "true or false"),
}


def launch_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is impossible about a config."""
    valid_blocks = True
    for name, value in config.items():
        if name in CHECKS and not CHECKS[name][0](value):
            valid_blocks = valid_blocks and name not in BLOCKS
            yield f"{name} is {untrusted.quote(value)}, not {CHECKS[name][1]}"
    blocks = [config[name] for name in BLOCKS if name in config]
    if valid_blocks and any(a * b > MAX_ELEMENTS for a, b in combinations(blocks, 2)):
        tile = " x ".join(map(str, blocks))
        yield f"a tile of {tile} has more than {MAX_ELEMENTS:,} elements, the limit of Triton"
