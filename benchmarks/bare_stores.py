"""The bare side of `stores.py`: engines used by hand, and the rows that both sides hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.spaces.config import Config
from tunewright.stores import serialization
from tunewright.testing.keys import KEY, TIMED, other_decision, other_key

KERNELS = 1000
BATCH = 100
BINARY = "FROM STDIN (FORMAT BINARY)"
TRIALS = [msgspec.structs.replace(TIMED, config=Config(tile=i, fast=bool(i % 2))) for i in range(BATCH)]
TRIAL_BODIES = [serialization.dump_trial(trial) for trial in TRIALS]


@dataclass(frozen=True)
class Row:
    """One decision of many, by its number, as values for us and as bytes for the bare side."""

    number: int

    @cached_property
    def key(self) -> Key:
        sizes = {"M": self.number, "K": 256, "N": 128}
        key = other_key(kernel=f"kernel-{self.number % KERNELS}", signature=Signature(KEY.signature.args, sizes))
        assert key.digest
        return key

    @cached_property
    def decision(self) -> Decision:
        return other_decision(key=self.key)

    @cached_property
    def digest(self) -> bytes:
        return bytes.fromhex(self.key.digest)

    @cached_property
    def kin(self) -> bytes:
        return bytes.fromhex(self.decision.key.related_digest)

    @cached_property
    def body(self) -> bytes:
        return serialization.dump_decision(self.decision)


class Rows(Sequence[Row]):
    """As many rows as wanted, each made when it is looked at: five million at once would not fit."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [Row(number) for number in range(*index.indices(self.number))]
        if not 0 <= index < self.number:
            raise IndexError(index)
        return Row(index)


class Bare(Protocol):
    """An engine used by hand."""

    def fill(self, rows: Sequence[Row]) -> None: ...

    def get(self, row: Row) -> bytes: ...

    def get_many(self, rows: Sequence[Row]) -> dict[bytes, bytes]: ...

    def put(self, row: Row) -> None: ...

    def record(self, row: Row) -> None: ...


class BareSqlite:
    """The module `sqlite3`, in write-ahead mode as our store is."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE decisions (digest BLOB PRIMARY KEY, kernel TEXT, kin BLOB, body BLOB) WITHOUT ROWID;"
            "CREATE INDEX by_kernel ON decisions (kernel); CREATE INDEX by_kin ON decisions (kin);"
            "CREATE TABLE trials (id INTEGER PRIMARY KEY, problem BLOB, body BLOB);"
            "CREATE INDEX by_problem ON trials (problem)"
        )

    def fill(self, rows: Sequence[Row]) -> None:
        self.connection.execute("BEGIN")
        self.connection.executemany(
            "INSERT INTO decisions VALUES (?, ?, ?, ?)", [(r.digest, r.key.kernel, r.kin, r.body) for r in rows]
        )
        self.connection.execute("COMMIT")

    def get(self, row: Row) -> bytes:
        return self.connection.execute("SELECT body FROM decisions WHERE digest = ?", (row.digest,)).fetchone()[0]

    def get_many(self, rows: Sequence[Row]) -> dict[bytes, bytes]:
        asked = f"SELECT digest, body FROM decisions WHERE digest IN ({','.join('?' * len(rows))})"
        return dict(self.connection.execute(asked, [row.digest for row in rows]).fetchall())

    def put(self, row: Row) -> None:
        self.connection.execute(
            "INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?)", (row.digest, row.key.kernel, row.kin, row.body)
        )

    def record(self, row: Row) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        bodies = [(row.digest, body) for body in TRIAL_BODIES]
        self.connection.executemany("INSERT INTO trials (problem, body) VALUES (?, ?)", bodies)
        self.connection.execute("COMMIT")


class BareRedis:
    """The package `redis`: the commands our store gives, in one transaction where it uses a script."""

    def __init__(self, location: str) -> None:
        import redis

        self.client = redis.Redis.from_url(location, protocol=2, socket_timeout=1, socket_connect_timeout=1)

    def fill(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.put(row)

    def get(self, row: Row) -> bytes:
        return self.client.get(b"bare:" + row.digest)

    def get_many(self, rows: Sequence[Row]) -> dict[bytes, bytes]:
        digests = [row.digest for row in rows]
        return dict(zip(digests, self.client.mget([b"bare:" + digest for digest in digests]), strict=True))

    def put(self, row: Row) -> None:
        with self.client.pipeline(transaction=True) as together:
            together.sadd("bare:kernels", row.key.kernel)
            together.sadd(f"bare:kernel:{row.key.kernel}", row.digest)
            together.sadd(b"bare:kin:" + row.kin, row.digest)
            together.set(b"bare:" + row.digest, row.body)
            together.execute()

    def record(self, row: Row) -> None:
        with self.client.pipeline(transaction=True) as together:
            together.sadd("bare:kernels", row.key.kernel)
            together.hsetnx(f"bare:journals:{row.key.kernel}", row.digest, b"key")
            together.rpush(b"bare:journal:" + row.digest, *TRIAL_BODIES)
            together.execute()


class BarePostgres:
    """The package `psycopg`: one connection, prepared statements, bytes as bytes, journals by COPY.

    With `table`, it reads what is there, and has nothing of its own.
    """

    def __init__(self, location: str, table: str = "") -> None:
        import psycopg

        self.connection = psycopg.connect(location, autocommit=True, prepare_threshold=0)
        self.cursor = self.connection.cursor(binary=True)
        self.table = table or "decisions"
        if not table:
            self.cursor.execute("CREATE TABLE decisions (digest bytea PRIMARY KEY, kernel text, kin bytea, body bytea)")
            self.cursor.execute("CREATE TABLE trials (id bigserial PRIMARY KEY, problem bytea, body bytea)")

    def fill(self, rows: Sequence[Row]) -> None:
        with self.cursor.copy(f"COPY decisions {BINARY}") as copy:
            copy.set_types(["bytea", "text", "bytea", "bytea"])
            for row in rows:
                copy.write_row((row.digest, row.key.kernel, row.kin, row.body))
        self.cursor.execute("CREATE INDEX ON decisions (kernel)")
        self.cursor.execute("CREATE INDEX ON decisions (kin)")
        self.cursor.execute("CREATE INDEX ON trials (problem)")
        self.cursor.execute("VACUUM ANALYZE")

    def get(self, row: Row) -> bytes:
        asked = f"SELECT body FROM {self.table} WHERE digest = %b"
        return self.cursor.execute(asked, (row.digest,)).fetchone()[0]

    def get_many(self, rows: Sequence[Row]) -> dict[bytes, bytes]:
        asked = f"SELECT digest, body FROM {self.table} WHERE digest = ANY(%b)"
        return dict(self.cursor.execute(asked, ([row.digest for row in rows],)).fetchall())

    def put(self, row: Row) -> None:
        self.cursor.execute(
            "INSERT INTO decisions VALUES (%b, %t, %b, %b) ON CONFLICT (digest) DO UPDATE SET body = excluded.body",
            (row.digest, row.key.kernel, row.kin, row.body),
        )

    def record(self, row: Row) -> None:
        with self.cursor.copy(f"COPY trials (problem, body) {BINARY}") as copy:
            copy.set_types(["bytea", "bytea"])
            for body in TRIAL_BODIES:
                copy.write_row((row.digest, body))
