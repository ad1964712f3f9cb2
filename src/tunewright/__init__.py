"""Autotuning for compute kernels: declare a space, search it, measure honestly, remember."""

from typing import Any

from tunewright.backends.c import C
from tunewright.backends.python import Python
from tunewright.cases.case import Case
from tunewright.errors import NoDecision, NothingWorked, TunewrightError
from tunewright.fronts.tuned import Tuned, tune
from tunewright.model.signature import In, InOut, Out
from tunewright.session import Session, configure, current_session
from tunewright.sharing.sealing import seal, unseal
from tunewright.spaces.config import Config
from tunewright.spaces.figure import Figure
from tunewright.spaces.space import Knob, Rule, Space, Variant
from tunewright.version import __version__

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
    "__version__",
    "configure",
    "current_session",
    "memo",
    "persistent_memo",
    "seal",
    "tune",
    "unseal",
]


def __getattr__(name: str) -> Any:
    """Names that most processes do not need are loaded when they are asked for."""
    if name in ("memo", "persistent_memo"):
        from tunewright.fronts import memo  # noqa: PLC0415 - only then

        return getattr(memo, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
