"""One digest over the configs that were chosen for many keys."""

from __future__ import annotations

from collections.abc import Iterable

from tunewright.model.key import Key
from tunewright.spaces.config import Config
from tunewright.stores import serialization

MAX_CHOICES = 100_000
"""Keys that a process remembers its choices for; the oldest are dropped."""


class Choices(dict[Key, Config]):
    """The configs that were chosen last, by key: at most `MAX_CHOICES`."""

    def __setitem__(self, key: Key, config: Config) -> None:
        super().__setitem__(key, config)
        if len(self) > MAX_CHOICES:
            del self[next(iter(self))]


def digest(choices: Iterable[tuple[Key, Config]]) -> str:
    """Returns a digest over keys and configs, without evidence: equal on two machines that run the same configs."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a launch never needs

    parts = sorted((key.digest, serialization.encode(config)) for key, config in choices)
    return sha256(b"".join(name.encode() + body for name, body in parts)).hexdigest()
