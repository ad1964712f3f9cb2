"""Serving: how a service is run, as one frozen value; and what would be unsafe, refused."""

from __future__ import annotations

from ipaddress import ip_address

import msgspec

from tunewright.errors import SettingsError

PORT = 8417


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What `tunewright serve` was told.

    `open` means that no token is asked for, which only a loopback address allows. `proxied` says that somebody in front
    of us encrypts. `signers` is a file with the public keys of those whose decisions may be published. What was looked
    up stays warm for `fresh` seconds, in at most `warm` bytes. A body may take `patience` seconds, and have at most
    `largest` bytes when it is unpacked.
    """

    store: str
    address: str = "127.0.0.1"
    port: int = PORT
    workers: int = 1
    threads: int = 8
    open: bool = False
    proxied: bool = False
    signers: str = ""
    certificate: str = ""
    private_key: str = ""
    fresh: float = 2.0
    warm: int = 64 << 20
    patience: float = 20.0
    largest: int = 64 << 20
    drain: float = 20.0
    logs: str = "changes"
    traces: bool = False
    aliases: dict[str, str] = {}

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.private_key):
            raise SettingsError("TLS needs both halves: give --tls-cert FILE and --tls-key FILE")
        if self.open and not self.is_local:
            raise SettingsError(
                f"without tokens everybody who reaches {self.address} may publish; leave --open out and make tokens "
                "with `tunewright service token add`, or listen on 127.0.0.1"
            )
        if not self.is_local and not self.certificate and not self.proxied:
            raise SettingsError(
                f"tokens would travel to {self.address} in the clear; give --tls-cert and --tls-key, or say --proxied "
                "if a proxy in front of it encrypts"
            )
        if self.logs not in LOGS:
            raise SettingsError(f"no such logs: {self.logs!r}; say one of {', '.join(LOGS)}")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.address).is_loopback
        except ValueError:
            return self.address == "localhost"


LOGS = ("all", "changes", "errors")
"""Which requests are logged: all, those that change something or fail, those that fail."""
