"""A drop-in for `triton.autotune`: `from tunewright.triton import autotune, Config, heuristics`."""

from typing import TYPE_CHECKING

from tunewright.lazy_names import lazy_names

if TYPE_CHECKING:
    from tunewright.triton.checking import Checked, check
    from tunewright.triton.decorator import autotune
    from tunewright.triton.deferring import idle
    from tunewright.triton.installing import install, installed, uninstall
    from tunewright.triton.names import Config, heuristics
    from tunewright.triton.tuner import TritonTuner

__all__ = [
    "Checked",
    "Config",
    "TritonTuner",
    "autotune",
    "check",
    "heuristics",
    "idle",
    "install",
    "installed",
    "uninstall",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Checked": "tunewright.triton.checking",
        "Config": "tunewright.triton.names",
        "TritonTuner": "tunewright.triton.tuner",
        "autotune": "tunewright.triton.decorator",
        "check": "tunewright.triton.checking",
        "heuristics": "tunewright.triton.names",
        "idle": "tunewright.triton.deferring",
        "install": "tunewright.triton.installing",
        "installed": "tunewright.triton.installing",
        "uninstall": "tunewright.triton.installing",
    },
)
