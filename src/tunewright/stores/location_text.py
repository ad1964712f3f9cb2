"""Locations as text: without secrets for messages, and with the token that belongs to a host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_LOCAL = ("sqlite", "memory", "bundle", "file", "torch")
_SHOWN_OPTIONS = frozenset(
    (
        *("timeout", "tries", "ca", "pack", "insecure", "ttl", "db", "socket_timeout", "socket_connect_timeout"),
        *("host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name", "connect_timeout"),
        "tunewright_timeout",
    )
)
"""Options whose values are shown. That of any other may be a secret."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*?)(?=\s+[A-Za-z][A-Za-z0-9+.-]+:/+|\s*$)", re.DOTALL)
_SECRET_OPTION = re.compile(
    r"(\w*(?:pass|pwd|secret|token|credential)\w*\s*=\s*)('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s&#]+)", re.IGNORECASE
)
_SERVICE = re.compile(r"(?<![A-Za-z0-9+.-])(?<!bundle:)(https?)://([^/?#\s]*)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def hide_secrets(location: str) -> str:
    """Returns a location without passwords, tokens and options that may be secret, for messages."""
    return _SECRET_OPTION.sub(r"\1***", _URL.sub(_hide_in_url, location))


def address_of(location: str) -> str:
    """Returns a location without secrets, users and options, for messages."""
    scheme, mark, rest = hide_secrets(location).partition("?")[0].partition("#")[0].partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _hide_in_url(found: re.Match[str]) -> str:
    scheme, rest = found[1].lower(), found[2]
    if scheme in _LOCAL:
        return found[0]
    begin = found[0][: len(found[0]) - len(rest)]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        user = authority.rpartition("@")[0]
    elif re.fullmatch(r"[^:]*|\[.*\]|.*:\d*", authority):
        return begin + _hide_options(rest)
    elif "@" in rest:  # what looks like a port is the beginning of a password with a slash in it
        user = rest.rpartition("@")[0]
    else:
        return f"{begin}{authority.partition(':')[0]}:***{_hide_options(rest[len(authority) :])}"
    return begin + _shown_user(scheme, user) + _hide_options(rest[len(user) + 1 :])


def _shown_user(scheme: str, user: str) -> str:
    name, colon, _ = user.partition(":")
    if scheme in ("http", "https"):
        return ""  # the token
    if colon:
        return f"{name}:***@"
    return f"{name}@" if scheme.startswith("postgres") else "***@"


def _hide_options(text: str) -> str:
    """Returns the rest of a URL, with the values of only those options that are known to be harmless."""
    text, hash_mark, _ = text.partition("#")
    address, mark, query = text.partition("?")
    options = [option.partition("=") for option in re.split(r"[&;]", query)] if query else []
    shown = "&".join(f"{name}{sign}{_shown_value(name, value)}" for name, sign, value in options)
    return f"{address}{mark}{shown}{'#***' if hash_mark else ''}"


def _shown_value(name: str, value: str) -> str:
    return value if name in _SHOWN_OPTIONS or not value else "***"


def service_hosts(location: str) -> Iterator[str]:
    """Yields the host and port of each service in a location that has no token of its own."""
    for found in _SERVICE.finditer(location):
        if "@" not in found[2]:
            yield host_and_port(found[2], found[1].lower())


def with_tokens(location: str, find_token: Callable[[str], str]) -> str:
    """Returns a location in which each service has its token, if `find_token` has one for its host and port."""

    def add(found: re.Match[str]) -> str:
        token = "" if "@" in found[2] else find_token(host_and_port(found[2], found[1].lower()))
        return f"{found[1]}://{token}@{found[2]}" if token else found[0]

    return _SERVICE.sub(add, location)


def host_and_port(host: str, scheme: str = "https") -> str:
    """Returns a host as tokens are bound to it: in lower case, with its port.

    The port counts, since anybody may listen on another one of a machine that users share.
    """
    name, port = host.strip().rstrip("/").lower(), ""
    if found := re.fullmatch(r"(.*?)(?::(\d*))?", name) if not name.endswith("]") else None:
        name, port = found[1], found[2] or ""
    return f"{name.rstrip('.')}:{port or _DEFAULT_PORTS[scheme]}"
