"""Location of a PostgreSQL server, and how long it may take to answer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tunewright.errors import StoreError

SECONDS = 2.0
_TIMEOUT_OPTION = "tunewright_timeout"


class PostgresLocation(NamedTuple):
    """The options of libpq, how long a call may take, and a name without secrets."""

    options: dict[str, Any]
    seconds: float
    name: str

    @classmethod
    def parse(cls, location: str) -> PostgresLocation:
        """Parses `postgresql://...`, or `postgres:` followed by libpq's keywords (`host=db dbname=tuning`)."""
        try:
            rest, timeout = _split_timeout(location)
            options = conninfo_to_dict(rest)
        except (psycopg.ProgrammingError, ValueError):
            # The message of libpq may repeat the password.
            raise StoreError(
                "the location of the store is not valid for PostgreSQL;"
                " write postgresql://user@host:port/database, and the password into ~/.pgpass"
            ) from None
        host, port = options.get("host") or options.get("hostaddr") or "local socket", options.get("port") or 5432
        name = f"{host}:{port}/{options.get('dbname') or options.get('user') or ''}"
        return cls(options, _parse_seconds(timeout), name)

    def __repr__(self) -> str:
        return f"PostgresLocation({self.name!r})"


def _split_timeout(location: str) -> tuple[str, str]:
    """Returns the location without our own option, and the value of that option."""
    if "://" in location:
        url = urlsplit(location)
        pairs = parse_qsl(url.query, keep_blank_values=True)
        query = urlencode([(name, value) for name, value in pairs if name != _TIMEOUT_OPTION])
        return url._replace(query=query).geturl(), dict(pairs).get(_TIMEOUT_OPTION, "")
    words = location.partition(":")[2].split()
    values = [word.partition("=")[2] for word in words if word.startswith(f"{_TIMEOUT_OPTION}=")]
    return " ".join(word for word in words if not word.startswith(f"{_TIMEOUT_OPTION}=")), "".join(values)


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text or SECONDS)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise StoreError(f"{_TIMEOUT_OPTION} is a number of seconds, such as {SECONDS:g}; not {text!r}")
    return seconds
