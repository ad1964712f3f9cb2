"""Names of generated kernels, which carry the digest of the decision they come from."""

from __future__ import annotations

import re

MARK = "tw"
DIGITS = 10
"""How many digits of a key's digest are in the name of a kernel."""

OVERRIDDEN = "override"
"""Takes the place of the digest where an override decided."""


def with_decision(name: str, digest: str) -> str:
    """Returns the name of a kernel with the decision it comes from."""
    return f"{name}_{MARK}{digest[:DIGITS]}" if digest else name


def decision_of(kernel: str) -> str:
    """Returns the start of the digest of the decision that a kernel comes from; empty if its name has none."""
    match = re.search(rf"_{MARK}([0-9a-f]{{{DIGITS}}})(?![0-9a-z])", kernel)
    return match[1] if match else ""


def is_overridden(kernel: str) -> bool:
    """Whether an override decided about a generated kernel."""
    return f"_{MARK}{OVERRIDDEN}" in kernel
