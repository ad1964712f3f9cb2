"""Location of a service: its address, token and options."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from tunewright.errors import StoreError
from tunewright.stores.location_text import address_of
from tunewright.stores.loopback import is_loopback

OPTIONS = ("timeout", "tries", "sign", "ca", "pack", "insecure")


class ServiceLocation(NamedTuple):
    """The address of a service without secrets, the token, and the options of the location."""

    base: str
    token: str
    timeout: float
    tries: int
    sign: str
    ca: str
    compress: bool

    @classmethod
    def parse(cls, location: str) -> ServiceLocation:
        """Parses `https://HOST[:PORT][/PATH]`, with the token as `https://TOKEN@HOST`."""
        try:
            parts = urlsplit(location)
            host, port = parts.hostname or "", parts.port
            options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
            timeout, tries = float(options.get("timeout", 5.0)), int(options.get("tries", 3))
        except ValueError:
            # The message may repeat the token.
            raise StoreError(
                f"{address_of(location)} is not a valid location of a service; write https://HOST:PORT?timeout=5"
            ) from None
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise StoreError(f"{address_of(location)}: no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
        if not host or not timeout > 0 or tries < 1:
            raise StoreError(
                f"{address_of(location)} is not a valid location of a service; "
                "write https://HOST, with timeout and tries > 0"
            )
        token = unquote(parts.password or parts.username or "")
        if not token.isascii() or not token.isprintable():
            raise StoreError(f"the token for {address_of(location)} has invalid characters; copy it again")
        if token and parts.scheme == "http" and not is_loopback(host) and not _is_yes(options.get("insecure", "")):
            raise StoreError(
                f"the token for {address_of(location)} would be sent unencrypted; use https://, "
                "or add ?insecure=yes if nobody can listen"
            )
        name = f"[{host}]" if ":" in host else host
        base = f"{parts.scheme}://{name}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
        compress = _is_yes(options.get("pack", "yes"))
        return cls(base, token, timeout, tries, options.get("sign", ""), options.get("ca", ""), compress)

    def __repr__(self) -> str:
        return f"ServiceLocation({self.base!r})"


def _is_yes(text: str) -> bool:
    return text.lower() in ("1", "yes", "true", "on")
