"""A herd: many processes start together and need the same decisions, from PostgreSQL and from Redis.

    python benchmarks/herd.py [--quick] [--json] [--processes 200] [--keys 1000] [--only redis] [--room 100]

Every process is the fork of one that has loaded the driver and nothing else has happened to. It waits for the signal,
opens the store, asks for all its keys by one `get_many`, and lives on, as programs do that start on every host of a
cluster at once. The servers are as they come, PostgreSQL with `--room` for 100 connections. A second run puts the
breaker and the mirror around the store, as a session does, each process with a mirror of its own, as if it had a host
of its own.

- commands: what the server did for the herd, by its own count (`INFO commandstats`, `pg_stat_statements`), per process.
- seconds: from the signal until a process has its decisions: median, 95th percentile, worst. With more processes than
  cores this is mostly their waiting for a core; `cpu` is the median of what one needs itself.
- server: CPU time that the server took for the herd, in milliseconds per process, connecting included.
- failed: processes that did not get every decision. connections: most at once, by the server's count.

Needs the extras `redis` and `postgres`, and the servers themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from bare_stores import Row
from figures import Goal, Report, parser

from tunewright.errors import StoreError
from tunewright.ports.store import Store
from tunewright.stores.circuit_breaker import CircuitBreakerStore
from tunewright.stores.mirror import MirrorStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing import servers

ENGINES = ("redis", "postgres")
SHAPES = ("bare", "session")
GOALS = tuple(
    goal
    for engine in ENGINES
    for shape in SHAPES
    for goal in (Goal(f"{engine}.{shape}.failed", "==", 0), Goal(f"{engine}.{shape}.commands_per_process", "<=", 8))
)
PATIENCE = 300.0
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["bare_stores", "tunewright.stores.mirror", "tunewright.stores.sqlite", "redis", "psycopg"]
)


@dataclass
class Place:
    """A server with the decisions in it: where it is, how to count what it does, how many are connected."""

    location: str
    reset: Callable[[], None]
    counts: Callable[[], dict[str, int]]
    connected: Callable[[], int]
    cpu: Callable[[], float]


def spent(server: servers.Server) -> float:
    """Seconds of CPU time that a server took, with its children, those that ended included."""
    ticks = 0
    for number, pid in enumerate(server.pids):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile, and its parent has its time
        ticks += sum(map(int, fields[11:13] if number else fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass
class Task:
    """What each process does."""

    engine: str
    location: str
    shape: str
    keys: int


def plugin(engine: str) -> Any:
    if engine == "redis":
        from tunewright.stores.redis import RedisStore

        return RedisStore
    from tunewright.stores.postgres import PostgresStore

    return PostgresStore


def opened(task: Task, mirror: Path) -> Store:
    """The store alone, or as a session holds it."""
    store: Store = plugin(task.engine).at(task.location)
    return store if task.shape == "bare" else MirrorStore(CircuitBreakerStore(store), SqliteStore(mirror))


def member(task: Task, ready: Any, told: Any, over: Any) -> None:
    """One process of the herd: wait, ask, tell, and live on with its store open, as programs do."""
    wanted = [Row(number).key for number in range(task.keys)]
    plugin(task.engine).at(task.location)  # loads the driver, and asks nothing
    with TemporaryDirectory() as folder:
        ready.wait(PATIENCE)
        cpu = time.process_time()
        found, error = 0, ""
        try:
            store = opened(task, Path(folder, "mirror.sqlite"))
            found = len(store.get_many(wanted))
        except StoreError as failure:
            error = str(failure)
        told.put({"found": found, "at": time.monotonic(), "cpu": time.process_time() - cpu, "error": error})
        over.wait(PATIENCE)


@contextmanager
def redis_place(folder: Path, room: int) -> Iterator[Place]:
    import redis

    with servers.redis(folder / "redis") as server, redis.Redis.from_url(server.location) as raw:

        def counts() -> dict[str, int]:
            stats = raw.info("commandstats")
            seen = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
            return {name: calls for name, calls in seen.items() if name not in ("info", "config|resetstat")}

        def connected() -> int:
            return raw.info("clients")["connected_clients"] - 1

        yield Place(server.location, raw.config_resetstat, counts, connected, lambda: spent(server))


@contextmanager
def postgres_place(folder: Path, room: int) -> Iterator[Place]:
    import psycopg

    counted = ("shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=top")
    with servers.postgres(folder / "postgres", *counted, f"max_connections={room}") as server:
        watcher = server.location.rpartition("/")[0] + "/template1"
        with psycopg.connect(watcher, autocommit=True) as raw:
            raw.execute("CREATE EXTENSION pg_stat_statements")
            mine = "dbid = (SELECT oid FROM pg_database WHERE datname = 'postgres')"

            def reset() -> None:
                raw.execute("SELECT pg_stat_statements_reset()")

            def counts() -> dict[str, int]:
                rows = raw.execute(f"SELECT query, calls FROM pg_stat_statements WHERE {mine}").fetchall()
                seen: dict[str, int] = {}
                for query, calls in rows:
                    name = " ".join(query.split())[:60]
                    seen[name] = seen.get(name, 0) + calls
                return seen

            def connected() -> int:
                asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres'"
                return int(raw.execute(asked).fetchone()[0])

            yield Place(server.location, reset, counts, connected, lambda: spent(server))


PLACES = {"redis": redis_place, "postgres": postgres_place}


@contextmanager
def most(count: Callable[[], int]) -> Iterator[list[int]]:
    """The most that `count` says while this is open, in a list of one."""
    seen, done = [0], Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen[0] = max(seen[0], count())

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def stampede(task: Task, place: Place, processes: int) -> dict[str, Any]:
    """What a herd met with."""
    ready, told, over = FORKS.Barrier(processes + 1), FORKS.Queue(), FORKS.Event()
    herd = [FORKS.Process(target=member, args=(task, ready, told, over), daemon=True) for _ in range(processes)]
    for process in herd:
        process.start()
    try:
        while ready.n_waiting < processes:
            time.sleep(0.05)
        place.reset()
        before = place.cpu()
        with most(place.connected) as connections:
            signal = time.monotonic()  # one clock for all processes of a machine
            ready.wait(PATIENCE)
            answers = [told.get(timeout=PATIENCE) for _ in herd]
        cpu = {"server_cpu_ms": round(1e3 * (place.cpu() - before) / processes, 2), "connections": connections[0]}
        return summary(answers, signal, place.counts()) | cpu | failures(answers, task.keys)
    finally:
        over.set()
        for process in herd:
            process.join(PATIENCE)


def summary(told: Sequence[dict[str, Any]], signal: float, counts: dict[str, int]) -> dict[str, Any]:
    took = sorted(one["at"] - signal for one in told)
    return {
        "processes": len(told),
        "commands": counts,
        "commands_per_process": round(sum(counts.values()) / len(told), 2),
        "seconds": {"p50": median(took), "p95": quantiles(took, n=20)[-1], "worst": took[-1]},
        "cpu_seconds": median(one["cpu"] for one in told),
    }


def failures(told: Sequence[dict[str, Any]], keys: int) -> dict[str, Any]:
    failed = [one for one in told if one["found"] != keys]
    return {"failed": len(failed), "errors": sorted({one["error"] or "some were missing" for one in failed})[:5]}


def note(report: Report, engine: str, shape: str, seen: dict[str, Any]) -> None:
    report.figures.setdefault(engine, {})[shape] = seen
    took = "  ".join(f"{name} {value:.2f} s" for name, value in seen["seconds"].items())
    report.lines += [
        f"{engine}, {shape}: {seen['processes']} processes, {seen['failed']} failed, {seen['connections']} connections",
        f"  {took}  cpu {1e3 * seen['cpu_seconds']:.0f} ms, of the server {seen['server_cpu_ms']} ms a process",
        f"  {seen['commands_per_process']} commands a process: {seen['commands']}",
        *(f"  failed: {error}" for error in seen["errors"]),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, stampede, report."""
    options = parser(__doc__)
    options.add_argument("--processes", type=int, help="how many start together (200; quick: 20)")
    options.add_argument("--keys", type=int, default=1000, help="what each of them needs")
    options.add_argument("--room", type=int, default=100, help="connections that PostgreSQL takes")
    options.add_argument("--only", choices=ENGINES, action="append", help="leave the others out")
    given = options.parse_args(arguments)
    report = Report()
    processes = given.processes or (20 if given.quick else 200)
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        for engine in given.only or ENGINES:
            with PLACES[engine](Path(name), given.room) as place:
                store = plugin(engine).at(place.location)
                for number in range(given.keys):
                    store.put(Row(number).decision)
                del store  # and its connections
                for shape in SHAPES:
                    task = Task(engine, place.location, shape, given.keys)
                    note(report, engine, shape, stampede(task, place, processes))
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
