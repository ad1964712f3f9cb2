"""What our stores cost beside the bare engine: look-ups, batches, writes and journals, through the same driver.

    python benchmarks/stores.py [--quick] [--json] [--rows 5000000] [--only redis]

Each of SQLite, Redis and PostgreSQL holds the same decisions twice: in our store, and in tables or keys of its own that
a person would make for the same questions by hand (same indexes, same durability, same driver). The bare side moves
the same bytes and neither encodes nor decodes them, checks nothing and keeps no history; a batch it answers as a
mapping from digest to bytes, since whoever asks must know which is which. Both run in turn on keys drawn at random,
none asked for twice before all others, as a program that starts asks for each once; keys know their digest. A ratio is
our rate over the bare one: the median of blocks, its spread beside it; "quietest" is that of the fastest block of each,
for a machine that is busy.

- get: one decision. get_many: 100 of them. put: a new decision. record: 100 trials of one key.
- get_again, get_many_again: of 100 decisions that are read over and over, which the engine still has at hand.
- p50: the median of single gets from PostgreSQL with `--rows` decisions in it, ours over bare, one by one in turn.
  Beyond a million rows both read the same table, which would not fit twice, and nothing is written.

Needs the extras `redis` and `postgres`, and the servers themselves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bare_stores import BATCH, BINARY, TRIALS, Bare, BarePostgres, BareRedis, BareSqlite, Row, Rows
from figures import Goal, Report, Series, parser

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.testing import servers

VERBS = ("get", "get_many", "put", "record")
ENGINES = ("sqlite", "redis", "postgres")
GOALS = (*(Goal(f"{e}.{verb}", ">=", 0.7) for e in ENGINES for verb in VERBS), Goal("postgres_p50", "<=", 1.5))
CALLS = {"get": 200, "get_many": 20, "put": 100, "record": 20}
TURNS = 10
ROWS = 20_000
MOST_TWICE = 1_000_000
MOST_KNOWN = 100_000


class Ours:
    """Our store, asked in the same words."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, row: Row) -> Decision | None:
        return self.store.get(row.key)

    def get_many(self, rows: Sequence[Row]) -> dict[Key, Decision]:
        return self.store.get_many([row.key for row in rows])

    def put(self, row: Row) -> None:
        self.store.put(row.decision)

    def record(self, row: Row) -> None:
        self.store.record(row.key, TRIALS)


@dataclass
class Pair:
    """Our store and the bare engine with the same in both."""

    ours: Ours
    bare: Bare
    facts: dict[str, Any] = field(default_factory=dict)


@contextmanager
def sqlite_pair(rows: Sequence[Row], folder: Path) -> Iterator[Pair]:
    from tunewright.stores.sqlite import SqliteStore

    pair = Pair(Ours(SqliteStore(folder / "ours.sqlite")), BareSqlite(folder / "bare.sqlite"))
    yield filled(pair, rows)


@contextmanager
def redis_pair(rows: Sequence[Row], folder: Path) -> Iterator[Pair]:
    from tunewright.stores.redis import RedisStore

    with servers.redis(folder / "redis") as server:
        yield filled(Pair(Ours(RedisStore.at(server.location)), BareRedis(server.location)), rows)


@contextmanager
def postgres_pair(rows: Sequence[Row], folder: Path) -> Iterator[Pair]:
    import psycopg

    from tunewright.stores.postgres import PostgresStore

    with servers.postgres(folder / "postgres") as server:
        ours = Ours(PostgresStore.at(server.location))
        ours.store.put(rows[0].decision)
        facts = copied(server.location, rows)
        if len(rows) > MOST_TWICE:
            yield Pair(ours, BarePostgres(server.location, "tunewright.decisions"), facts)
            return
        with psycopg.connect(server.location, autocommit=True) as raw:
            raw.execute("CREATE DATABASE bare")
        bare = BarePostgres(server.location.rpartition("/")[0] + "/bare")
        bare.fill(rows)
        yield Pair(ours, bare, facts)


