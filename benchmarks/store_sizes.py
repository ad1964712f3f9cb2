"""What a decision and a trial weigh where they are kept, indexes and all: bytes in SQLite, Redis and PostgreSQL.

    python benchmarks/store_sizes.py [--quick] [--json]

A fresh store of each kind gets decisions of 763 bytes in wire format, and journals of 100 trials of 213 bytes; what it
has grown by, divided by their number. `bundle` is a decision as a line of text, which a static file server would send.

Needs the extras `redis` and `postgres`, and the servers themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bare_stores import BATCH, TRIALS, Rows
from figures import Report, parser

from tunewright.ports.store import Store
from tunewright.testing import servers

Scale = tuple[Store, Callable[[], int]]


@contextmanager
def sqlite_scale(folder: Path) -> Iterator[Scale]:
    from tunewright.stores.sqlite import SqliteStore

    path = folder / "store.sqlite"
    store = SqliteStore(path)

    def weight() -> int:
        store._file.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.stat().st_size

    yield store, weight


@contextmanager
def redis_scale(folder: Path) -> Iterator[Scale]:
    import redis

    from tunewright.stores.redis import RedisStore

    with servers.redis(folder / "redis") as server, redis.Redis.from_url(server.location) as raw:
        yield RedisStore.at(server.location), lambda: int(raw.info("memory")["used_memory"])


@contextmanager
def postgres_scale(folder: Path) -> Iterator[Scale]:
    import psycopg

    from tunewright.stores.postgres import PostgresStore

    with servers.postgres(folder / "postgres", fsync=False) as server, psycopg.connect(server.location) as raw:
        raw.autocommit = True
        size = "SELECT pg_database_size('postgres')"
        yield PostgresStore.at(server.location), lambda: int(raw.execute(size).fetchone()[0])


SCALES = {"sqlite": sqlite_scale, "redis": redis_scale, "postgres": postgres_scale}


def weigh(store: Store, weight: Callable[[], int], rows: Sequence, journals: int) -> dict[str, int]:
    """Bytes of a decision and of a trial."""
    store.put(rows[0].decision)
    store.record(rows[0].key, TRIALS)
    empty = weight()
    for row in rows[1:]:
        store.put(row.decision)
    decided = weight()
    for row in rows[1 : journals + 1]:
        store.record(row.key, TRIALS)
    return {
        "decision": round((decided - empty) / (len(rows) - 1)),
        "trial": round((weight() - decided) / (journals * BATCH)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, weigh, report."""
    given = parser(__doc__).parse_args(arguments)
    report, rows = Report(), Rows(2000 if given.quick else 20_000)
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        for engine, scale in SCALES.items():
            with scale(Path(name)) as (store, weight):
                report.figures[engine] = weigh(store, weight, rows, journals=20 if given.quick else 200)
                report.lines.append(f"{engine}: {report.figures[engine]} bytes")
    report.figures["bundle"] = {"decision": sum(len(row.body) + 1 for row in rows) // len(rows)}
    report.lines.append(f"bundle: {report.figures['bundle']} bytes")
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
