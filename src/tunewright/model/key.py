"""Key: what must be equal to reuse a decision."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from tunewright.model.device import Device, Toolchain
from tunewright.model.signature import Signature

SCHEMA = 1
"""The number of the wire format; a record of another number is a miss, never a guess."""


class Key(msgspec.Struct, frozen=True, dict=True):
    """The identity of a tuning problem, in plain text.

    Everything that changes the answer is in it; nothing that does not (host, path, user, line numbers).
    """

    kernel: str
    source: str
    signature: Signature
    device: Device
    toolchain: Toolchain = {}
    mode: dict[str, str] = {}

    @cached_property
    def digest(self) -> str:
        """The key as 64 hexadecimal digits: equal keys, equal digests, in every process and on every host."""
        from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a cached launch never needs

        canonical = msgspec.json.encode({"schema": SCHEMA, "key": self}, order="sorted")
        return sha256(canonical).hexdigest()

    @cached_property
    def kin(self) -> str:
        """What keys have in common that differ only in sizes, or in which device of one architecture: a digest."""
        from hashlib import sha256  # noqa: PLC0415 - as above

        device = [self.device.kind, self.device.architecture]
        shared = [SCHEMA, self.kernel, self.source, self.signature.args, device, self.toolchain, self.mode]
        return sha256(msgspec.json.encode(shared, order="sorted")).hexdigest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.digest == other.digest

    def differences(self, other: Key) -> dict[str, tuple[str, str]]:
        """The fields in which two keys differ, as (mine, theirs): the answer to «why did it miss?»."""
        mine, theirs = flatten(self), flatten(other)
        absent = "(absent)"
        return {
            name: (mine.get(name, absent), theirs.get(name, absent))
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        }


def flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """A nested value as dotted names and text."""
    if isinstance(value, msgspec.Struct):
        value = {field: getattr(value, field) for field in value.__struct_fields__}
    if isinstance(value, dict):
        parts = [flatten(item, f"{prefix}.{name}" if prefix else str(name)) for name, item in value.items()]
        return {name: text for part in parts for name, text in part.items()}
    if isinstance(value, tuple) and prefix.endswith("features"):
        return {f"{prefix}.{item}": "yes" for item in value}
    if isinstance(value, tuple):
        return {f"{prefix}.{i}": str(item) for i, item in enumerate(value)}
    return {prefix: str(value)}
