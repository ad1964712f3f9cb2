"""A SQLite file that many threads and processes have open; its errors say what to do."""

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
from tunewright.stores import files, process_id
from tunewright.stores.sqlite import schema
from tunewright.stores.sqlite.boot_clock import boot_id, uptime

Parameters = Sequence[Any] | Mapping[str, Any]
"""The parameters of a statement: values in order for `?`, or by name for `:name`."""

BUSY_SECONDS = 60.0
PAGE = 1000

# The message about a damaged file may quote it, and then not even be text.
_ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_ADVICE = {
    sqlite3.SQLITE_CORRUPT: "it is damaged: move it away, with its -wal and -shm, and a new one is created",
    sqlite3.SQLITE_NOTADB: "it is not a store: move it away and a new one is created, or set another `store`",
    sqlite3.SQLITE_FULL: "free some space, then remove old records with `tunewright store gc`",
    sqlite3.SQLITE_BUSY: f"another process has been writing for {BUSY_SECONDS:.0f} s: try again",
}
_DEFAULT_ADVICE = "check the path and its permissions, or set another `store`"

_inherited: list[sqlite3.Connection] = []
"""Connections of a parent process. Closing one here would end it there."""


class _ThreadConnection:
    """A connection that is closed with its thread, by the process that opened it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.owner = connection, process_id.current
        weakref.finalize(self, _close, connection, self.owner)


def _close(connection: sqlite3.Connection, owner: int) -> None:
    if owner == process_id.current:
        connection.close()
    else:
        _inherited.append(connection)


class SqliteFile:
    """A file in write-ahead mode: readers never wait, writers take turns. Raises only StoreError.

    If `durable`, each change waits until it is on the disk, with all changes before it. Else a power cut may lose the
    last ones, in order, and tears none.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self.path, self._durable = path, durable
        self._local = threading.local()
        self._booted_at = 0.0

    def row(self, sql: str, parameters: Parameters = ()) -> Any:
        """Returns the first row of a query, or None."""
        try:
            return self._connection().execute(sql, parameters).fetchone()
        except _ERRORS as error:
            raise self._failed("read", error) from error

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """Returns all rows of a query."""
        try:
            return self._connection().execute(sql, parameters).fetchall()
        except _ERRORS as error:
            raise self._failed("read", error) from error

    def pages(self, sql: str, after: Any, **parameters: Any) -> Iterator[Any]:
        """Yields all rows, read page by page: `sql` takes the last id (`:after`) and the page size (`:count`)."""
        while True:
            rows = self.rows(sql, {"after": after, "count": PAGE, **parameters})
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Runs one statement as a transaction and returns how many rows it changed."""
        try:
            return self._connection().execute(sql, parameters).rowcount
        except _ERRORS as error:
            raise self._failed("write to", error) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Runs a transaction. It takes the write lock first, so it cannot be refused later."""
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
        except _ERRORS as error:
            raise self._failed("write to", error) from error

    def sync(self) -> None:
        """Waits until every change so far is on the disk.

        Only the write-ahead log is opened: to close another handle of the file itself would drop SQLite's locks.
        Without a log everything is in the file, and was synced when it got there.
        """
        folder = self.path.parent
        try:
            if folder.exists():
                files.make_folder(folder, durable=True)
                files.sync(folder)
            with suppress(FileNotFoundError):
                files.sync(self.path.with_name(f"{self.path.name}-wal"))
        except OSError as error:
            raise self._failed("write to", error) from error

    def now(self) -> float:
        """Returns the time by the wall clock, as it was set when this boot first opened the file.

        Setting that clock later neither shortens nor extends what is kept for a limited time.
        """
        if not self._booted_at:
            self.row("SELECT 1")  # opens the file
        return self._booted_at + uptime()

    def _connection(self) -> sqlite3.Connection:
        """Returns the connection of this thread; a forked child opens its own, as SQLite demands."""
        own: _ThreadConnection | None = getattr(self._local, "own", None)
        if own is None or own.owner != process_id.current:
            own = self._local.own = _ThreadConnection(self._open())
        return own.connection

    def _open(self) -> sqlite3.Connection:
        files.make_folder(self.path.parent, durable=self._durable)
        try:
            return self._connect()
        except sqlite3.OperationalError:
            if not _is_read_only(self.path):
                raise
            # Write-ahead mode writes even to read; SQLite can read an immutable file without writing.
            return self._connect(immutable=True)

    def _connect(self, *, immutable: bool = False) -> sqlite3.Connection:
        target = f"{self.path.resolve().as_uri()}?immutable=1" if immutable else self.path
        connection = sqlite3.connect(
            target, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=immutable
        )
        try:
            # A file from elsewhere must not run our code, nor lead outside its pages.
            # A new file is synced fully until it is in write-ahead mode: before, less may leave a torn first page.
            for setting in ("synchronous = FULL", "trusted_schema = OFF", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {setting}")
            if not immutable:
                _enable_wal(connection)
            if not self._durable:
                connection.execute("PRAGMA synchronous = NORMAL")
            schema.prepare(connection, self.path)
            self._booted_at = _read_boot_time(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _failed(self, verb: str, error: Exception) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if isinstance(error, UnicodeDecodeError):
            code = sqlite3.SQLITE_CORRUPT
        if code in _DAMAGED:
            self._local.own = None  # once the file is moved away, the next call creates a new one
        return StoreError(f"cannot {verb} {self.path}: {error}; {_ADVICE.get(code, _DEFAULT_ADVICE)}")


def _is_read_only(path: Path) -> bool:
    """Returns whether this is a complete file in a place where nothing can be written, as in a read-only home."""
    log = path.with_name(f"{path.name}-wal")
    writable = any(os.access(part, os.W_OK) for part in (path, path.parent))
    return path.is_file() and not writable and not (log.exists() and log.stat().st_size)


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Enables write-ahead mode, once in the life of a file. SQLite does not wait for the lock here, so we do."""
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                raise OSError("this file system has no shared memory, which write-ahead mode needs")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _read_boot_time(connection: sqlite3.Connection) -> float:
    """Returns the time of this boot, as recorded by the first process that opened the file since."""
    select = "SELECT began FROM boots WHERE boot = ?"
    recorded, own = connection.execute(select, (boot_id(),)).fetchone(), time.time() - uptime()
    if recorded is None:
        with suppress(sqlite3.OperationalError):  # a file that cannot be written can still be read
            connection.execute("INSERT OR IGNORE INTO boots VALUES (?, ?)", (boot_id(), own))
        recorded = connection.execute(select, (boot_id(),)).fetchone()
    return float(recorded[0]) if recorded else own
