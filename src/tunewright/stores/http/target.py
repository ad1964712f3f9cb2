"""Target: where a service is and how it is asked, from a location in words."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from tunewright.errors import StoreError

OPTIONS = ("timeout", "tries", "sign", "ca", "pack", "insecure")


class Target(NamedTuple):
    """A service: its address without secrets, the token, and what the location says beside."""

    base: str
    token: str
    timeout: float
    tries: int
    sign: str
    ca: str
    pack: bool

    @classmethod
    def of(cls, location: str) -> Target:
        """The service at `https://HOST[:PORT][/PATH]`, with its token as `https://TOKEN@HOST`."""
        try:
            parts = urlsplit(location)
            host, port = parts.hostname or "", parts.port
            options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
            timeout, tries = float(options.get("timeout", 5.0)), int(options.get("tries", 3))
        except ValueError as error:
            raise StoreError(f"{shown(location)} is no location of a service: {error}") from error
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise StoreError(f"{shown(location)}: no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
        if not host or not timeout > 0 or tries < 1:
            raise StoreError(
                f"{shown(location)} is no location of a service; say https://HOST, a time-out and tries > 0"
            )
        token = unquote(parts.password or parts.username or "")
        if not token.isascii() or not token.isprintable():
            raise StoreError(f"the token for {shown(location)} has characters that no token has; copy it again")
        if token and parts.scheme == "http" and not _is_local(host) and not _yes(options.get("insecure", "")):
            raise StoreError(
                f"the token for {shown(location)} would travel in the clear; say https://, or add ?insecure=yes "
                "if nobody can listen"
            )
        name = f"[{host}]" if ":" in host else host
        base = f"{parts.scheme}://{name}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
        pack = _yes(options.get("pack", "yes"))
        return cls(base, token, timeout, tries, options.get("sign", ""), options.get("ca", ""), pack)


def shown(location: str) -> str:
    """A location without what must not be read in a log: tokens and options."""
    scheme, mark, rest = location.partition("?")[0].partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _yes(text: str) -> bool:
    return text.lower() in ("1", "yes", "true", "on")
