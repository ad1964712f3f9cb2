"""Keys: what must be equal to reuse a decision."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from tunewright.model.device import Device, Toolchain
from tunewright.model.signature import Signature

SCHEMA = 1
"""The schema number of stored records; a record with another number is a miss."""

PRINTED_COST = 1e-6
"""The cost of 1, if what is minimized is a number that a command prints, or its inverse."""

CHECKED_BY_DEFAULT = "the default config"
"""How `mode["check"]` begins if results are compared with those of the default config."""


class Key(msgspec.Struct, frozen=True, dict=True):
    """The identity of a tuning problem, as text.

    It has everything that may change the best config, and nothing else (no host, path, user or line number).
    """

    kernel: str
    source: str
    signature: Signature
    device: Device
    toolchain: Toolchain = {}
    mode: dict[str, str] = {}

    @cached_property
    def digest(self) -> str:
        """The key as 64 hexadecimal digits, equal in every process and on every host."""
        from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a cached launch never needs

        canonical = msgspec.json.encode({"schema": SCHEMA, "key": self}, order="sorted")
        self.__dict__["record_end"] = _record_end(canonical)
        return sha256(canonical).hexdigest()

    @cached_property
    def record_end(self) -> bytes:
        """The last bytes of each canonical record of a decision for this key, which show that it is for no other."""
        return _record_end(msgspec.json.encode({"schema": SCHEMA, "key": self}, order="sorted"))

    @cached_property
    def related_digest(self) -> str:
        """A digest that related keys share: they differ only in sizes, or in the device of one architecture."""
        from hashlib import sha256  # noqa: PLC0415 - as above

        device = [self.device.kind, self.device.architecture]
        shared = [SCHEMA, self.kernel, self.source, self.signature.args, device, self.toolchain, self.mode]
        return sha256(msgspec.json.encode(shared, order="sorted")).hexdigest()

    @property
    def is_checked_by_default(self) -> bool:
        """Whether every trial runs the default config, since there is no reference."""
        return self.mode.get("check", "").startswith(CHECKED_BY_DEFAULT)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.digest == other.digest

    def differences(self, other: Key) -> dict[str, tuple[str, str]]:
        """Returns the fields in which two keys differ, as (this, other): why a look-up missed."""
        fields, other_fields = flatten(self), flatten(other)
        absent = "(absent)"
        return {
            name: (fields.get(name, absent), other_fields.get(name, absent))
            for name in sorted(fields.keys() | other_fields.keys())
            if fields.get(name) != other_fields.get(name)
        }


def _record_end(canonical: bytes) -> bytes:
    """Returns `"key":...},"schema":1}` from `{"key":...,"schema":1}`."""
    key, comma, schema = canonical.rpartition(b",")
    return key[1:] + b"}" + comma + schema


def flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Returns a nested value as dotted names with text."""
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
