"""A store in one SQLite file, shared by the processes of a machine."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tunewright.errors import StoreError, WireError
from tunewright.model import wire
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.remarks import Remarks

log = Remarks(__name__)

SCHEMA = 1
BUSY_SECONDS = 60.0
ASKED_AT_ONCE = 500
PAGE = 1000

_TABLES = """
CREATE TABLE IF NOT EXISTS decisions (digest BLOB PRIMARY KEY, kernel TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_by_kernel ON decisions (kernel);
CREATE TABLE IF NOT EXISTS problems (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, kernel TEXT NOT NULL, key BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS problems_by_kernel ON problems (kernel);
CREATE TABLE IF NOT EXISTS trials (id INTEGER PRIMARY KEY, problem INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS trials_by_problem ON trials (problem, id);
"""


class _Held:
    """A connection that is closed with the thread that holds it, by the process that opened it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.owner = connection, os.getpid()
        weakref.finalize(self, _close, connection, self.owner)


def _close(connection: sqlite3.Connection, owner: int) -> None:
    if owner == os.getpid():
        connection.close()


class SqliteStore:
    """Decisions and trials in one file, in write-ahead mode: readers never wait, writers take turns.

    What is acknowledged survives the death of any process at any moment. A power cut may lose the last moments,
    never tear a record. A look-up costs one b-tree descent, whatever the size. Not for network file systems,
    which do not lock as SQLite needs it: use a server's store there.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser()
        self._local = threading.local()

    @classmethod
    def at(cls, location: str) -> SqliteStore:
        """The store at a path, or at `sqlite:PATH`."""
        return cls(location.removeprefix("sqlite:"))

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection; a forked child opens its own, as SQLite demands."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is None or held.owner != os.getpid():
            held = self._local.held = _Held(self._open())
        return held.connection

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            self._turn_on_wal(connection)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA):
                raise StoreError(f"{self.path} has schema {version}, this version of tunewright reads {SCHEMA}")
            if version == 0:
                connection.execute("BEGIN IMMEDIATE")
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
                connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def _turn_on_wal(connection: sqlite3.Connection) -> None:
        """Write-ahead mode, once in the life of a file. SQLite does not wait its turn for this, so we do."""
        deadline = time.monotonic() + BUSY_SECONDS
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    @contextmanager
    def _said(self, what: str) -> Iterator[sqlite3.Connection]:
        """A connection whose errors become StoreErrors that name the file."""
        try:
            yield self._connection()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"cannot {what} {self.path}: {error}; check the path and its rights, or set another `store`"
            ) from error

    @contextmanager
    def _writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing. It takes the write lock first, so it cannot be refused later."""
        with self._said(what) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        with self._said("read") as connection:
            row = connection.execute(
                "SELECT body FROM decisions WHERE digest = ?", (bytes.fromhex(key.digest),)
            ).fetchone()
        return self._believed(row[0], key) if row else None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, a few hundred to a statement."""
        wanted = {bytes.fromhex(key.digest): key for key in keys}
        digests, found = list(wanted), {}
        for start in range(0, len(digests), ASKED_AT_ONCE):
            part = digests[start : start + ASKED_AT_ONCE]
            marks = ",".join("?" * len(part))
            with self._said("read") as connection:
                rows = connection.execute(f"SELECT digest, body FROM decisions WHERE digest IN ({marks})", part)
                for digest, body in rows.fetchall():
                    if (decision := self._believed(body, wanted[digest])) is not None:
                        found[wanted[digest]] = decision
        return found

    def _believed(self, body: bytes, key: Key | None) -> Decision | None:
        """The decision in `body`; None if it is damaged, of another schema, or an answer to another key."""
        try:
            decision = wire.load_decision(body)
        except WireError as error:
            log.warning("a decision in %s is passed over: %s", self.path, error)
            return None
        if key is not None and decision.key != key:
            log.warning("a decision in %s is passed over: it answers another key", self.path)
            return None
        return decision

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands."""
        digest = bytes.fromhex(decision.key.digest)
        row = (digest, decision.key.kernel, wire.dump_decision(decision))
        with self._writing("write to") as connection:
            if not replace:
                standing = connection.execute("SELECT body FROM decisions WHERE digest = ?", (digest,)).fetchone()
                if standing and (kept := self._believed(standing[0], decision.key)) is not None:
                    return kept
            connection.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?)", row)
        return decision

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel, read a page at a time."""
        after = b""
        while True:
            with self._said("read") as connection:
                rows = connection.execute(
                    "SELECT digest, body FROM decisions WHERE digest > ?1 AND (?2 IS NULL OR kernel = ?2)"
                    " ORDER BY digest LIMIT ?3",
                    (after, kernel, PAGE),
                ).fetchall()
            for _, body in rows:
                if (decision := self._believed(body, None)) is not None:
                    yield decision
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key, in one transaction."""
        digest = bytes.fromhex(key.digest)
        bodies = [wire.dump_trial(trial) for trial in trials]
        with self._writing("write to") as connection:
            connection.execute(
                "INSERT OR IGNORE INTO problems (digest, kernel, key) VALUES (?, ?, ?)",
                (digest, key.kernel, wire.dump_key(key)),
            )
            connection.executemany(
                "INSERT INTO trials (problem, body) SELECT id, ? FROM problems WHERE digest = ?",
                [(body, digest) for body in bodies],
            )

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key, in the order recorded, read a page at a time."""
        after = 0
        while True:
            with self._said("read") as connection:
                rows = connection.execute(
                    "SELECT id, body FROM trials WHERE problem = (SELECT id FROM problems WHERE digest = ?)"
                    " AND id > ? ORDER BY id LIMIT ?",
                    (bytes.fromhex(key.digest), after, PAGE),
                ).fetchall()
            for _, body in rows:
                try:
                    yield wire.load_trial(body)
                except WireError as error:
                    log.warning("a trial in %s is passed over: %s", self.path, error)
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        seen: set[Key] = set()
        for decision in self.decisions(kernel):
            seen.add(decision.key)
            yield decision.key
        with self._said("read") as connection:
            rows = connection.execute("SELECT key FROM problems WHERE ?1 IS NULL OR kernel = ?1", (kernel,)).fetchall()
        for (body,) in rows:
            try:
                key = wire.load_key(body)
            except WireError as error:
                log.warning("a key in %s is passed over: %s", self.path, error)
                continue
            if key not in seen:
                yield key
