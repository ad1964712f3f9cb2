"""The door for Triton kernels: `from tunewright.triton import autotune, Config, heuristics`."""

from tunewright.fronts.triton.checking import Checked, check
from tunewright.fronts.triton.front import TritonTuner, autotune
from tunewright.fronts.triton.installing import install, installed, uninstall
from tunewright.fronts.triton.names import Config, heuristics

__all__ = ["Checked", "Config", "TritonTuner", "autotune", "check", "heuristics", "install", "installed", "uninstall"]
