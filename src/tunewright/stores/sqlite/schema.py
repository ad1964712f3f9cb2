"""Tables of a SQLite store, and the upgrade of files of earlier versions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from tunewright.errors import StoreError, WireError
from tunewright.stores import serialization
from tunewright.stores.records import checksum, related_prefix

VERSION = 2

_DECISIONS = """CREATE TABLE decisions (
    digest BLOB PRIMARY KEY, kernel TEXT NOT NULL, kin BLOB NOT NULL, generation INTEGER NOT NULL,
    since REAL NOT NULL, seal INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID"""
_PROBLEMS = """CREATE TABLE problems (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, kernel TEXT NOT NULL, key BLOB NOT NULL)"""
_TRIALS = """CREATE TABLE trials (
    id INTEGER PRIMARY KEY, problem INTEGER NOT NULL, at REAL NOT NULL, seal INTEGER NOT NULL, body BLOB NOT NULL)"""

_INDEXES_AND_TABLES = (
    "CREATE INDEX decisions_by_kernel ON decisions (kernel)",
    "CREATE INDEX decisions_by_kin ON decisions (kin)",
    "CREATE INDEX IF NOT EXISTS problems_by_kernel ON problems (kernel)",
    "CREATE INDEX trials_by_problem ON trials (problem)",
    """CREATE TABLE history (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL, generation INTEGER NOT NULL,
    since REAL NOT NULL, seal INTEGER NOT NULL, body BLOB NOT NULL)""",
    "CREATE INDEX history_by_digest ON history (digest, generation)",
    """CREATE TRIGGER decisions_become_history AFTER UPDATE OF body ON decisions BEGIN
    INSERT INTO history (digest, generation, since, seal, body)
    VALUES (old.digest, old.generation, old.since, old.seal, old.body); END""",
    """CREATE TABLE wants (
    digest BLOB PRIMARY KEY, kernel TEXT NOT NULL, key BLOB NOT NULL, calls INTEGER NOT NULL, seconds REAL NOT NULL,
    at REAL NOT NULL, target TEXT NOT NULL, recipe TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE leases (
    name TEXT PRIMARY KEY, owner TEXT NOT NULL, boot TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE entries (
    id INTEGER PRIMARY KEY, shelf TEXT NOT NULL, name TEXT NOT NULL, at REAL NOT NULL, until REAL NOT NULL,
    seal INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (shelf, name))""",
    "CREATE INDEX entries_by_shelf ON entries (shelf)",
    "CREATE TABLE boots (boot TEXT PRIMARY KEY, began REAL NOT NULL) WITHOUT ROWID",
)


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Creates or upgrades the tables. Of many processes that open a file at once, one does it and the others wait."""
    if _version(connection, path) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection, path)
        if version == 0:
            for statement in (_DECISIONS, _PROBLEMS, _TRIALS, *_INDEXES_AND_TABLES):
                connection.execute(statement)
        elif version == 1:
            _upgrade_1(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 0 <= version <= VERSION:
        raise StoreError(
            f"{path} has schema {version}, this version of tunewright reads up to {VERSION};"
            " update tunewright, or set another `store`"
        )
    return version


def _upgrade_1(connection: sqlite3.Connection) -> None:
    """Upgrades from version 1, which had no related keys, checksums or times: existing records get the current time."""
    now = time.time()
    for table in ("decisions", "trials"):
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    connection.execute(_DECISIONS)
    connection.execute(_TRIALS)
    connection.executemany("INSERT INTO decisions VALUES (?, ?, ?, 1, ?, ?, ?)", _old_decisions(connection, now))
    connection.executemany("INSERT INTO trials VALUES (?, ?, ?, ?, ?)", _old_trials(connection, now))
    for table in ("decisions", "trials"):
        connection.execute(f"DROP TABLE old_{table}")
    for statement in _INDEXES_AND_TABLES:
        connection.execute(statement)


def _old_decisions(connection: sqlite3.Connection, now: float) -> Iterator[tuple[bytes, str, bytes, float, int, bytes]]:
    for digest, kernel, body in connection.execute("SELECT digest, kernel, CAST(body AS BLOB) FROM old_decisions"):
        try:
            prefix = related_prefix(serialization.load_decision(body).key)
        except WireError:
            prefix = b""  # it remains a miss, and a fault that `verify` lists
        yield digest, kernel, prefix, now, checksum(body, digest), body


def _old_trials(connection: sqlite3.Connection, now: float) -> Iterator[tuple[int, int, float, int, bytes]]:
    rows = "SELECT t.id, problem, digest, CAST(body AS BLOB) FROM old_trials t JOIN problems p ON p.id = problem"
    for number, problem, digest, body in connection.execute(rows):
        yield number, problem, now, checksum(body, digest), body
