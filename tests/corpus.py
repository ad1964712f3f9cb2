"""The referee's corpus of kernels that cheat and of honest ones, for tests: it lies with the benchmarks."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def load(name: str) -> ModuleType:
    """A module of the corpus. Other modules beside it are not importable afterwards: some have common names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return import_module(f"referee_corpus.{name}")


def cases(language: str, *, cheats: bool) -> dict[str, Any]:
    """The cases of a language by name: those that cheat, or the honest ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        found = import_module("referee_corpus").load_cases(language)
    return {case.name: case for case in found if bool(case.cheat) == cheats}
