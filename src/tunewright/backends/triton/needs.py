"""Needs: what a config will take of a GPU, reckoned from its tiles before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunewright.backends.triton.targets import Target
from tunewright.backends.triton.tiles import Dot, Operand, Origin, Tiles


class Engine(StrEnum):
    """What multiplies: it says where accumulators and operands live."""

    MMA = "mma"  # all in registers
    WGMMA = "wgmma"  # operands that were loaded stay in shared memory
    TCGEN05 = "tcgen05"  # accumulators in tensor memory too
    MFMA = "mfma"
    NONE = "no matrix unit"


@dataclass(frozen=True)
class Launch:
    """The launch options that matter here, as Triton takes them if they are not said."""

    warps: int = 4
    stages: int = 3
    ctas: int = 1

    @classmethod
    def of(cls, settings: Mapping[str, Any], target: Target) -> Launch:
        """From the settings of a launch."""
        usual = 3 if target.backend == "cuda" else 2
        return cls(*(int(settings.get(name) or default) for name, default in
                     (("num_warps", 4), ("num_stages", usual), ("num_ctas", 1))))  # fmt: skip


@dataclass(frozen=True)
class Needs:
    """What a config needs at least: registers a thread for accumulators and for operands, or for a block that must
    be whole at once; bytes of shared memory a block; tensor-memory columns.
    """

    engine: Engine
    launch: Launch
    accumulators: float
    operands: float
    shared: int
    tensor_columns: int
    pieces: int

    @property
    def registers(self) -> float:
        """Registers a thread, addresses and counters not included."""
        return self.accumulators + self.operands


def needs(tiles: Tiles, target: Target, launch: Launch) -> Needs | None:
    """What the tiles need on `target`; None where the source tells nothing that could be reckoned with."""
    if not tiles.dots and not tiles.held_bits:
        return None
    threads = launch.warps * target.warp_size * launch.ctas
    engines = [engine(dot, target, launch) for dot in tiles.dots]
    held = tiles.held_bits / 32 / threads
    sums = _accumulators(tiles.dots) / threads
    at_once = [_operand_bits(dot, one) / 32 / threads for dot, one in zip(tiles.dots, engines, strict=True)]
    shared = [_shared(dot, one, target, launch) for dot, one in zip(tiles.dots, engines, strict=True)]
    columns = [_columns(dot) for dot, one in zip(tiles.dots, engines, strict=True) if one is Engine.TCGEN05]
    if columns:  # they pass through registers at the end only, and are narrowed part by part on their way out
        sums /= 2
    return Needs(
        engine=engines[0] if engines else Engine.NONE,
        launch=launch,
        accumulators=max(sums, held),
        operands=max(at_once, default=0.0),
        shared=max(shared, default=0) // launch.ctas,
        tensor_columns=max(columns, default=0) // launch.ctas,
        pieces=min((dot.m * dot.n // 128 for dot in tiles.dots), default=0),
    )


def engine(dot: Dot, target: Target, launch: Launch) -> Engine:
    """What multiplies there: a group of four warps takes at least 64 rows, a single warp anything."""
    if target.backend == "hip":
        return Engine.MFMA
    grouped = launch.warps % 4 == 0 and dot.m >= 64 and dot.n >= 16
    if grouped and target.tensor_columns:
        return Engine.TCGEN05
    return Engine.WGMMA if grouped and target.arch == 90 else Engine.MMA


def _accumulators(dots: list[Dot]) -> float:
    """Registers of a whole block: accumulators that loops carry live side by side, of the others one at a time."""
    carried: dict[str, float] = {}
    passing = 0.0
    for dot in dots:
        size = dot.m * dot.n * dot.bits / 32
        if dot.carried:
            carried[dot.carried] = max(carried.get(dot.carried, 0.0), size)
        else:
            passing = max(passing, size)
    return sum(carried.values()) + passing


def _operand_bits(dot: Dot, by: Engine) -> int:
    """Bits of operands that pass through registers."""

    def bits(operand: Operand) -> int:
        return operand.elements * operand.bits

    if by in (Engine.MMA, Engine.MFMA):
        return bits(dot.left) + bits(dot.right)
    return bits(dot.left) if by is Engine.WGMMA and dot.left.origin is Origin.COMPUTED else 0


def _shared(dot: Dot, by: Engine, target: Target, launch: Launch) -> int:
    """Bytes of shared memory: a buffer a stage for what a loop streams, one less where registers are the last."""
    direct = by in (Engine.WGMMA, Engine.TCGEN05) or target.name == "gfx950"
    buffers = {
        Origin.STREAMED: launch.stages if direct else launch.stages - 1,
        Origin.LOADED: 1 if direct else 0,
        Origin.COMPUTED: 0,
    }
    return sum(buffers[side.origin] * side.elements * side.bits // 8 for side in (dot.left, dot.right))


def _columns(dot: Dot) -> int:
    """Tensor-memory columns, which have 128 lanes of 32 bits; they are given out in powers of two from 32."""
    wanted = -(-dot.m // 128) * dot.n * dot.bits // 32
    return max(32, 1 << (wanted - 1).bit_length())
