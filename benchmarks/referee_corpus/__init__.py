"""Kernels for `referee.py`: some cheat or have a bug that shows late, the others are honest.

Functions in Python and C, calls on tensors (torch), and Triton kernels. A module is named after its language.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from referee_corpus.case import Case

MODULES = (
    "python_cheats",
    "python_memos",
    "python_attacks",
    "python_streams",
    "c_cheats",
    "python_honest",
    "python_types",
    "python_inputs",
    "c_honest",
    "torch_cheats",
    "torch_results",
    "torch_honest",
    "triton_cheats",
    "triton_honest",
    "triton_timing",
)
NEEDED = {"torch": ("torch",), "triton": ("torch", "triton")}
"""Libraries that a language needs."""

LEFT_OUT = frozenset(
    (
        *("accumulates", "counts_half", "counts_on", "entropy_once", "fewer_terms", "first_norm", "first_result"),
        *("late_thread", "memo_samples", "memo_sums", "noisy", "patch_comparison", "stale_total", "transposed"),
        *("updates_once", "writes_beyond", "writes_inputs"),
        *("declares_its_threads", "dithered", "dot_when_cold", "integer_product", "reorders", "returns_two_arrays"),
        *("roots_of_extremes", "saturates", "scratch_in_arrays", "sketched_trace", "solves", "sorts_in_place", "sums"),
        *("takes_25_ms_in_place", "takes_long_in_place", "three_elements", "transposes", "two_cases", "without_roles"),
    )
)
"""Cases in Python and C that `--quick` leaves out, since others do nearly the same: cheats, then honest ones."""


def is_left_out(case: Case) -> bool:
    """Whether `--quick` leaves a case out."""
    return case.language not in NEEDED and case.name in LEFT_OUT


def load_cases(*languages: str) -> list[Case]:
    """All cases in these languages, or in all, cheats first; none in a language whose library is not installed."""
    for name in MODULES:
        language = name.partition("_")[0]
        if language in (languages or (language,)) and all(map(find_spec, NEEDED.get(language, ()))):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch's own deprecation warnings on import
                import_module(f"referee_corpus.{name}")
    from referee_corpus.case import CASES

    return [case for case in CASES if case.language in (languages or (case.language,))]
