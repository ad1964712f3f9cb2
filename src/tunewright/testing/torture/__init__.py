"""Torture suite for tuners: noise, drift, crashes and wrong clocks on a simulated machine of known truth."""

import warnings
from typing import Any

from tunewright.testing.torture.disturbances import Disturbance
from tunewright.testing.torture.machine import Crash, Refused, SimulatedMachine, Truth
from tunewright.testing.torture.scenarios import CLEAR_WINNERS, CRASHES, CROWD, NEAR_TIES, REFUSALS, SCENARIOS, Scenario
from tunewright.testing.torture.suite import TortureScore, torture
from tunewright.testing.torture.tuners import DoBench, KernelTuner, NoChoice, Tuner, TunewrightTuner

__all__ = [
    "CLEAR_WINNERS",
    "CRASHES",
    "CROWD",
    "NEAR_TIES",
    "REFUSALS",
    "SCENARIOS",
    "Crash",
    "Disturbance",
    "DoBench",
    "KernelTuner",
    "NoChoice",
    "Refused",
    "Scenario",
    "SimulatedMachine",
    "TortureScore",
    "Truth",
    "Tuner",
    "TunewrightTuner",
    "torture",
]  # fmt: skip

_RENAMED = {
    "Lost": NoChoice,
    "Machine": SimulatedMachine,
    "Ours": TunewrightTuner,
    "Score": TortureScore,
    "Weather": Disturbance,
}


def __getattr__(name: str) -> Any:
    """Returns a class by its former name."""
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = f"{__name__}.{name} is now {_RENAMED[name].__name__}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return _RENAMED[name]
