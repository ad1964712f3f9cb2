"""Store on a PostgreSQL server, shared by machines: the record of truth."""

from tunewright.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
