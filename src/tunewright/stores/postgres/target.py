"""Target: which server a location names, and how long it may take to answer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tunewright.errors import StoreError

SECONDS = 2.0
_OURS = "tunewright_timeout"


class Target(NamedTuple):
    """What libpq needs to know, how long a call may take, and a name that can be said aloud."""

    options: dict[str, Any]
    seconds: float
    name: str

    @classmethod
    def of(cls, location: str) -> Target:
        """The server at `postgresql://...`, or at `postgres:` and libpq's words (`host=db dbname=tuning`)."""
        try:
            rest, given = _parted(location)
            options = conninfo_to_dict(rest)
        except (psycopg.ProgrammingError, ValueError):
            # What libpq says of it may repeat the password.
            raise StoreError(
                "the location of the store is none that PostgreSQL knows;"
                " write postgresql://user@host:port/database, and the password into ~/.pgpass"
            ) from None
        host, port = options.get("host") or options.get("hostaddr") or "local socket", options.get("port") or 5432
        return cls(options, _seconds(given), f"{host}:{port}/{options.get('dbname') or options.get('user') or ''}")


def _parted(location: str) -> tuple[str, str]:
    """The location without what is meant for us, and that."""
    if "://" in location:
        split = urlsplit(location)
        pairs = parse_qsl(split.query, keep_blank_values=True)
        query = urlencode([(name, value) for name, value in pairs if name != _OURS])
        return split._replace(query=query).geturl(), dict(pairs).get(_OURS, "")
    words = location.partition(":")[2].split()
    ours = [word.partition("=")[2] for word in words if word.startswith(f"{_OURS}=")]
    return " ".join(word for word in words if not word.startswith(f"{_OURS}=")), "".join(ours)


def _seconds(given: str) -> float:
    try:
        seconds = float(given or SECONDS)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise StoreError(f"{_OURS} is a number of seconds, such as {SECONDS:g}; not {given!r}")
    return seconds
