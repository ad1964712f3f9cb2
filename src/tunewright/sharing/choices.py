"""Choices: what runs where, as one digest."""

from __future__ import annotations

from collections.abc import Iterable

from tunewright.model.key import Key
from tunewright.sharing import wire
from tunewright.spaces.config import Config


def digest(chosen: Iterable[tuple[Key, Config]]) -> str:
    """A digest over what was chosen, whoever found it and when: equal on two machines that run the same configs."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a launch never needs

    parts = sorted((key.digest, wire.encode(config)) for key, config in chosen)
    return sha256(b"".join(name.encode() + body for name, body in parts)).hexdigest()
