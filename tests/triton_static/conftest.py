"""Triton must be there; nothing else of a GPU is needed."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
# Without it Triton 3.9 warns at the first compile; it is part of Triton's key, so the children of tests have it too.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of ours and an empty one of Triton's."""
    monkeypatch.setenv("TUNEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "cache"
