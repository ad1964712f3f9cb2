"""Shelves and leases in one SQLite file, as plain as can be: what memoisation needs of a store, across processes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, contextmanager

from tunewright.errors import StoreError

TABLES = """
CREATE TABLE IF NOT EXISTS shelves (id INTEGER PRIMARY KEY, shelf, name, body BLOB, until REAL, UNIQUE (shelf, name));
CREATE TABLE IF NOT EXISTS leases (name PRIMARY KEY, owner, until REAL);
"""


class FileShelf:
    """A connection for each question; the write lock is taken first."""

    def __init__(self, path) -> None:
        self.path = path
        with self._connected() as db:
            db.executescript(TABLES)

    @contextmanager
    def _connected(self):
        try:
            with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                yield db
                if db.in_transaction:
                    db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    def locked(self):
        """A time in which nobody else holds the lock."""
        return self._connected()

    def fetch(self, shelf, names):
        with self._connected() as db:
            rows = [db.execute("SELECT name, body, until FROM shelves WHERE shelf=? AND name=?", (shelf, n)).fetchone()
                    for n in names]  # fmt: skip
        return {row[0]: row[1] for row in rows if row and row[2] > time.time()}

    def keep(self, shelf, name, body, *, seconds=None, replace=True):
        now = time.time()
        with self._connected() as db:
            stood = db.execute("SELECT body, until FROM shelves WHERE shelf=? AND name=?", (shelf, name)).fetchone()
            if stood and stood[1] > now and not replace:
                return stood[0]
            until = 1e18 if seconds is None else now + seconds
            row = (shelf, name, body, until)
            db.execute("INSERT OR REPLACE INTO shelves (shelf, name, body, until) VALUES (?, ?, ?, ?)", row)
        return body

    def entries(self, shelf):
        with self._connected() as db:
            return iter(db.execute("SELECT name, body FROM shelves WHERE shelf=? ORDER BY id", (shelf,)).fetchall())

    def clear(self, namespace, *, keep=0):
        with self._connected() as db:
            kept = "SELECT id FROM shelves WHERE shelf=? ORDER BY id DESC LIMIT ?"
            dropped = f"DELETE FROM shelves WHERE shelf=? AND id NOT IN ({kept})"
            return db.execute(dropped, (namespace, namespace, keep)).rowcount

    def claim(self, name, owner, seconds):
        now = time.time()
        with self._connected() as db:
            held = db.execute("SELECT owner, until FROM leases WHERE name=?", (name,)).fetchone()
            if held and held[0] != owner and held[1] > now:
                return False
            db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (name, owner, now + seconds))
        return True

    def release(self, name, owner):
        with self._connected() as db:
            db.execute("DELETE FROM leases WHERE name=? AND owner=?", (name, owner))

    def damage(self, change) -> None:
        """Change every body behind the back of whoever wrote it."""
        with self._connected() as db:
            for number, body in db.execute("SELECT id, body FROM shelves").fetchall():
                db.execute("UPDATE shelves SET body=? WHERE id=?", (change(body), number))
