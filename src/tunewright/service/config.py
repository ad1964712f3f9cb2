"""The configuration of a service; unsafe combinations are refused."""

from __future__ import annotations

from ipaddress import ip_address

import msgspec

from tunewright.errors import SettingsError

PORT = 8417


class ServiceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `tunewright service run`.

    `open` serves without tokens, which is allowed on a loopback address only. `proxied` states that a proxy in front
    of the service encrypts. `signers` is a file with the public keys whose decisions may be published. Looked-up
    records are cached for `fresh` seconds, in at most `cache_bytes`. A body must arrive within `patience` seconds and
    have at most `largest` bytes after decompression.
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
    cache_bytes: int = 64 << 20
    patience: float = 20.0
    largest: int = 64 << 20
    drain: float = 20.0
    logs: str = "changes"
    traces: bool = False
    aliases: dict[str, str] = {}

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.private_key):
            raise SettingsError("TLS needs a certificate and its key: give --tls-cert FILE and --tls-key FILE")
        if self.open and not self.is_local:
            raise SettingsError(
                f"without tokens everybody who reaches {self.address} may publish; omit --open and create tokens "
                "with `tunewright service token add`, or listen on 127.0.0.1"
            )
        if not self.is_local and not self.certificate and not self.proxied:
            raise SettingsError(
                f"tokens would be sent to {self.address} unencrypted; give --tls-cert and --tls-key, or --proxied "
                "if a proxy in front of the service encrypts"
            )
        if self.logs not in LOGS:
            raise SettingsError(f"unknown value {self.logs!r} of --logs; use one of {', '.join(LOGS)}")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the service."""
        try:
            return ip_address(self.address).is_loopback
        except ValueError:
            return self.address == "localhost"


LOGS = ("all", "changes", "errors")
"""Which requests are logged: all, those that change something or fail, those that fail."""
