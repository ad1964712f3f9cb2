"""Executes the real PTX of compiled GPU kernels on the CPU: results, faults and counts, never speed."""

from tunewright.backends.grid_launch import GridLaunch
from tunewright.emulator.faults import FaultKind, Place, PtxError, PtxFault, UnsupportedInstruction
from tunewright.emulator.launch import Emulation, Options, emulate

__all__ = [
    "Emulation",
    "FaultKind",
    "GridLaunch",
    "Options",
    "Place",
    "PtxError",
    "PtxFault",
    "UnsupportedInstruction",
    "emulate",
]
