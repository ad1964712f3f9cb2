"""What a compiled kernel needs, as ptxas reports it, and whether a launch of it fits a GPU."""

from __future__ import annotations

import re
from math import prod

import msgspec

from tunewright.backends.gpu_targets import TargetSpec
from tunewright.backends.grid_launch import GridLaunch, Shape
from tunewright.errors import BackendError

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = ((1 << 31) - 1, 65535, 65535)
"""The most threads of a block, also along each axis, and the most blocks along each axis (CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability"); the same from 7.5 to 12.0."""

_PROPERTIES = (
    r"Function properties for {}\s+(?:ptxas\s+\.\s+)?"
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_BOUNDS = re.compile(r"\.(maxntid|reqntid)\s+([\d,\s]+)")


class DoesNotFit(BackendError):
    """Raised for a config that needs more than a block, a multiprocessor or a grid of the target has."""


class KernelResources(msgspec.Struct, frozen=True):
    """Resources of a compiled kernel: bytes are per thread; shared memory is per block, without what a launch adds.

    `max_threads` is what `__launch_bounds__` allows, 0 if it is not declared; `exact` whether it is required.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    max_threads: int = 0
    exact: bool = False

    def occupancy(self, target: TargetSpec, shape: GridLaunch) -> float:
        """Returns resident warps over the most of a multiprocessor: theoretical, and no measure of speed."""
        warps = -(-shape.threads // target.warp_size)
        return target.occupancy(self.registers, self.shared + shape.shared, warps)


def parse_resources(said: str, ptx: str, entry: str) -> KernelResources:
    """Returns the resources of a kernel from what `ptxas -v` said, and its bounds from the PTX."""
    properties = re.search(_PROPERTIES.format(re.escape(entry)), said)
    used = re.search(rf"Compiling entry function '{re.escape(entry)}'.*?Used (\d+) registers([^\n]*)", said, re.DOTALL)
    if properties is None or used is None:
        raise BackendError(f"ptxas did not report the resources of {entry}; was -Xptxas -v overridden in flags=?")
    stack, stores, loads = map(int, properties.groups())
    shared = re.search(r"(\d+) bytes smem", used[2])
    header = re.search(rf"\.entry\s+{re.escape(entry)}\s*\([^)]*\)([^{{]*)", ptx)
    bounds = _BOUNDS.search(header[1]) if header else None
    return KernelResources(
        registers=int(used[1]),
        spill_stores=stores,
        spill_loads=loads,
        stack=stack,
        shared=int(shared[1]) if shared else 0,
        max_threads=prod(int(size) for size in bounds[2].split(",")) if bounds else 0,
        exact=bounds is not None and bounds[1] == "reqntid",
    )


def check_shape(shape: GridLaunch, target: TargetSpec) -> None:
    """Raises DoesNotFit for a launch that no kernel could have; needs no compiler."""
    if shape.threads > MAX_THREADS or any(size > most for size, most in zip(shape.block, MAX_BLOCK, strict=True)):
        raise DoesNotFit(
            f"a block of {_times(shape.block)} = {shape.threads:,} threads is too large: at most {MAX_THREADS:,}, "
            f"along the axes {_times(MAX_BLOCK)}; add a Rule to the space"
        )
    if any(size > most for size, most in zip(shape.grid, MAX_GRID, strict=True)):
        raise DoesNotFit(
            f"a grid of {_times(shape.grid)} blocks is too large: at most {_times(MAX_GRID)} along the axes; "
            "give more work to a block, or another axis"
        )
    _check_shared(shape.shared, target)


def check_resources(resources: KernelResources, shape: GridLaunch, target: TargetSpec) -> None:
    """Raises DoesNotFit for a compiled kernel that a launch of this shape would refuse."""
    limit, threads = resources.max_threads, shape.threads
    if limit and (threads > limit or (resources.exact and threads != limit)):
        bound = "exactly" if resources.exact else "at most"
        raise DoesNotFit(
            f"a block has {threads:,} threads, but the kernel is compiled for {bound} {limit:,}; "
            "make __launch_bounds__ follow the knobs of block="
        )
    _check_shared(resources.shared + shape.shared, target)
    warps = -(-threads // target.warp_size)
    if not target.blocks(resources.registers, resources.shared + shape.shared, warps):
        needed = resources.registers * warps * target.warp_size
        raise DoesNotFit(
            f"{resources.registers} registers x {warps * target.warp_size:,} threads = {needed:,} registers; "
            f"a multiprocessor of {target} has {target.registers_sm:,}; "
            f"declare __launch_bounds__({threads}), or add a Rule"
        )


def _check_shared(needed: int, target: TargetSpec) -> None:
    if needed > target.shared_block:
        raise DoesNotFit(
            f"a block needs {needed:,} bytes of shared memory; {target} has {target.shared_block:,}; "
            "use smaller tiles, or add a Rule to the space"
        )


def _times(sizes: Shape) -> str:
    return " x ".join(f"{size:,}" for size in sizes)
