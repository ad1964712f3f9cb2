"""Checks of the options of `tune`: a mistake is named where it was written, not where it first does harm."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tunewright.cases.inputs import BFLOAT16, parse_dtype
from tunewright.engine.budget import Budget
from tunewright.errors import SettingsError, SignatureError
from tunewright.session import Session


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_list(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | Mapping)


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_budget(value: Any) -> bool:
    try:
        return isinstance(value, str) and Budget.parse(value) is not None
    except SettingsError:
        return False


def _is_dtype(value: Any) -> bool:
    try:
        return value == BFLOAT16 or parse_dtype(value) is not None
    except TypeError:
        return False


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "backend": (
        lambda value: isinstance(value, Mapping) or (hasattr(value, "build") and hasattr(value, "load")),
        'a backend, as in backend=C("kernel.c"), or one for each variant',
    ),
    "compile": (callable, "a function of a config that returns a callable: compile=lambda config: ..."),
    "default": (_is_mapping, 'a config: default={"tile": 16}'),
    "reference": (callable, "a function of the kernel's inputs: reference=lambda x: 2 * x"),
    "tolerance": (lambda value: isinstance(value, Real) and float(value) >= 0, "a relative error: tolerance=1e-5"),
    "numerics": (_is_list, 'a list of names of knobs and variants: numerics=["fast_math"]'),
    "inputs": (callable, "a function of named sizes that returns the arguments: inputs=lambda N: (make(N),)"),
    "cases": (_is_list, "a list: cases=[Case(weight=3, M=100)]"),
    "shapes": (
        lambda value: _is_list(value) and all(map(_is_mapping, value)),
        'a list of named sizes: shapes=[{"N": 4096}]',
    ),
    "invariant": (
        lambda value: _is_list(value) and all(isinstance(name, str) for name in value),
        'a list of named dimensions: invariant=["M"]',
    ),
    "buckets": (_is_mapping, 'edges by dimension: buckets={"M": "pow2"}'),
    "seeds": (
        lambda value: callable(value) or isinstance(value, str | Path | Iterable),
        'a list of configs, a JSON file, or a function of the sizes: seeds=[{"tile": 16}]',
    ),
    "threads": (_is_count, "a number of threads, 1 or more"),
    "program": (
        lambda value: callable(value) or isinstance(value, str),
        "a function without arguments, or a command",
    ),
    "dtype": (_is_dtype, 'the name of a dtype: dtype="float64"'),
    "name": (lambda value: isinstance(value, str), "text"),
    "budget": (_is_budget, 'text: trials "200", seconds "30s", or both "200,5m"'),
    "session": (lambda value: isinstance(value, Session), "a Session"),
}
"""For each option: whether a value can be one, and what is expected."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raises if an option that was given has a value of another kind than it takes."""
    for name, value in options.items():
        if value is None or name not in _CHECKS:
            continue
        is_right, expected = _CHECKS[name]
        if not is_right(value):
            raise SignatureError(f"{name} takes {expected}; not {value!r}")
