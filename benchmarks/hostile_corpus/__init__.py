"""Attacks for `hostile.py`, and honest uses that resemble them. Every module here that is not `case` declares some."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from hostile_corpus.case import CASES, Case


def load_cases() -> list[Case]:
    """Returns all cases, by module."""
    for module in iter_modules([str(Path(__file__).parent)]):
        import_module(f"hostile_corpus.{module.name}")
    return sorted(CASES, key=lambda case: case.module)
