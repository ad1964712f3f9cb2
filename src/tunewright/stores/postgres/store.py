"""PostgreSQL store: decisions, journals and all optional capabilities but `fill`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

import msgspec
from psycopg import Rollback

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores import serialization
from tunewright.stores.postgres import maintenance
from tunewright.stores.postgres.connection import DeadlineConnection
from tunewright.stores.postgres.location import PostgresLocation
from tunewright.stores.postgres.server import PostgresServer
from tunewright.stores.records import (
    RecordReader,
    by_digest,
    checksum,
    checksums,
    entry_context,
    read_decision,
    read_entry,
    read_key,
    read_trial,
    related_prefix,
)
from tunewright.stores.statistics import LogEntry, MissRecord, RetentionLimits, Revision, StoreStats, TrialCount

COPY_FROM_TRIALS = 1000
"""Number of trials from which COPY, which takes more round trips, is faster than one statement."""

FEW_KEYS, MAX_CROWD_WAIT = 10, 20.0
"""The most keys that a launch looks up; and how many seconds a larger look-up waits for a slot on a full server.

A launch must not wait: while a server is full, the mirror answers, or nobody, within the usual time-out. A program
that looks up all its keys at once is about to start, may be one of thousands that do, and would rather start late than
without its decisions: that crowd is gone in seconds, since no process stays connected.
"""

MAX_ATTEMPTS = 5
"""How often to retry while another process is writing."""

_NOW = "extract(epoch FROM clock_timestamp())::float8"

_GET = "SELECT body, seal FROM decisions WHERE digest = %b"

_GET_MANY = "SELECT digest, body, seal FROM decisions WHERE digest = ANY(%b)"

_NEW = f"INSERT INTO decisions AS d VALUES (%b, %b, %b, %b, 1, {_NOW}, %b::bigint, %b) ON CONFLICT (digest) DO"

_PUT = f"""{_NEW} UPDATE
SET generation = d.generation + 1, since = greatest(d.since, excluded.since), seal = excluded.seal, body = excluded.body
WHERE d.body <> excluded.body OR d.seal <> excluded.seal"""

_PUT_FIRST = f"""WITH fresh AS ({_NEW} NOTHING RETURNING body, seal)
SELECT body, seal FROM fresh UNION ALL SELECT body, seal FROM decisions WHERE digest = %b LIMIT 1"""

_REPAIR = f"""UPDATE decisions
SET generation = generation + 1, since = greatest(since, {_NOW}), seal = %b::bigint, body = %b
WHERE digest = %b AND body = %b AND seal = %b::bigint"""

_HISTORY = """SELECT generation, since, body, seal FROM history WHERE digest = %b
UNION ALL SELECT generation, since, body, seal FROM decisions WHERE digest = %b ORDER BY generation"""

_PROBLEM = "INSERT INTO problems VALUES (%b, %b, %b, %b) ON CONFLICT DO NOTHING"

_RECORD = f"""WITH problem AS ({_PROBLEM}) INSERT INTO trials (kernel, device, digest, seal, body)
SELECT %b, %b, %b, * FROM unnest(%b::bigint[], %b::bytea[])"""

_COPY = "COPY trials (kernel, device, digest, seal, body) FROM STDIN (FORMAT BINARY)"

# The partition comes from the row of the key: of a key that came over a network, only the digest is known.
_TRIALS = """SELECT id, body, seal FROM trials
WHERE kernel = (SELECT kernel FROM problems WHERE digest = %b)
AND device = (SELECT device FROM problems WHERE digest = %b) AND digest = %b AND id > %b ORDER BY id LIMIT %b"""

_KEYS = """SELECT digest, key FROM problems p WHERE {} digest > %b AND EXISTS (
SELECT FROM trials t WHERE t.kernel = p.kernel AND t.device = p.device AND t.digest = p.digest)
ORDER BY digest LIMIT %b"""

_TRIAL_COUNTS = """SELECT p.digest, p.key, c.trials, c.last FROM (
SELECT kernel, device, digest, count(*) AS trials, max(at) AS last FROM trials GROUP BY kernel, device, digest) c
JOIN problems p ON p.digest = c.digest"""

_RECORD_MISSES = f"""INSERT INTO wants AS w (digest, kernel, key, calls, seconds, target, recipe, at)
SELECT *, {_NOW} FROM unnest(%b::bytea[], %b::text[], %b::bytea[], %b::bigint[], %b::float8[], %b::text[], %b::text[])
ON CONFLICT (digest) DO UPDATE SET calls = w.calls + excluded.calls, seconds = w.seconds + excluded.seconds,
at = excluded.at, target = excluded.target, recipe = excluded.recipe, key = excluded.key"""

_MISSES = """SELECT digest, key, calls, seconds, target, recipe FROM wants w WHERE (%b::text IS NULL OR kernel = %b)
AND NOT EXISTS (SELECT FROM decisions d WHERE d.digest = w.digest) ORDER BY seconds DESC, digest"""

_CLAIM = """INSERT INTO leases AS l VALUES (%b, %b, clock_timestamp() + %b::float8 * interval '1 second')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE l.owner = excluded.owner OR l.until <= clock_timestamp() RETURNING 1"""

_FETCH = f"SELECT name, body, seal FROM entries WHERE shelf = %b AND name = ANY(%b) AND until > {_NOW}"

_LAST_ENTRY = "SELECT name, body FROM entries WHERE shelf = %b ORDER BY id DESC LIMIT 1"

_APPEND = f"""INSERT INTO entries (shelf, name, at, until, seal, body)
VALUES (%b, %b, {_NOW}, 'infinity', %b::bigint, %b) ON CONFLICT DO NOTHING RETURNING 1"""

_KEEP = f"""INSERT INTO entries AS e (shelf, name, at, until, seal, body)
VALUES (%b, %b, {_NOW}, {_NOW} + %b::float8, %b::bigint, %b) ON CONFLICT (shelf, name) DO UPDATE
SET id = nextval('entries_id_seq'), at = excluded.at, until = excluded.until, seal = excluded.seal,
body = excluded.body"""

_KEEP_FIRST = f"""WITH fresh AS ({_KEEP} WHERE e.until <= {_NOW} RETURNING name, body, seal)
SELECT name, body, seal FROM fresh UNION ALL
SELECT name, body, seal FROM entries WHERE shelf = %b AND name = %b AND until > {_NOW} LIMIT 1"""

_ENTRIES = f"""SELECT id, name, body, seal FROM entries
WHERE shelf = %b AND until > {_NOW} AND id > %b ORDER BY id LIMIT %b"""

_CLEAR = """WITH gone AS (DELETE FROM entries WHERE id IN (
SELECT id FROM entries WHERE shelf = %b ORDER BY id DESC OFFSET %b) RETURNING 1) SELECT count(*) FROM gone"""


def _decision_columns(decision: Decision, digest: bytes) -> tuple[bytes, str, str, bytes]:
    """Returns the columns of a decision before its checksum and body."""
    key = decision.key
    return digest, key.kernel, key.device.model, related_prefix(key)


class PostgresStore:
    """Decisions and trials on a server that many machines share, as the record of truth.

    The location is `postgresql://user@host:port/database` (or `postgres:` and libpq's keywords); libpq also reads the
    environment and `~/.pgpass`. Tables live in the schema `tunewright`, which is created on first use.

    Every call ends within 2 seconds, or as many as `?tunewright_timeout=5` says, whatever happens to the server or the
    network; only trimming, verifying and migrations may take longer, and a look-up of many keys while the server says
    that it is full. Acknowledged writes are on the server's disk. A look-up of any number of keys is one round trip,
    and so is a put. Idle connections are closed.
    """

    def __init__(self, location: str) -> None:
        parsed = PostgresLocation.parse(location)
        self._server = PostgresServer(parsed)
        self._slow_server = PostgresServer(parsed, maintenance.SECONDS)
        self._reader = RecordReader(parsed.name)

    @classmethod
    def at(cls, location: str) -> PostgresStore:
        """Opens the store on a server."""
        return cls(location)

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        digest = bytes.fromhex(key.digest)
        for body, crc in self._server.rows(_GET, (digest,)):
            return self._reader.decision(digest, body, crc, key)
        return None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`, in one round trip."""
        if not keys:
            return {}
        by_key_digest = by_digest(keys)
        max_wait = MAX_CROWD_WAIT if len(by_key_digest) > FEW_KEYS else 0.0
        rows = self._server.rows(_GET_MANY, (list(by_key_digest),), max_wait=max_wait)
        return self._reader.decisions(rows, by_key_digest)

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored, in one round trip."""
        key, body = decision.key, serialization.dump_decision(decision)
        digest = bytes.fromhex(key.digest)
        crc = checksum(body, digest)
        row = (*_decision_columns(decision, digest), crc, body)
        if replace:
            self._server.rows(_PUT, row)
            return decision
        for _ in range(MAX_ATTEMPTS):
            # No row: another process has put one after our statement took its snapshot.
            for stored in self._server.rows(_PUT_FIRST, (*row, digest)):
                if stored == (body, crc):
                    return decision
                if (current := self._reader.current(digest, stored[0], stored[1], key)) is not None:
                    return current
                self._server.rows(_REPAIR, (crc, body, digest, *stored))
        raise StoreError(f"the decision for {key.kernel} on {self._server.name} keeps changing; try again")

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        select = "SELECT digest, body, seal FROM decisions WHERE kin = %b LIMIT %b"
        rows = self._server.rows(select, (related_prefix(key), limit))
        decisions = (self._reader.decision(*row) for row in rows)
        return (
            decision
            for decision in decisions
            if decision is not None and decision.key.related_digest == key.related_digest
        )

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel, read page by page."""
        condition, parameters = ("", ()) if kernel is None else ("kernel = %b AND", (kernel,))
        select = f"SELECT digest, body, seal FROM decisions WHERE {condition} digest > %b ORDER BY digest LIMIT %b"
        for digest, body, crc in self._server.pages(select, b"", *parameters):
            decision = self._reader.read_or_skip("a decision", read_decision, body, crc, digest)
            if decision is not None:
                yield decision

    def history(self, key: Key) -> Sequence[Revision]:
        """Returns the revisions of a key, oldest first."""
        digest, revisions = bytes.fromhex(key.digest), []
        for number, since, body, crc in self._server.rows(_HISTORY, (digest, digest)):
            decision = self._reader.read_or_skip("a decision", read_decision, body, crc, digest)
            if decision is not None:
                revisions.append(Revision(number, since, decision))
        return revisions

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key: in one statement, or by COPY if there are many."""
        if not trials:
            return
        digest, partition = bytes.fromhex(key.digest), (key.kernel, key.device.model)
        bodies = serialization.dump_trials(trials)
        crcs = checksums(bodies, digest)
        problem = (digest, *partition, serialization.dump_key(key))
        if len(bodies) < COPY_FROM_TRIALS:
            self._server.rows(_RECORD, (*problem, *partition, digest, crcs, bodies), idempotent=False)
            return

        def copy(connection: DeadlineConnection) -> None:
            with connection.transaction():
                connection.rows(_PROBLEM, problem)
                with connection.binary_cursor.copy(_COPY) as rows:
                    rows.set_types(["text", "text", "bytea", "int8", "bytea"])
                    for crc, body in zip(crcs, bodies, strict=True):
                        rows.write_row((*partition, digest, crc, body))

        self._server.use(copy, idempotent=False)

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key in the order recorded, read page by page."""
        digest = bytes.fromhex(key.digest)
        for _, body, crc in self._server.pages(_TRIALS, 0, digest, digest, digest):
            if (trial := self._reader.read_or_skip("a trial", read_trial, body, crc, digest)) is not None:
                yield trial

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        seen: set[Key] = set()
        for decision in self.decisions(kernel):
            seen.add(decision.key)
            yield decision.key
        condition, parameters = ("", ()) if kernel is None else ("kernel = %b AND", (kernel,))
        for digest, body in self._server.pages(_KEYS.format(condition), b"", *parameters):
            key = self._reader.read_or_skip("a key", read_key, body, digest)
            if key is not None and key not in seen:
                yield key

    def trial_counts(self) -> Iterator[TrialCount]:
        """Yields the number of trials of each key."""
        for digest, body, count, last in self._server.rows(_TRIAL_COUNTS, max_wait=MAX_CROWD_WAIT):
            if (key := self._reader.read_or_skip("a key", read_key, body, digest)) is not None:
                yield TrialCount(key, count, last)

    def record_misses(self, misses: Sequence[MissRecord]) -> None:
        """Adds misses to the totals of their keys."""
        totals: dict[bytes, MissRecord] = {}
        for miss in misses:
            if (known := totals.get(digest := bytes.fromhex(miss.key.digest))) is not None:
                calls, seconds = known.calls + miss.calls, known.seconds + miss.seconds
                miss = msgspec.structs.replace(miss, calls=calls, seconds=seconds)
            totals[digest] = miss
        rows = [
            (
                digest,
                miss.key.kernel,
                serialization.dump_key(miss.key),
                miss.calls,
                miss.seconds,
                miss.target,
                miss.recipe,
            )
            for digest, miss in sorted(totals.items())  # two processes that add in the same order cannot deadlock
        ]
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            self._server.rows(_RECORD_MISSES, columns, idempotent=False)

    def misses(self, kernel: str | None = None) -> Iterator[MissRecord]:
        """Yields the keys that are still undecided, most seconds first."""
        for digest, body, *totals in self._server.rows(_MISSES, (kernel, kernel)):
            if (key := self._reader.read_or_skip("a key", read_key, body, digest)) is not None:
                yield MissRecord(key, *totals)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease, timed by the server's clock."""
        return bool(self._server.rows(_CLAIM, (name, owner, seconds)))

    def release(self, name: str, owner: str) -> None:
        """Releases the lease."""
        self._server.rows("DELETE FROM leases WHERE name = %b AND owner = %b", (name, owner))

    def fetch(self, namespace: str, names: Sequence[str]) -> dict[str, bytes]:
        """Returns the entries under `names` that exist and have not expired, in one round trip."""
        if not names:
            return {}
        return dict(self._read_entries(namespace, self._server.rows(_FETCH, (namespace, list(names)))))

    def keep(
        self, namespace: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True
    ) -> bytes:
        """Stores `body` and returns what is now stored, in one round trip."""
        crc = checksum(body, entry_context(namespace, name))
        row = (namespace, name, inf if seconds is None else seconds, crc, body)
        if replace:
            self._server.rows(_KEEP, row)
            return body
        for _ in range(MAX_ATTEMPTS):
            stored = self._server.rows(_KEEP_FIRST, (*row, namespace, name))
            for _, current in self._read_entries(namespace, stored):
                return current
            for damaged in stored:
                self._server.rows(
                    "DELETE FROM entries WHERE shelf = %b AND name = %b AND body = %b AND seal = %b::bigint",
                    (namespace, *damaged),
                )
        raise StoreError(f"the entry {name!r} in {namespace!r} on {self._server.name} keeps changing; try again")

    def entries(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Yields all entries of a namespace, oldest first."""
        return self._read_entries(namespace, (row[1:] for row in self._server.pages(_ENTRIES, 0, namespace)))

    def _read_entries(self, namespace: str, rows: Iterable[tuple[str, bytes, int]]) -> Iterator[tuple[str, bytes]]:
        for name, body, crc in rows:
            content = self._reader.read_or_skip("an entry", read_entry, body, crc, namespace, name)
            if content is not None:
                yield name, content

    def clear(self, namespace: str, *, keep: int = 0) -> int:
        """Removes all but the newest `keep` entries and returns how many were removed."""
        return int(self._server.rows(_CLEAR, (namespace, keep))[0][0])

    def put_logged(self, decision: Decision, over: Decision | None, entry: LogEntry) -> bool:
        """Stores `decision` in place of `over` and appends `entry`, in one transaction."""
        body, digest = serialization.dump_decision(decision), bytes.fromhex(decision.key.digest)
        row = (*_decision_columns(decision, digest), checksum(body, digest), body)
        crc = checksum(entry.body, entry_context(entry.log, entry.name))

        def write(connection: DeadlineConnection) -> bool:
            stored = connection.rows(f"{_GET} FOR UPDATE", (digest,))
            current = self._reader.decision(digest, stored[0][0], stored[0][1], decision.key) if stored else None
            last = connection.rows(_LAST_ENTRY, (entry.log,))
            if current != over or (last[0][0] if last else "") != entry.after:
                return False
            # The name is unique: of two processes that append after the same entry, one waits here and then fails.
            if not connection.rows(_APPEND, (entry.log, entry.name, crc, entry.body)):
                return False
            put = _PUT if stored else f"{_NEW} NOTHING"
            return bool(connection.rows(f"{put} RETURNING 1", row))

        def transaction(connection: DeadlineConnection) -> bool:
            with connection.transaction():
                if write(connection):
                    return True
                raise Rollback
            return False

        return self._server.use(transaction, idempotent=False)

    def last_entry(self, log: str) -> tuple[str, bytes] | None:
        """Returns the last entry of a log, even if it is damaged."""
        rows = self._server.rows(_LAST_ENTRY, (log,))
        return rows[0] if rows else None

    def drop_entries(self, namespace: str, names: Sequence[str]) -> None:
        """Removes the entries under `names`."""
        self._server.rows("DELETE FROM entries WHERE shelf = %b AND name = ANY(%b)", (namespace, list(names)))

    def stats(self) -> StoreStats:
        """Returns how much is stored."""
        return maintenance.PostgresTables(self._slow_server).stats()

    def trim(self, limits: RetentionLimits) -> StoreStats:
        """Removes records beyond `limits`, a few hundred at a time; the server's vacuum frees the space."""
        return maintenance.trim(self._slow_server, limits)

    def faults(self) -> Iterator[str]:
        """Yields one sentence for each damaged record."""
        return maintenance.find_faults(self._slow_server)
