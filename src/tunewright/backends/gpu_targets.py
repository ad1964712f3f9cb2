"""GPU architectures and their resources, as their vendors document them."""

from __future__ import annotations

from dataclasses import dataclass

from tunewright.errors import SettingsError

KIB = 1024


@dataclass(frozen=True)
class TargetSpec:
    """One GPU architecture: the resources of a thread, a block and a multiprocessor.

    `shared_block` is the maximum of a block, `reserved` what the system takes of each block's shared memory. A warp is
    also AMD's wavefront; `simds` is the number of register files that the warps of a multiprocessor share.
    """

    name: str
    backend: str
    arch: int | str
    shared_block: int
    shared_sm: int
    warps_sm: int
    blocks_sm: int
    warp_size: int = 32
    registers_thread: int = 255
    registers_sm: int = 64 * KIB
    register_grain: int = 8
    shared_grain: int = 128
    reserved: int = KIB
    simds: int = 4
    tensor_columns: int = 0
    options: frozenset[str] = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})

    def __str__(self) -> str:
        return self.name

    def blocks(self, registers: int, shared: int, warps: int) -> int:
        """Returns how many blocks of `warps` warps are resident on a multiprocessor; 0 if none fits."""
        if shared > self.shared_block or registers > self.registers_thread:
            return 0
        warp_registers = _round_up(max(registers, 1), self.register_grain) * self.warp_size
        by_registers = self.registers_sm // self.simds // warp_registers * self.simds // warps
        by_shared = (
            self.shared_sm // (_round_up(shared, self.shared_grain) + self.reserved) if shared else self.blocks_sm
        )
        return min(by_registers, by_shared, self.blocks_sm, self.warps_sm // warps)

    def occupancy(self, registers: int, shared: int, warps: int) -> float:
        """Returns resident warps as a share of the maximum of a multiprocessor."""
        return self.blocks(registers, shared, warps) * warps / self.warps_sm


def _round_up(value: int, grain: int) -> int:
    return -(-value // grain) * grain


_CLUSTERED = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "launch_pdl"})
_SINGLE = _CLUSTERED - {"num_ctas", "launch_pdl"}
_HIP = frozenset({"num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack"})


def _cuda(arch: int, shared: int, warps: int, blocks: int, columns: int = 0) -> TargetSpec:
    """CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; a block may have all shared
    memory but the KiB that the system keeps of each block ("Shared Memory" of each capability). Registers are
    given to a warp in units of 256 (CUDA Occupancy Calculator). Clusters and programmatic dependent launch came
    with 9.0 (same guide, "Thread Block Clusters"). Tensor memory: PTX ISA, "Tensor Memory": 512 columns, 10.0 on.
    """
    options = _CLUSTERED if arch >= 90 else _SINGLE
    return TargetSpec(f"sm_{arch}", "cuda", arch, (shared - 1) * KIB, shared * KIB, warps, blocks,
                  tensor_columns=columns, options=options)  # fmt: skip


def _cdna(arch: str, shared: int, grain: int) -> TargetSpec:
    """AMD GPU specifications in the ROCm documentation: 64 lanes, 512 KiB of vector registers and so much LDS a
    compute unit. LLVM's AMDGPU target (AMDGPUBaseInfo): 8 warps on each of 4 SIMDs, 512 registers a lane in units
    of 8 since gfx90a, at most 16 blocks of several warps.
    """
    return TargetSpec(arch, "hip", arch, shared * KIB, shared * KIB, warps_sm=32, blocks_sm=16, warp_size=64,
                  registers_thread=512, registers_sm=128 * KIB, shared_grain=grain, reserved=0,
                  options=_HIP)  # fmt: skip


TARGETS = {
    spec.name: spec
    for spec in (
        _cuda(80, 164, 64, 32),
        _cuda(86, 100, 48, 16),
        _cuda(89, 100, 48, 24),
        _cuda(90, 228, 64, 32),
        _cuda(100, 228, 64, 32, columns=512),
        _cuda(120, 100, 48, 24),
        _cdna("gfx90a", 64, 512),
        _cdna("gfx942", 64, 512),
        _cdna("gfx950", 160, 1280),
    )
}


def find_target(name: str) -> TargetSpec:
    """Returns the target of that name: `sm_90`, `sm90`, `90` or `gfx942`."""
    text = name.strip().lower()
    text = text if text.startswith("gfx") else f"sm_{text.removeprefix('sm').removeprefix('_').removesuffix('a')}"
    if text not in TARGETS:
        raise SettingsError(f"unknown target {name!r}; known: {', '.join(TARGETS)}")
    return TARGETS[text]
