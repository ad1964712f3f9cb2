"""A SQLite store as a cache: decisions are copied from slower stores, and an old answer never replaces a newer one."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from tunewright.model.key import Key
from tunewright.stores.capabilities import CHANGING, FillToken
from tunewright.stores.records import checksum, entry_context
from tunewright.stores.sqlite.connection import SqliteFile

NAMESPACE = "changing"
"""The namespace of the marks of decisions that are being changed in a slower store."""

_CONTESTED = b"contested"
"""The mark of a decision that two processes change at once: nobody knows whose change comes last."""

_VERSIONS = "SELECT digest, generation, since, seal FROM decisions"
KEYS_PER_STATEMENT = 500

_MARK = "INSERT OR REPLACE INTO entries (shelf, name, at, until, seal, body) VALUES (?, ?, ?, ?, ?, ?)"


def take_token(file: SqliteFile, keys: Sequence[Key]) -> FillToken:
    """Returns the versions of the decisions that are here now."""
    digests = [bytes.fromhex(key.digest) for key in keys]
    token: FillToken = {}
    for start in range(0, len(digests), KEYS_PER_STATEMENT):
        batch = digests[start : start + KEYS_PER_STATEMENT]
        marks = ",".join("?" * len(batch))
        for digest, *version in file.rows(f"{_VERSIONS} WHERE digest IN ({marks})", batch):
            token[digest.hex()] = tuple(version)
    changing = file.rows("SELECT name FROM entries WHERE shelf = ? AND until > ?", (NAMESPACE, file.now()))
    return token | {name: CHANGING for (name,) in changing}


def forget(file: SqliteFile, keys: Sequence[Key], seconds: float) -> FillToken:
    """Removes decisions that are about to change, in one transaction, and marks them for `seconds`."""
    token: FillToken = {}
    now = file.now()
    with file.writing() as connection:
        for key in keys:
            contested = _mark(connection, key.digest, now) is not None
            own = secrets.token_bytes(8)
            body = _CONTESTED if contested else own
            connection.execute("DELETE FROM decisions WHERE digest = ?", (bytes.fromhex(key.digest),))
            crc = checksum(body, entry_context(NAMESPACE, key.digest))
            connection.execute(_MARK, (NAMESPACE, key.digest, now, now + seconds, crc, body))
            token[key.digest] = own
    return token


def fill(file: SqliteFile, put: str, rows: Sequence[tuple[Any, ...]], token: FillToken | None) -> int:
    """Runs the statement `put` with the rows that did not change since the token was taken; returns their number."""
    ordered = sorted(rows, key=itemgetter(0))  # in the order of the table
    now = file.now()
    with file.writing() as connection:
        if token is not None:
            ordered = [row for row in ordered if _is_unchanged(connection, row[0], now, token)]
            names = [(NAMESPACE, row[0].hex()) for row in ordered if isinstance(token.get(row[0].hex()), bytes)]
            connection.executemany("DELETE FROM entries WHERE shelf = ? AND name = ?", names)
        connection.executemany(put, ordered)
    return len(ordered)


def _is_unchanged(connection: sqlite3.Connection, digest: bytes, now: float, token: FillToken) -> bool:
    mark = _mark(connection, digest.hex(), now)
    version = _version(connection, digest) if mark is None else mark
    return version != _CONTESTED and version == token.get(digest.hex())


def _mark(connection: sqlite3.Connection, digest: str, now: float) -> bytes | None:
    select = "SELECT body FROM entries WHERE shelf = ? AND name = ? AND until > ?"
    row = connection.execute(select, (NAMESPACE, digest, now)).fetchone()
    return None if row is None else bytes(row[0])


def _version(connection: sqlite3.Connection, digest: bytes) -> tuple[Any, ...] | None:
    row = connection.execute(f"{_VERSIONS} WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else tuple(row[1:])