def copied(location: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Our tables, filled as fast as can be, all but the first (one by one, five million would take hours); how fast."""
    import psycopg

    from tunewright.stores.records import checksum, related_prefix

    columns = {
        "digest": "bytea", "kernel": "text", "device": "text", "kin": "bytea",
        "generation": "int4", "since": "float8", "seal": "int8", "body": "bytea",
    }  # fmt: skip
    began = time.perf_counter()
    with psycopg.connect(location, autocommit=True) as raw, indexes_later(raw):
        with raw.cursor().copy(f"COPY tunewright.decisions ({', '.join(columns)}) {BINARY}") as copy:
            copy.set_types(list(columns.values()))
            for row in (rows[number] for number in range(1, len(rows))):
                values = (row.digest, row.key.kernel, row.key.device.model, related_prefix(row.key))
                copy.write_row((*values, 1, time.time(), checksum(row.body, row.digest), row.body))
        there = time.perf_counter()
    with psycopg.connect(location) as raw:
        sizes = "pg_total_relation_size('tunewright.decisions'), pg_indexes_size('tunewright.decisions')"
        total, indexes = raw.execute(f"SELECT {sizes}").fetchone()
    return {
        "rows_per_second": round(len(rows) / (there - began)),
        "index_seconds": round(time.perf_counter() - there, 1),
        "bytes_per_decision": round(total / len(rows)),
        "of_which_index": round(indexes / len(rows)),
    }


@contextmanager
def indexes_later(raw: Any) -> Iterator[None]:
    """The indexes of our decisions taken away, and made again when the rows are there, which is faster."""
    raw.execute("SET search_path = tunewright")
    raw.execute("SET maintenance_work_mem = '512MB'")
    made = raw.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'decisions'").fetchall()
    raw.execute("ALTER TABLE decisions DROP CONSTRAINT decisions_pkey")
    for name, _ in made:
        raw.execute(f"DROP INDEX IF EXISTS {name}")
    yield
    for _, definition in made:
        raw.execute(definition)
    raw.execute("VACUUM ANALYZE decisions")


PAIRS = {"sqlite": sqlite_pair, "redis": redis_pair, "postgres": postgres_pair}


def filled(pair: Pair, rows: Sequence[Row]) -> Pair:
    pair.bare.fill(rows)
    for row in rows:
        pair.ours.store.put(row.decision)
    return pair


class Questions:
    """What blocks ask for. Known rows come in a random order and none again before all others, new ones by number."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._known = cycle(Random(7).sample(range(len(rows)), min(len(rows), MOST_KNOWN)))
        self._new = count(10_000_000)

    def block(self, verb: str) -> list[Any]:
        number = CALLS[verb]
        if verb == "get":
            return self.known(number)
        if verb == "get_many":
            return [self.known(BATCH) for _ in range(number)]
        return [known(Row(next(self._new)), new=True) for _ in range(number)]

    def known(self, number: int) -> list[Row]:
        return [known(Row(next(self._known))) for _ in range(number)]


def known(row: Row, *, new: bool = False) -> Row:
    """The row, with what a caller knows beforehand: the digest of its key, and its decision if it is new."""
    assert row.digest
    if new:
        assert row.decision
        assert row.body
        assert row.kin
    return row


def seconds(call: Callable[[Any], Any], items: Sequence[Any]) -> float:
    began = time.perf_counter()
    for item in items:
        call(item)
    return time.perf_counter() - began


def compare(pair: Pair, verb: str, questions: Questions, blocks: int) -> tuple[Series, Series]:
    """Microseconds of one call, ours and bare, block by block. One more block, the first, is dropped.

    Within a block both take ten turns, so that what disturbs one (another program, a checkpoint) disturbs the other.
    """
    times = []
    for _ in range(blocks + 1):
        items = questions.block(verb)
        took = {getattr(pair.ours, verb): 0.0, getattr(pair.bare, verb): 0.0}
        sides = list(took)
        for turn in range(TURNS):
            for side in sides if turn % 2 else reversed(sides):
                took[side] += seconds(side, items[turn::TURNS])
        times.append([1e6 * each / len(items) for each in took.values()])
    ours, bare = zip(*times[1:], strict=True)
    return Series(ours), Series(bare)


def check(pair: Pair, rows: Sequence[Row], report: Report, engine: str) -> None:
    """Both sides say the same."""
    some = Random(1).sample(rows, 20)
    right = all(pair.ours.get(row) == row.decision and pair.bare.get(row) == row.body for row in some)
    counted = len(pair.ours.get_many(some)) == len(pair.bare.get_many(some)) == len(some)
    report.check(right and counted, f"{engine}: what was put is not what is got")


def measure(engine: str, pair: Pair, rows: Sequence[Row], report: Report, *, blocks: int) -> None:
    """The ratios of one engine: of rows not read lately, of new ones, and of a few that are read again and again."""
    check(pair, rows, report, engine)
    report.lines.append(f"{engine}, {len(rows)} decisions: us of one call, ours and bare; our rate over the bare one")
    for verb in VERBS if len(rows) <= MOST_TWICE else VERBS[:2]:
        note(report, engine, verb, *compare(pair, verb, Questions(rows), blocks))
    for verb in ("get", "get_many"):
        note(report, engine, f"{verb}_again", *compare(pair, verb, Questions(rows[:BATCH]), blocks))


def note(report: Report, engine: str, verb: str, ours: Series, bare: Series) -> None:
    ratio = Series(slow / fast for fast, slow in zip(ours.values, bare.values, strict=True))
    report.figures.setdefault(engine, {})[verb] = round(ratio.median, 3)
    quietest = round(bare.low / ours.low, 3)
    sides = {"ours": ours.plain(), "bare": bare.plain(), "ratio": ratio.plain(), "quietest": quietest}
    report.figures.setdefault("us", {}).setdefault(engine, {})[verb] = sides
    both = f"{ours.median:8.1f} {bare.median:8.1f}"
    report.lines.append(f"  {verb:<15}{both}   {ratio.text('x', 2)}, quietest {quietest:.2f}")


def percentiles(pair: Pair, rows: Sequence[Row], report: Report, calls: int) -> None:
    """The median of single gets, one by one in turn."""
    luck = Random(3)
    took: tuple[list[float], list[float]] = [], []
    sides = list(zip((pair.ours, pair.bare), took, strict=True))
    for row in (known(luck.choice(rows)) for _ in range(calls)):
        sides.reverse()  # whoever comes second may find a page that the first had to fetch
        for side, times in sides:
            times.append(seconds(side.get, [row]))
    ours, bare = (1e6 * median(times) for times in took)
    report.figures["postgres_fill"] = pair.facts
    report.figures |= {"postgres_p50": round(ours / bare, 3), "postgres_rows": len(rows)}
    report.figures["postgres_p50_us"] = {"ours": round(ours, 1), "bare": round(bare, 1)}
    report.lines.append(f"  p50 of {calls} gets among {len(rows)}: {ours:.1f} us, bare {bare:.1f} us")
    report.lines.append("  filled by COPY: " + ", ".join(f"{name} {value}" for name, value in pair.facts.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, compare, report."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=ROWS, help="decisions in PostgreSQL")
    options.add_argument("--only", choices=ENGINES, action="append", help="leave the others out")
    given = options.parse_args(arguments)
    report = Report()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o755)
        for engine in given.only or ENGINES:
            rows = Rows(given.rows if engine == "postgres" else min(given.rows, ROWS))
            with PAIRS[engine](rows, folder) as pair:
                measure(engine, pair, rows, report, blocks=11 if given.quick else 41)
                if engine == "postgres":
                    percentiles(pair, rows, report, calls=1000 if given.quick else 5000)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
