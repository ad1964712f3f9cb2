"""Torture: noise, drift, crashes and lying clocks for any tuner, on a simulated machine where the truth is known."""

from tunewright.testing.torture.machine import Crash, Machine, Refused, Truth
from tunewright.testing.torture.scenarios import CLEAR_WINNERS, CRASHES, CROWD, NEAR_TIES, REFUSALS, SCENARIOS, Scenario
from tunewright.testing.torture.suite import Score, torture
from tunewright.testing.torture.tuners import DoBench, KernelTuner, Lost, Ours, Tuner
from tunewright.testing.torture.weather import Weather

__all__ = [
    "CLEAR_WINNERS", "CRASHES", "CROWD", "NEAR_TIES", "REFUSALS", "SCENARIOS", "Crash", "DoBench", "KernelTuner",
    "Lost", "Machine", "Ours", "Refused", "Scenario", "Score", "Truth", "Tuner", "Weather", "torture",
]  # fmt: skip
