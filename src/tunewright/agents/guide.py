"""The guide for agents, which lies in the package as SKILL.md."""

from __future__ import annotations

from pathlib import Path

GUIDE = Path(__file__).parent / "SKILL.md"
"""How to use the command line well, for agents."""


def read_guide() -> str:
    """Returns the guide."""
    return GUIDE.read_text()
