"""Reads the resources of a compiled config from its machine code and assembly (rung 1: compiled, not run)."""

from __future__ import annotations

import re

import msgspec

from tunewright.errors import BackendError
from tunewright.triton.static import elf
from tunewright.triton.static.targets import TargetSpec

_MATRIX_INSTRUCTION = re.compile(r"\b(?:wgmma\.mma_async|tcgen05\.mma|mma\.sync|wmma\.mma|v_s?mfmac?_|v_s?wmmac?_)")

TOLERATED_STACK_BYTES = 32
"""Bytes of stack per thread that are tolerated: eight registers, often spilled once."""

_AMD_METADATA = {
    "registers": re.compile(r"^\s*\.vgpr_count:\s*(\d+)", re.MULTILINE),
    "stack": re.compile(r"^\s*\.private_segment_fixed_size:\s*(\d+)", re.MULTILINE),
}


class CompiledResources(msgspec.Struct, frozen=True):
    """Resources of one compiled config: registers and stack per thread, shared memory and tensor columns per block.

    `stack` is the bytes that a thread spills to memory. `matrix` counts matrix instructions in the code, not how often
    they run. `occupancy` is theoretical: resident warps over the maximum of a multiprocessor.
    """

    registers: int
    stack: int
    shared: int
    tensor_columns: int
    matrix: int
    code_bytes: int
    occupancy: float


def read_resources(code: bytes, assembly: str, target: TargetSpec, block: BlockResources) -> CompiledResources:
    """Reads resources from machine code and assembly."""
    sections = elf.read_sections(code)
    registers, stack = (
        elf.read_registers_and_stack(sections) if target.backend == "cuda" else _parse_amd_metadata(assembly)
    )
    return CompiledResources(
        registers=registers,
        stack=stack,
        shared=block.shared,
        tensor_columns=block.tensor_columns,
        matrix=len(_MATRIX_INSTRUCTION.findall(assembly)),
        code_bytes=elf.count_code_bytes(sections),
        occupancy=target.occupancy(registers, block.shared, block.warps),
    )


class BlockResources(msgspec.Struct, frozen=True):
    """What the compiler reports per block: bytes of shared memory, tensor-memory columns, warps."""

    shared: int
    tensor_columns: int
    warps: int


def _parse_amd_metadata(assembly: str) -> tuple[int, int]:
    """Returns registers and stack from the metadata at the end of AMD's assembly."""
    values = []
    for name, pattern in _AMD_METADATA.items():
        if (match := pattern.search(assembly)) is None:
            raise BackendError(f"the assembly has no entry for {name}; was it written by another compiler?")
        values.append(int(match[1]))
    return values[0], values[1]


def find_misfits(resources: CompiledResources, target: TargetSpec) -> list[str]:
    """Returns why a compiled config is not worth a launch on `target`; empty if it is."""
    misfits = []
    if resources.shared > target.shared_block:
        misfits.append(
            f"it needs {resources.shared:,} bytes of shared memory per block; {target} has {target.shared_block:,}"
        )
    if resources.tensor_columns > target.tensor_columns:
        misfits.append(
            f"it needs {resources.tensor_columns} tensor-memory columns; {target} has {target.tensor_columns}"
        )
    if resources.stack > TOLERATED_STACK_BYTES:
        misfits.append(f"it spills {resources.stack:,} bytes per thread to memory")
    if not misfits and not resources.occupancy:
        misfits.append(f"no block fits: {resources.registers} registers per thread are too many for its warps")
    return misfits
