"""Store in one SQLite file, shared by the processes of a machine."""

from tunewright.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
