"""Estimates the resources of a config from its tiles, before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunewright.triton.static.targets import TargetSpec
from tunewright.triton.static.tiles import Dot, KernelTiles, Operand, Origin


class MatrixEngine(StrEnum):
    """The matrix unit that computes a dot; it decides where accumulators and operands are kept."""

    MMA = "mma"  # all in registers
    WGMMA = "wgmma"  # operands that were loaded stay in shared memory
    TCGEN05 = "tcgen05"  # accumulators in tensor memory too
    MFMA = "mfma"
    NONE = "no matrix unit"


@dataclass(frozen=True)
class LaunchOptions:
    """The launch options that matter here, with Triton's defaults."""

    warps: int = 4
    stages: int = 3
    ctas: int = 1

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], target: TargetSpec) -> LaunchOptions:
        """Returns the options in the settings of a launch."""
        default_stages = 3 if target.backend == "cuda" else 2
        return cls(*(int(settings.get(name) or default) for name, default in
                     (("num_warps", 4), ("num_stages", default_stages), ("num_ctas", 1))))  # fmt: skip


@dataclass(frozen=True)
class ResourceEstimate:
    """Lower bounds of what a config needs: registers per thread for accumulators and operands, or for the largest block
    that must be whole; bytes of shared memory per block; tensor-memory columns; 16 x 8 tiles of the smallest dot.
    """

    engine: MatrixEngine
    launch: LaunchOptions
    accumulators: float
    operands: float
    shared: int
    tensor_columns: int
    pieces: int

    @property
    def registers(self) -> float:
        """Registers per thread, without addresses and counters."""
        return self.accumulators + self.operands


def estimate_resources(tiles: KernelTiles, target: TargetSpec, launch: LaunchOptions) -> ResourceEstimate | None:
    """Estimates what the tiles need on `target`; None if there is nothing to estimate from."""
    if not tiles.dots and not tiles.held_bits:
        return None
    threads = launch.warps * target.warp_size * launch.ctas
    engines = [matrix_engine(dot, target, launch) for dot in tiles.dots]
    largest_block = tiles.held_bits / 32 / threads
    accumulators = _accumulator_registers(tiles.dots) / threads
    operands = [_operand_bits(dot, engine) / 32 / threads for dot, engine in zip(tiles.dots, engines, strict=True)]
    shared = [_shared_bytes(dot, engine, target, launch) for dot, engine in zip(tiles.dots, engines, strict=True)]
    tensor_columns = [
        _tensor_columns(dot) for dot, engine in zip(tiles.dots, engines, strict=True) if engine is MatrixEngine.TCGEN05
    ]
    if tensor_columns:  # they pass through registers at the end only, and are narrowed part by part on their way out
        accumulators /= 2
    return ResourceEstimate(
        engine=engines[0] if engines else MatrixEngine.NONE,
        launch=launch,
        accumulators=max(accumulators, largest_block),
        operands=max(operands, default=0.0),
        shared=max(shared, default=0) // launch.ctas,
        tensor_columns=max(tensor_columns, default=0) // launch.ctas,
        pieces=min((dot.m * dot.n // 128 for dot in tiles.dots), default=0),
    )


def matrix_engine(dot: Dot, target: TargetSpec, launch: LaunchOptions) -> MatrixEngine:
    """Returns the matrix unit for a dot: a group of four warps needs at least 64 rows, a single warp any."""
    if target.backend == "hip":
        return MatrixEngine.MFMA
    grouped = launch.warps % 4 == 0 and dot.m >= 64 and dot.n >= 16
    if grouped and target.tensor_columns:
        return MatrixEngine.TCGEN05
    return MatrixEngine.WGMMA if grouped and target.arch == 90 else MatrixEngine.MMA


def _accumulator_registers(dots: list[Dot]) -> float:
    """Returns the registers of a block: accumulators carried by loops are live together, others one at a time."""
    carried: dict[str, float] = {}
    temporary = 0.0
    for dot in dots:
        size = dot.m * dot.n * dot.bits / 32
        if dot.carried:
            carried[dot.carried] = max(carried.get(dot.carried, 0.0), size)
        else:
            temporary = max(temporary, size)
    return sum(carried.values()) + temporary


def _operand_bits(dot: Dot, engine: MatrixEngine) -> int:
    """Returns the bits of operands that pass through registers."""

    def bits(operand: Operand) -> int:
        return operand.elements * operand.bits

    if engine in (MatrixEngine.MMA, MatrixEngine.MFMA):
        return bits(dot.left) + bits(dot.right)
    return bits(dot.left) if engine is MatrixEngine.WGMMA and dot.left.origin is Origin.COMPUTED else 0


def _shared_bytes(dot: Dot, engine: MatrixEngine, target: TargetSpec, launch: LaunchOptions) -> int:
    """Returns bytes of shared memory: a buffer per stage of a streamed operand, one less if the last is registers."""
    reads_shared = engine in (MatrixEngine.WGMMA, MatrixEngine.TCGEN05) or target.name == "gfx950"
    buffers = {
        Origin.STREAMED: launch.stages if reads_shared else launch.stages - 1,
        Origin.LOADED: 1 if reads_shared else 0,
        Origin.COMPUTED: 0,
    }
    return sum(buffers[operand.origin] * operand.elements * operand.bits // 8 for operand in (dot.left, dot.right))


def _tensor_columns(dot: Dot) -> int:
    """Returns tensor-memory columns of 128 lanes of 32 bits; they are allocated in powers of two from 32."""
    columns = -(-dot.m // 128) * dot.n * dot.bits // 32
    return max(32, 1 << (columns - 1).bit_length())
