"""Tables of a PostgreSQL store, created and changed by numbered migrations."""

from __future__ import annotations

from time import monotonic

from psycopg import errors

from tunewright.errors import StoreError
from tunewright.stores.postgres.connection import DeadlineConnection

MIGRATION_SECONDS = 60.0
_LOCK = 0x74756E65
"""The advisory lock for migrations: «tune»."""

PARTS = 16
"""Partitions of the trials.

Trials are most of the data, so they are partitioned by what every reader of a journal knows: kernel and device. By
hash into a fixed number, not one for each pair: kernels come and go by the thousand, and a partition costs every plan
and every process some memory. A reader touches one; vacuum and index work on a sixteenth at a time.
"""

_MIGRATION_1 = (
    """CREATE TABLE decisions (
    digest bytea PRIMARY KEY, kernel text NOT NULL, device text NOT NULL, kin bytea NOT NULL,
    generation integer NOT NULL, since double precision NOT NULL, seal bigint NOT NULL, body bytea NOT NULL)""",
    "CREATE INDEX decisions_by_kernel ON decisions (kernel, digest)",
    "CREATE INDEX decisions_by_kin ON decisions (kin)",
    """CREATE TABLE history (
    id bigserial PRIMARY KEY, digest bytea NOT NULL, generation integer NOT NULL,
    since double precision NOT NULL, seal bigint NOT NULL, body bytea NOT NULL)""",
    "CREATE INDEX history_by_digest ON history (digest, generation)",
    # A trigger, since a statement that also wrote the history would miss concurrent changes.
    """CREATE FUNCTION become_history() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO tunewright.history (digest, generation, since, seal, body)
    VALUES (old.digest, old.generation, old.since, old.seal, old.body);
    RETURN NULL; END $$""",
    """CREATE TRIGGER decisions_become_history AFTER UPDATE ON decisions
    FOR EACH ROW EXECUTE FUNCTION become_history()""",
    """CREATE TABLE problems (
    digest bytea PRIMARY KEY, kernel text NOT NULL, device text NOT NULL, key bytea NOT NULL)""",
    "CREATE INDEX problems_by_kernel ON problems (kernel, digest)",
    "CREATE SEQUENCE trials_id",
    """CREATE TABLE trials (
    id bigint NOT NULL DEFAULT nextval('tunewright.trials_id'), kernel text NOT NULL, device text NOT NULL,
    digest bytea NOT NULL, at double precision NOT NULL DEFAULT extract(epoch FROM now()), seal bigint NOT NULL,
    body bytea NOT NULL) PARTITION BY HASH (kernel, device)""",
    *(
        f"CREATE TABLE trials_{part} PARTITION OF trials FOR VALUES WITH (MODULUS {PARTS}, REMAINDER {part})"
        for part in range(PARTS)
    ),
    "CREATE INDEX trials_by_digest ON trials (digest, id)",
    "CREATE INDEX trials_by_id ON trials (id)",
    """CREATE TABLE wants (
    digest bytea PRIMARY KEY, kernel text NOT NULL, key bytea NOT NULL, calls bigint NOT NULL,
    seconds double precision NOT NULL, at double precision NOT NULL, target text NOT NULL, recipe text NOT NULL)""",
    "CREATE TABLE leases (name text PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL)",
    """CREATE TABLE entries (
    id bigserial PRIMARY KEY, shelf text NOT NULL, name text NOT NULL, at double precision NOT NULL,
    until double precision NOT NULL, seal bigint NOT NULL, body bytea NOT NULL, UNIQUE (shelf, name))""",
    "CREATE INDEX entries_by_shelf ON entries (shelf, id)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_MIGRATION_1,)
"""The statements that lead from version 0 to 1, from 1 to 2, and so on. A released migration never changes."""


def prepare(connection: DeadlineConnection, name: str) -> None:
    """Migrates the tables to our version. Of many processes at once, one migrates and the others wait."""
    if _version(connection, name) == len(MIGRATIONS):
        return
    connection.deadline = monotonic() + MIGRATION_SECONDS
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {int(1000 * MIGRATION_SECONDS)}")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute("CREATE SCHEMA IF NOT EXISTS tunewright")
        connection.execute(
            """CREATE TABLE IF NOT EXISTS tunewright.migrations (
            version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"""
        )
        for version in range(_version(connection, name), len(MIGRATIONS)):
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
            connection.execute("INSERT INTO tunewright.migrations (version) VALUES (%s)", (version + 1,))


def _version(connection: DeadlineConnection, name: str) -> int:
    try:
        row = connection.execute("SELECT coalesce(max(version), 0) FROM tunewright.migrations").fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0
    version = int(row[0]) if row else 0
    if version > len(MIGRATIONS):
        raise StoreError(
            f"the store on {name} has schema {version}, this version of tunewright reads up to {len(MIGRATIONS)};"
            " update tunewright, or set another `store`"
        )
    return version
