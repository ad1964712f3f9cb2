"""Autotuning for compute kernels: declare a space, search it, measure honestly, remember."""

from typing import TYPE_CHECKING

from tunewright.backends.c import C
from tunewright.backends.python import Python
from tunewright.cases.case import Case
from tunewright.errors import NoDecision, NothingWorked, TunewrightError
from tunewright.kernel.declaration import TuneOptions
from tunewright.kernel.tuned import Tuned, tune
from tunewright.lazy_names import lazy_names
from tunewright.model.signature import In, InOut, Out
from tunewright.session import Session, configure, current_session
from tunewright.spaces.config import Config
from tunewright.spaces.feature import Feature
from tunewright.spaces.space import Knob, Range, Rule, Space, Variant
from tunewright.stores.seal import seal, unseal
from tunewright.version import __version__

if TYPE_CHECKING:
    from tunewright.backends.compiled import Callable
    from tunewright.backends.jax import Jax
    from tunewright.backends.numba import Numba
    from tunewright.commands import Command, CpuSeconds, Regex, Seconds
    from tunewright.cuda import Cuda
    from tunewright.memoization import memo, persistent_memo
    from tunewright.referee import Referee

__all__ = [
    "C",
    "Callable",
    "Case",
    "Command",
    "Config",
    "CpuSeconds",
    "Cuda",
    "Feature",
    "In",
    "InOut",
    "Jax",
    "Knob",
    "NoDecision",
    "NothingWorked",
    "Numba",
    "Out",
    "Python",
    "Range",
    "Referee",
    "Regex",
    "Rule",
    "Seconds",
    "Session",
    "Space",
    "TuneOptions",
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

# Names that most processes do not need are imported when they are first used.
__getattr__ = lazy_names(
    __name__,
    {
        "Callable": "tunewright.backends.compiled",
        "Cuda": "tunewright.cuda",
        "Jax": "tunewright.backends.jax",
        "Numba": "tunewright.backends.numba",
        "Referee": "tunewright.referee",
    }
    | dict.fromkeys(("memo", "persistent_memo"), "tunewright.memoization")
    | dict.fromkeys(("Command", "CpuSeconds", "Regex", "Seconds"), "tunewright.commands"),
    deprecated={"Figure": "Feature"},
)
