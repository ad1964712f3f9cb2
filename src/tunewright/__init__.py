"""Autotuning for compute kernels: declare a space, search it, measure honestly, remember."""

from tunewright.backends.c import C
from tunewright.backends.python import Python
from tunewright.cases.case import Case
from tunewright.errors import NoDecision, NothingWorked, TunewrightError
from tunewright.fronts.tuned import Tuned, tune
from tunewright.model.signature import In, InOut, Out
from tunewright.session import Session, configure, current_session
from tunewright.spaces.config import Config
from tunewright.spaces.figure import Figure
from tunewright.spaces.space import Knob, Rule, Space, Variant

__version__ = "0.1.0"

__all__ = [
    "C",
    "Case",
    "Config",
    "Figure",
    "In",
    "InOut",
    "Knob",
    "NoDecision",
    "NothingWorked",
    "Out",
    "Python",
    "Rule",
    "Session",
    "Space",
    "Tuned",
    "TunewrightError",
    "Variant",
    "configure",
    "current_session",
    "tune",
]
