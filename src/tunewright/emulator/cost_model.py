"""A stated model of how long a launch takes on a card, from figures of its blocks.

It knows nothing of recorded times. Use it for the order of first trials, and as a prior that trials overrule; never
for a decision. Each limit is a rate that the vendor documents; the smooth maximum of the limits is the time of the
blocks that share a multiprocessor, and no shorter than one warp by itself.
"""

from __future__ import annotations

from math import prod

import msgspec

from tunewright.emulator.counters import SECTOR
from tunewright.emulator.figures import BlockFigures

SOFTNESS = 4.0
"""Exponent of the smooth maximum."""


class CardRates(msgspec.Struct, frozen=True):
    """Rates of a card: per clock and multiprocessor, but `dram_gbps` for the whole card.

    Warp instructions: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions", over 32 lanes.
    """

    multiprocessors: int
    ghz: float
    dram_gbps: float
    floats: float = 4.0
    integers: float = 2.0
    specials: float = 0.5
    tensors: float = 0.25
    requests: float = 1.0
    l2_bytes: float = 42.0
    issue: float = 4.0


def block_limits(figures: BlockFigures, rates: CardRates) -> dict[str, float]:
    """Returns the cycles that each part of a multiprocessor needs for one block."""
    counts = figures.counts
    pipe = {name.removeprefix("pipe_"): count for name, count in counts.items() if name.startswith("pipe_")}
    moves = pipe.get("move", 0.0) + pipe.get("param", 0.0)
    lines = (counts["load_sectors"] + counts["store_sectors"]) / 4
    moved = (counts.get("l1_misses", 0.0) or counts["load_sectors"]) + counts["store_sectors"]
    return {
        "issue": (counts["warp_instructions"] - moves) / rates.issue,
        "float": pipe.get("float", 0.0) / rates.floats,
        "integer": (pipe.get("integer", 0.0) + pipe.get("convert", 0.0)) / rates.integers,
        "special": pipe.get("special", 0.0) / rates.specials,
        "tensor": pipe.get("tensor", 0.0) / rates.tensors,
        "memory": (counts["shared_wavefronts"] + lines + pipe.get("local", 0.0)) / rates.requests,
        "l2": moved * SECTOR / rates.l2_bytes,
    }


def predict_seconds(figures: BlockFigures, resident: int, rates: CardRates, bytes_moved: float = 0.0) -> float:
    """Returns the seconds of a launch with `resident` blocks on each multiprocessor; only their order means anything.

    `bytes_moved` is what the launch must move to and from memory in any case.
    """
    busy = _smooth_max(list(block_limits(figures, rates).values()))
    blocks = prod(figures.grid)
    waves, rest = divmod(blocks, rates.multiprocessors * resident)

    def cycles(together: int) -> float:
        return _smooth_max([together * busy, figures.warp_cycles])

    total = waves * cycles(resident) + (cycles(-(-rest // rates.multiprocessors)) if rest else 0.0)
    seconds = total * figures.repeats / (rates.ghz * 1e9)
    return _smooth_max([seconds, bytes_moved / (rates.dram_gbps * 1e9)])


def _smooth_max(values: list[float]) -> float:
    most = max(values)
    return most * float(sum((value / most) ** SOFTNESS for value in values)) ** (1 / SOFTNESS) if most > 0 else 0.0
