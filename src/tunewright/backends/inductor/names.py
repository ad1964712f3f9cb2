"""Names: generated kernels carry the digest of the decision they come from."""

from __future__ import annotations

import re

MARK = "tw"
DIGITS = 10
"""How much of a key's digest stands in the name of a kernel."""

TOLD = "override"
"""What stands there instead where a user has decided."""


def marked(name: str, digest: str) -> str:
    """The name of a kernel, with the decision it comes from."""
    return f"{name}_{MARK}{digest[:DIGITS]}" if digest else name


def decision_of(kernel: str) -> str:
    """The beginning of the digest of the decision that a generated kernel comes from; empty if it says none."""
    found = re.search(rf"_{MARK}([0-9a-f]{{{DIGITS}}})(?![0-9a-z])", kernel)
    return found[1] if found else ""


def is_told(kernel: str) -> bool:
    """Whether a generated kernel is as an override says."""
    return f"_{MARK}{TOLD}" in kernel
