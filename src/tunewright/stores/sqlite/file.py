"""File: a SQLite file that many threads and processes have open, and whose errors say what to do."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tunewright.errors import StoreError
from tunewright.stores import process
from tunewright.stores.sqlite import schema
from tunewright.stores.sqlite.uptime import boot, uptime

Given = Sequence[Any] | Mapping[str, Any]
"""What a statement is given: values in order for `?`, or by name for `:name`."""

BUSY_SECONDS = 60.0
PAGE = 1000

# What is said of a damaged file may quote it, and then not even be text.
_TROUBLE = (sqlite3.Error, OSError, UnicodeDecodeError)
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TAKEN = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_ADVICE = {
    sqlite3.SQLITE_CORRUPT: "it is damaged: move it away, with its -wal and -shm, and it is made anew",
    sqlite3.SQLITE_NOTADB: "it is no store: move it away and one is made, or set another `store`",
    sqlite3.SQLITE_FULL: "free some space, then drop what is old with `tunewright store gc`",
    sqlite3.SQLITE_BUSY: f"another process has been writing for {BUSY_SECONDS:.0f} s: try again",
}
_ELSE = "check the path and its rights, or set another `store`"

_inherited: list[sqlite3.Connection] = []
"""Connections of a parent process. To close one here would end it there."""


class _Held:
    """A connection that is closed with the thread that holds it, by the process that opened it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.owner = connection, process.number
        weakref.finalize(self, _close, connection, self.owner)


def _close(connection: sqlite3.Connection, owner: int) -> None:
    if owner == process.number:
        connection.close()
    else:
        _inherited.append(connection)


class SqliteFile:
    """A file in write-ahead mode: readers never wait, writers take turns. Raises only StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._began = 0.0

    def row(self, sql: str, given: Given = ()) -> Any:
        """The first row that `sql` answers, or None."""
        try:
            return self._connection().execute(sql, given).fetchone()
        except _TROUBLE as error:
            raise self._failed("read", error) from error

    def rows(self, sql: str, given: Given = ()) -> list[Any]:
        """All rows that `sql` answers."""
        try:
            return self._connection().execute(sql, given).fetchall()
        except _TROUBLE as error:
            raise self._failed("read", error) from error

    def pages(self, sql: str, after: Any, **given: Any) -> Iterator[Any]:
        """All rows, read a page at a time: `sql` takes where to go on (`:after`), how many (`:count`), and more."""
        while True:
            rows = self.rows(sql, {"after": after, "count": PAGE, **given})
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def change(self, sql: str, given: Given = ()) -> int:
        """Run one statement, which is a transaction of its own; how many rows it changed."""
        try:
            return self._connection().execute(sql, given).rowcount
        except _TROUBLE as error:
            raise self._failed("write to", error) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing. It takes the write lock first, so it cannot be refused later."""
        try:
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
        except _TROUBLE as error:
            raise self._failed("write to", error) from error

    def now(self) -> float:
        """The time, by the clock on the wall as it stood when this boot first opened the file.

        Setting that clock later neither ends nor prolongs what is kept for a while.
        """
        if not self._began:
            self.row("SELECT 1")  # opens it
        return self._began + uptime()

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection; a forked child opens its own, as SQLite demands."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is None or held.owner != process.number:
            held = self._local.held = _Held(self._open())
        return held.connection

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._opened()
        except sqlite3.OperationalError:
            if not _is_still(self.path):
                raise
            # Write-ahead mode writes even to read; of a file said to be still, SQLite reads what is there.
            return self._opened(still=True)

    def _opened(self, *, still: bool = False) -> sqlite3.Connection:
        place = f"{self.path.resolve().as_uri()}?immutable=1" if still else self.path
        connection = sqlite3.connect(
            place, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=still
        )
        try:
            # A file from elsewhere must not run code of ours, nor lead us out of its pages.
            for setting in ("synchronous = NORMAL", "trusted_schema = OFF", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {setting}")
            if not still:
                _turn_on_wal(connection)
            schema.prepare(connection, self.path)
            self._began = _beginning(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _failed(self, verb: str, error: Exception) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if isinstance(error, UnicodeDecodeError):
            code = sqlite3.SQLITE_CORRUPT
        if code in _DAMAGED:
            self._local.held = None  # whoever moves the file away shall be served by the next call
        return StoreError(f"cannot {verb} {self.path}: {error}; {_ADVICE.get(code, _ELSE)}")


def _is_still(path: Path) -> bool:
    """Whether this is a whole file in a place where we can write nothing, as in a read-only home."""
    log = path.with_name(f"{path.name}-wal")
    writable = any(os.access(part, os.W_OK) for part in (path, path.parent))
    return path.is_file() and not writable and not (log.exists() and log.stat().st_size)


def _turn_on_wal(connection: sqlite3.Connection) -> None:
    """Write-ahead mode, once in the life of a file. SQLite does not wait its turn for this, so we do."""
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                raise OSError("this file system has no shared memory, which write-ahead mode needs")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _TAKEN or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _beginning(connection: sqlite3.Connection) -> float:
    """When this boot began, as noted by whoever opened the file first since."""
    asked = "SELECT began FROM boots WHERE boot = ?"
    known, ours = connection.execute(asked, (boot(),)).fetchone(), time.time() - uptime()
    if known is None:
        with suppress(sqlite3.OperationalError):  # where nothing can be written, there may still be something to read
            connection.execute("INSERT OR IGNORE INTO boots VALUES (?, ?)", (boot(), ours))
        known = connection.execute(asked, (boot(),)).fetchone()
    return float(known[0]) if known else ours
