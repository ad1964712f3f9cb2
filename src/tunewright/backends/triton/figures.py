"""Figures: what a compiled config takes of a GPU, read from the compiled file (rung 1: a real compile, no run)."""

from __future__ import annotations

import re

import msgspec

from tunewright.backends.triton import elf
from tunewright.backends.triton.targets import Target
from tunewright.errors import BackendError

_MATRIX = re.compile(r"\b(?:wgmma\.mma_async|tcgen05\.mma|mma\.sync|wmma\.mma|v_s?mfmac?_|v_s?wmmac?_)")

SLIGHT = 32
"""Bytes of stack a thread that are no reason to drop a config: eight registers, often used once."""

_AMD = {
    "registers": re.compile(r"^\s*\.vgpr_count:\s*(\d+)", re.MULTILINE),
    "stack": re.compile(r"^\s*\.private_segment_fixed_size:\s*(\d+)", re.MULTILINE),
}


class Resources(msgspec.Struct, frozen=True):
    """What one compiled config takes: per thread, per block and of the multiprocessor.

    `stack` is bytes a thread keeps in slow memory: what it spills. `matrix` counts matrix instructions in the code,
    not how often they run. `occupancy` is theoretical: warps that can be there over warps there is room for.
    """

    registers: int
    stack: int
    shared: int
    tensor_columns: int
    matrix: int
    code_bytes: int
    occupancy: float


def resources(code: bytes, assembly: str, target: Target, block: Block) -> Resources:
    """Read them from the machine code and its assembly."""
    found = elf.sections(code)
    registers, stack = elf.registers_and_stack(found) if target.backend == "cuda" else _from_text(assembly)
    return Resources(
        registers=registers,
        stack=stack,
        shared=block.shared,
        tensor_columns=block.tensor_columns,
        matrix=len(_MATRIX.findall(assembly)),
        code_bytes=elf.code_bytes(found),
        occupancy=target.occupancy(registers, block.shared, block.warps),
    )


class Block(msgspec.Struct, frozen=True):
    """What the compiler itself says of a block: bytes of shared memory, tensor-memory columns, warps."""

    shared: int
    tensor_columns: int
    warps: int


def _from_text(assembly: str) -> tuple[int, int]:
    """Registers and stack, from the metadata that AMD's compiler writes at the end of the assembly."""
    read = []
    for name, pattern in _AMD.items():
        if (match := pattern.search(assembly)) is None:
            raise BackendError(f"the assembly does not say {name}; was it written by another compiler?")
        read.append(int(match[1]))
    return read[0], read[1]


def misfits(taken: Resources, target: Target) -> list[str]:
    """Why a compiled config is not worth a launch on `target`, in words; empty if it is."""
    said = []
    if taken.shared > target.shared_block:
        said.append(f"it needs {taken.shared:,} bytes of shared memory a block, {target.shared_block:,} there are")
    if taken.tensor_columns > target.tensor_columns:
        said.append(f"it needs {taken.tensor_columns} tensor-memory columns, {target.tensor_columns} there are")
    if taken.stack > SLIGHT:
        said.append(f"it spills: {taken.stack:,} bytes a thread go to memory instead of registers")
    if not said and not taken.occupancy:
        said.append(f"not one block fits: {taken.registers} registers a thread are too many for its warps")
    return said
