"""Auditing: who published what, and in the place of what, as it is written down."""

from __future__ import annotations

from typing import Any

import msgspec

from tunewright.errors import WireError
from tunewright.sharing import wire

AUDIT = "service:audit"
"""The shelf on which it is written down."""


class Noted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A publication: by which token, in which request, what stood before, was asked for, and stands now."""

    at: float
    token: str
    request: str
    digest: str
    kernel: str
    asked: dict[str, Any]
    after: dict[str, Any]
    stands: bool
    before: dict[str, Any] | None = None
    signer: str = ""


def read(body: bytes) -> Noted | None:
    """What was noted; None if it cannot be read."""
    try:
        return wire.decode(body, Noted)
    except WireError:
        return None
