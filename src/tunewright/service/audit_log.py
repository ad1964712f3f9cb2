"""Records of the audit log: who published which decision, and which one it replaced."""

from __future__ import annotations

from typing import Any

import msgspec

from tunewright.errors import WireError
from tunewright.stores import serialization

AUDIT_NAMESPACE = "service:audit"
"""The namespace of the store that holds the audit log."""


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A publication: its token and request, and the configs that were current before, sent, and current after it."""

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


def read_record(body: bytes) -> AuditRecord | None:
    """Decodes a record; returns None if it is damaged."""
    try:
        return serialization.decode(body, AuditRecord)
    except WireError:
        return None
