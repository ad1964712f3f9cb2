"""SQLite store: decisions, journals and all optional capabilities."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from math import inf
from pathlib import Path

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores import serialization
from tunewright.stores.capabilities import FillToken
from tunewright.stores.records import (
    RecordReader,
    batches,
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
from tunewright.stores.sqlite import filling
from tunewright.stores.sqlite.boot_clock import boot_id, uptime
from tunewright.stores.sqlite.connection import SqliteFile
from tunewright.stores.statistics import LogEntry, MissRecord, RetentionLimits, Revision, StoreStats, TrialCount

KEYS_PER_STATEMENT = 500
TRIALS_PER_STATEMENT = 200

_GET = "SELECT body, seal FROM decisions WHERE digest = ?"

_PUT = """INSERT INTO decisions VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT (digest) DO UPDATE
SET generation = generation + 1, since = max(since, excluded.since), seal = excluded.seal, body = excluded.body
WHERE body IS NOT excluded.body OR seal IS NOT excluded.seal"""

# The checksum does not cover these numbers: the casts make sure that they still are numbers.
_HISTORY = """SELECT CAST(generation AS INTEGER), coalesce(CAST(since AS REAL), 0.0), body, seal FROM (
SELECT * FROM history WHERE digest = :digest UNION ALL
SELECT 0, digest, generation, since, seal, body FROM decisions WHERE digest = :digest) ORDER BY 1"""

_PROBLEM = "INSERT INTO problems (digest, kernel, key) VALUES (?, ?, ?)"

_TRIALS = """SELECT id, body, seal FROM trials WHERE problem = (SELECT id FROM problems WHERE digest = :digest)
AND id > :after ORDER BY id LIMIT :count"""

_KEYS = """SELECT id, key, digest FROM problems WHERE id > :after AND (:kernel IS NULL OR kernel = :kernel)
ORDER BY id LIMIT :count"""

# Counted in the index; the table is read once per key.
_TRIAL_COUNTS = """SELECT p.digest, p.key, c.trials,
coalesce((SELECT CAST(at AS REAL) FROM trials WHERE id = c.last), 0.0)
FROM (SELECT problem, count(*) AS trials, max(id) AS last FROM trials GROUP BY problem) c
JOIN problems p ON p.id = c.problem"""

_RECORD_MISS = """INSERT INTO wants VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE
SET calls = calls + excluded.calls, seconds = seconds + excluded.seconds, at = excluded.at,
target = excluded.target, recipe = excluded.recipe, key = excluded.key"""

_MISSES = """SELECT digest, key, CAST(calls AS INTEGER), CAST(seconds AS REAL), CAST(target AS TEXT),
CAST(recipe AS TEXT) FROM wants w WHERE (:kernel IS NULL OR kernel = :kernel)
AND NOT EXISTS (SELECT 1 FROM decisions d WHERE d.digest = w.digest) ORDER BY seconds DESC, digest"""

_CLAIM = """INSERT INTO leases VALUES (:name, :owner, :boot, :now + :seconds) ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, boot = excluded.boot, until = excluded.until
WHERE owner = :owner OR boot <> :boot OR until <= :now"""

_ENTRIES = """SELECT id, name, body, seal FROM entries WHERE id > :after AND shelf = :shelf AND until > :now
ORDER BY id LIMIT :count"""

_APPEND = "INSERT INTO entries (shelf, name, at, until, seal, body) VALUES (?, ?, ?, ?, ?, ?)"

_KEEP = _APPEND.replace("INSERT", "INSERT OR REPLACE")

_LAST_ENTRY = "SELECT CAST(name AS TEXT), CAST(body AS BLOB) FROM entries WHERE shelf = ? ORDER BY id DESC LIMIT 1"


@cache
def _select_decisions(count: int) -> str:
    """Returns the statement that reads `count` decisions."""
    return f"SELECT digest, body, seal FROM decisions WHERE digest IN ({','.join('?' * count)})"


@cache
def _insert_trials(count: int) -> str:
    """Returns the statement that appends `count` trials, which is faster than one statement for each."""
    return f"INSERT INTO trials (problem, at, seal, body) VALUES {','.join(['(?,?,?,?)'] * count)}"


def _row(decision: Decision, now: float) -> tuple[bytes, str, bytes, float, int, bytes]:
    """Returns the parameters of `_PUT`."""
    key, body = decision.key, serialization.dump_decision(decision)
    digest = bytes.fromhex(key.digest)
    return digest, key.kernel, related_prefix(key), now, checksum(body, digest), body


class SqliteStore:
    """Decisions and trials in one file, in write-ahead mode: readers never wait, writers take turns.

    Acknowledged writes survive the death of any process at any time. A power cut may lose the last moments, but never
    tears a record; if the store is `durable`, it loses nothing that was acknowledged. A look-up is one b-tree descent,
    whatever the size. Not for network file systems, which lack the locks that SQLite needs: use a server there.
    """

    def __init__(self, path: Path | str, *, durable: bool = False) -> None:
        self.path = Path(path).expanduser()
        self._file = SqliteFile(self.path, durable=durable)
        self._reader = RecordReader(str(self.path))

    @classmethod
    def at(cls, location: str) -> SqliteStore:
        """Opens the store at a path, or at `sqlite:PATH`."""
        return cls(location.removeprefix("sqlite:"))

    def durable(self) -> SqliteStore:
        """Returns the same file as a store whose acknowledged writes survive a power cut."""
        return SqliteStore(self.path, durable=True)

    def sync(self) -> None:
        """Waits until a power cut loses nothing that was acknowledged so far."""
        self._file.sync()

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        digest = bytes.fromhex(key.digest)
        row = self._file.row(_GET, (digest,))
        return self._reader.decision(digest, row[0], row[1], key=key) if row else None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`, a few hundred per statement."""
        by_key_digest = by_digest(keys)
        decisions: dict[Key, Decision] = {}
        for digests in batches(list(by_key_digest), KEYS_PER_STATEMENT):
            rows = self._file.rows(_select_decisions(len(digests)), digests)
            batch = self._reader.decisions(rows, by_key_digest)
            decisions = decisions | batch if decisions else batch
        return decisions

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored."""
        key, row = decision.key, _row(decision, self._latest_now())
        if replace:
            self._file.change(_PUT, row)
            return decision
        if (current := self.get(key)) is not None and self._reader.is_readable(current):
            return current
        with self._file.writing() as connection:
            stored = connection.execute(_GET, row[:1]).fetchone()
            if stored and (current := self._reader.current(row[0], stored[0], stored[1], key)) is not None:
                return current
            connection.execute(_PUT, row)
        return decision

    def _latest_now(self) -> float:
        """Returns the later of two clocks: a wall clock that was set back makes nothing old."""
        return max(time.time(), self._file.now())

    def fill_token(self, keys: Sequence[Key]) -> FillToken:
        """Returns the versions of the decisions that are here now."""
        return filling.take_token(self._file, keys)

    def forget(self, keys: Sequence[Key], seconds: float) -> FillToken:
        """Removes decisions that are about to change."""
        return filling.forget(self._file, keys, seconds)

    def fill(self, decisions: Sequence[Decision], token: FillToken | None = None) -> int:
        """Copies decisions of a slower store, in one transaction."""
        now = self._latest_now()
        return filling.fill(self._file, _PUT, [_row(decision, now) for decision in decisions], token)

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        select = "SELECT digest, body, seal FROM decisions WHERE kin = ? LIMIT ?"
        rows = self._file.rows(select, (related_prefix(key), limit))
        decisions = (self._reader.decision(*row) for row in rows)
        return (
            decision
            for decision in decisions
            if decision is not None and decision.key.related_digest == key.related_digest
        )

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel, read page by page."""
        condition, params = ("", {}) if kernel is None else ("kernel = :kernel AND", {"kernel": kernel})
        select = (
            f"SELECT digest, body, seal FROM decisions WHERE {condition} digest > :after ORDER BY digest LIMIT :count"
        )
        for digest, body, crc in self._file.pages(select, b"", **params):
            decision = self._reader.read_or_skip("a decision", read_decision, body, crc, digest)
            if decision is not None and kernel in (None, decision.key.kernel):
                yield decision

    def history(self, key: Key) -> Sequence[Revision]:
        """Returns the revisions of a key, oldest first."""
        digest, revisions = bytes.fromhex(key.digest), []
        for number, since, body, crc in self._file.rows(_HISTORY, {"digest": digest}):
            decision = self._reader.read_or_skip("a decision", read_decision, body, crc, digest)
            if decision is not None:
                revisions.append(Revision(number, since, decision))
        return revisions

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key, in one transaction."""
        if not trials:
            return
        digest, now = bytes.fromhex(key.digest), self._file.now()
        bodies = serialization.dump_trials(trials)
        records = list(zip(checksums(bodies, digest), bodies, strict=True))
        with self._file.writing() as connection:
            known = connection.execute("SELECT id FROM problems WHERE digest = ?", (digest,)).fetchone()
            problem = (
                known[0]
                if known
                else connection.execute(_PROBLEM, (digest, key.kernel, serialization.dump_key(key))).lastrowid
            )
            for batch in batches(records, TRIALS_PER_STATEMENT):
                values = chain.from_iterable((problem, now, *record) for record in batch)
                connection.execute(_insert_trials(len(batch)), list(values))

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key in the order recorded, read page by page."""
        digest = bytes.fromhex(key.digest)
        for _, body, crc in self._file.pages(_TRIALS, 0, digest=digest):
            if (trial := self._reader.read_or_skip("a trial", read_trial, body, crc, digest)) is not None:
                yield trial

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        seen: set[Key] = set()
        for decision in self.decisions(kernel):
            seen.add(decision.key)
            yield decision.key
        for _, body, digest in self._file.pages(_KEYS, 0, kernel=kernel):
            key = self._reader.read_or_skip("a key", read_key, body, digest)
            if key is not None and key not in seen:
                yield key

    def trial_counts(self) -> Iterator[TrialCount]:
        """Yields the number of trials of each key."""
        for digest, body, count, last in self._file.rows(_TRIAL_COUNTS):
            if (key := self._reader.read_or_skip("a key", read_key, body, digest)) is not None:
                yield TrialCount(key, count, last)

    def record_misses(self, misses: Sequence[MissRecord]) -> None:
        """Adds misses to the totals of their keys."""
        now = self._file.now()
        with self._file.writing() as connection:
            for miss in misses:
                key = (bytes.fromhex(miss.key.digest), miss.key.kernel, serialization.dump_key(miss.key))
                connection.execute(_RECORD_MISS, (*key, miss.calls, miss.seconds, now, miss.target, miss.recipe))

    def misses(self, kernel: str | None = None) -> Iterator[MissRecord]:
        """Yields the keys that are still undecided, most seconds first."""
        for digest, body, *totals in self._file.rows(_MISSES, {"kernel": kernel}):
            if (key := self._reader.read_or_skip("a key", read_key, body, digest)) is not None:
                yield MissRecord(key, *totals)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease, timed by the uptime; leases of an earlier boot have expired."""
        claim = {"name": name, "owner": owner, "boot": boot_id(), "now": uptime(), "seconds": seconds}
        return self._file.change(_CLAIM, claim) == 1

    def release(self, name: str, owner: str) -> None:
        """Releases the lease."""
        self._file.change("DELETE FROM leases WHERE name = ? AND owner = ?", (name, owner))

    def fetch(self, namespace: str, names: Sequence[str]) -> dict[str, bytes]:
        """Returns the entries under `names` that exist and have not expired."""
        entries: dict[str, bytes] = {}
        now = self._file.now()
        for batch in batches(names, KEYS_PER_STATEMENT):
            marks = ",".join("?" * len(batch))
            rows = self._file.rows(
                f"SELECT name, body, seal FROM entries WHERE shelf = ? AND until > ? AND name IN ({marks})",
                (namespace, now, *batch),
            )
            entries.update(self._read_entries(namespace, rows))
        return entries

    def keep(
        self, namespace: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True
    ) -> bytes:
        """Stores `body` and returns what is now stored."""
        now = self._file.now()
        until, crc = inf if seconds is None else now + seconds, checksum(body, entry_context(namespace, name))
        row = (namespace, name, now, until, crc, body)
        if replace:
            self._file.change(_KEEP, row)
            return body
        if current := self.fetch(namespace, [name]):
            return current[name]
        with self._file.writing() as connection:
            rows = connection.execute(
                "SELECT name, body, seal FROM entries WHERE shelf = ? AND name = ? AND until > ?",
                (namespace, name, now),
            ).fetchall()
            if current := dict(self._read_entries(namespace, rows)):
                return current[name]
            connection.execute(_KEEP, row)
        return body

    def entries(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Yields all entries of a namespace, oldest first."""
        rows = self._file.pages(_ENTRIES, 0, shelf=namespace, now=self._file.now())
        return self._read_entries(namespace, (row[1:] for row in rows))

    def _read_entries(self, namespace: str, rows: Iterable[tuple[str, bytes, int]]) -> Iterator[tuple[str, bytes]]:
        for name, body, crc in rows:
            content = self._reader.read_or_skip("an entry", read_entry, body, crc, namespace, name)
            if content is not None:
                yield name, content

    def clear(self, namespace: str, *, keep: int = 0) -> int:
        """Removes all but the newest `keep` entries and returns how many were removed."""
        oldest = "SELECT id FROM entries WHERE shelf = ? ORDER BY id DESC LIMIT -1 OFFSET ?"
        return self._file.change(f"DELETE FROM entries WHERE id IN ({oldest})", (namespace, keep))

    def put_logged(self, decision: Decision, over: Decision | None, entry: LogEntry) -> bool:
        """Stores `decision` in place of `over` and appends `entry`, in one transaction."""
        row, now = _row(decision, self._latest_now()), self._file.now()
        crc = checksum(entry.body, entry_context(entry.log, entry.name))
        with self._file.writing() as connection:
            stored = connection.execute(_GET, row[:1]).fetchone()
            current = self._reader.decision(row[0], stored[0], stored[1], decision.key) if stored else None
            last = connection.execute(_LAST_ENTRY, (entry.log,)).fetchone()
            if current != over or (last[0] if last else "") != entry.after:
                return False
            connection.execute(_APPEND, (entry.log, entry.name, now, inf, crc, entry.body))
            connection.execute(_PUT, row)
        return True

    def last_entry(self, log: str) -> tuple[str, bytes] | None:
        """Returns the last entry of a log, even if it is damaged."""
        row = self._file.row(_LAST_ENTRY, (log,))
        return (row[0], bytes(row[1])) if row else None

    def drop_entries(self, namespace: str, names: Sequence[str]) -> None:
        """Removes the entries under `names`, in one transaction."""
        with self._file.writing() as connection:
            rows = [(namespace, name) for name in names]
            connection.executemany("DELETE FROM entries WHERE shelf = ? AND name = ?", rows)

    def stats(self) -> StoreStats:
        """Returns how much is stored."""
        from tunewright.stores.sqlite import maintenance  # noqa: PLC0415 - a launch never needs it

        return maintenance.SqliteTables(self._file).stats()

    def trim(self, limits: RetentionLimits) -> StoreStats:
        """Removes records beyond `limits`, a few hundred at a time, and shrinks the file."""
        from tunewright.stores.sqlite import maintenance  # noqa: PLC0415 - as above

        return maintenance.trim(self._file, limits)

    def faults(self) -> Iterator[str]:
        """Yields one sentence for each damaged record, and what SQLite itself finds wrong with the file."""
        from tunewright.stores.sqlite import maintenance  # noqa: PLC0415 - as above

        return maintenance.find_faults(self._file)
