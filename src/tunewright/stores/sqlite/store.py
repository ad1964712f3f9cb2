"""The store itself: decisions, journals, and all offers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.sharing import wire
from tunewright.sharing.records import Bounds, Generation, Stats, Tally, Want
from tunewright.stores.bodies import (
    Bodies,
    by_digest,
    entry_place,
    kin_of,
    read_decision,
    read_entry,
    read_key,
    read_trial,
    seal,
    seals,
)
from tunewright.stores.sqlite.file import SqliteFile
from tunewright.stores.sqlite.uptime import boot, uptime

T = TypeVar("T")

ASKED_AT_ONCE = 500
RECORDED_AT_ONCE = 200

_GET = "SELECT body, seal FROM decisions WHERE digest = ?"

_PUT = """INSERT INTO decisions VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT (digest) DO UPDATE
SET generation = generation + 1, since = max(since, excluded.since), seal = excluded.seal, body = excluded.body
WHERE body IS NOT excluded.body OR seal IS NOT excluded.seal"""

# Where no seal tells damage, a cast sees that a number is still a number.
_HISTORY = """SELECT CAST(generation AS INTEGER), coalesce(CAST(since AS REAL), 0.0), body, seal FROM (
SELECT * FROM history WHERE digest = :digest UNION ALL
SELECT 0, digest, generation, since, seal, body FROM decisions WHERE digest = :digest) ORDER BY 1"""

_PROBLEM = "INSERT INTO problems (digest, kernel, key) VALUES (?, ?, ?)"

_TRIALS = """SELECT id, body, seal FROM trials WHERE problem = (SELECT id FROM problems WHERE digest = :digest)
AND id > :after ORDER BY id LIMIT :count"""

_KEYS = """SELECT id, key, digest FROM problems WHERE id > :after AND (:kernel IS NULL OR kernel = :kernel)
ORDER BY id LIMIT :count"""

# Counted in the index alone; rows of the table are touched once a key.
_TALLIES = """SELECT p.digest, p.key, c.trials, coalesce((SELECT CAST(at AS REAL) FROM trials WHERE id = c.last), 0.0)
FROM (SELECT problem, count(*) AS trials, max(id) AS last FROM trials GROUP BY problem) c
JOIN problems p ON p.id = c.problem"""

_WANT = """INSERT INTO wants VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE
SET calls = calls + excluded.calls, seconds = seconds + excluded.seconds, at = excluded.at,
target = excluded.target, recipe = excluded.recipe, key = excluded.key"""

_WANTED = """SELECT digest, key, CAST(calls AS INTEGER), CAST(seconds AS REAL), CAST(target AS TEXT),
CAST(recipe AS TEXT) FROM wants w WHERE (:kernel IS NULL OR kernel = :kernel)
AND NOT EXISTS (SELECT 1 FROM decisions d WHERE d.digest = w.digest) ORDER BY seconds DESC, digest"""

_CLAIM = """INSERT INTO leases VALUES (:name, :owner, :boot, :now + :seconds) ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, boot = excluded.boot, until = excluded.until
WHERE owner = :owner OR boot <> :boot OR until <= :now"""

_ENTRIES = """SELECT id, name, body, seal FROM entries WHERE id > :after AND shelf = :shelf AND until > :now
ORDER BY id LIMIT :count"""

_KEEP = "INSERT OR REPLACE INTO entries (shelf, name, at, until, seal, body) VALUES (?, ?, ?, ?, ?, ?)"


def _parts(items: Sequence[T], most: int) -> list[Sequence[T]]:
    return [items[start : start + most] for start in range(0, len(items), most)]


@cache
def _asking(count: int) -> str:
    """The statement that asks for so many decisions."""
    return f"SELECT digest, body, seal FROM decisions WHERE digest IN ({','.join('?' * count)})"


@cache
def _recording(count: int) -> str:
    """The statement that appends so many trials: one is faster than many that append one each."""
    return f"INSERT INTO trials (problem, at, seal, body) VALUES {','.join(['(?,?,?,?)'] * count)}"


def _row(decision: Decision, now: float) -> tuple[bytes, str, bytes, float, int, bytes]:
    """What `_PUT` takes."""
    key, body = decision.key, wire.dump_decision(decision)
    digest = bytes.fromhex(key.digest)
    return digest, key.kernel, kin_of(key), now, seal(body, digest), body


class SqliteStore:
    """Decisions and trials in one file, in write-ahead mode: readers never wait, writers take turns.

    What is acknowledged survives the death of any process at any moment. A power cut may lose the last moments,
    never tear a record. A look-up costs one b-tree descent, whatever the size. Not for network file systems,
    which do not lock as SQLite needs it: use a server's store there.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser()
        self._file = SqliteFile(self.path)
        self._bodies = Bodies(str(self.path))

    @classmethod
    def at(cls, location: str) -> SqliteStore:
        """The store at a path, or at `sqlite:PATH`."""
        return cls(location.removeprefix("sqlite:"))

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        digest = bytes.fromhex(key.digest)
        row = self._file.row(_GET, (digest,))
        return self._bodies.decision(digest, row[0], row[1], key=key) if row else None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, a few hundred to a statement."""
        wanted = by_digest(keys)
        found: dict[Key, Decision] = {}
        for part in _parts(list(wanted), ASKED_AT_ONCE):
            more = self._bodies.decisions(self._file.rows(_asking(len(part)), part), wanted)
            found = found | more if found else more
        return found

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands."""
        key, row = decision.key, _row(decision, self._since())
        if replace:
            self._file.change(_PUT, row)
            return decision
        if (standing := self.get(key)) is not None:
            return standing
        with self._file.writing() as connection:
            found = connection.execute(_GET, row[:1]).fetchone()
            if found and (standing := self._bodies.decision(row[0], found[0], found[1], key)) is not None:
                return standing
            connection.execute(_PUT, row)
        return decision

    def _since(self) -> float:
        """Now; a clock that was set back makes nothing old."""
        return max(time.time(), self._file.now())

    def fill(self, decisions: Sequence[Decision]) -> None:
        """Take over what a farther store answered, in one transaction."""
        now = self._since()
        rows = sorted((_row(decision, now) for decision in decisions), key=itemgetter(0))  # as they will lie
        with self._file.writing() as connection:
            connection.executemany(_PUT, rows)

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""
        rows = self._file.rows("SELECT digest, body, seal FROM decisions WHERE kin = ? LIMIT ?", (kin_of(key), most))
        found = (self._bodies.decision(*row) for row in rows)
        return (decision for decision in found if decision is not None and decision.key.kin == key.kin)

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel, read a page at a time."""
        narrowed, given = ("", {}) if kernel is None else ("kernel = :kernel AND", {"kernel": kernel})
        asked = (
            f"SELECT digest, body, seal FROM decisions WHERE {narrowed} digest > :after ORDER BY digest LIMIT :count"
        )
        for digest, body, sealed in self._file.pages(asked, b"", **given):
            decision = self._bodies.believed("a decision", read_decision, body, sealed, digest)
            if decision is not None and kernel in (None, decision.key.kernel):
                yield decision

    def history(self, key: Key) -> Sequence[Generation]:
        """What stood for a key, oldest first."""
        digest, found = bytes.fromhex(key.digest), []
        for number, since, body, sealed in self._file.rows(_HISTORY, {"digest": digest}):
            decision = self._bodies.believed("a decision", read_decision, body, sealed, digest)
            if decision is not None:
                found.append(Generation(number, since, decision))
        return found

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key, in one transaction."""
        if not trials:
            return
        digest, now = bytes.fromhex(key.digest), self._file.now()
        bodies = wire.dump_trials(trials)
        sealed = list(zip(seals(bodies, digest), bodies, strict=True))
        with self._file.writing() as connection:
            known = connection.execute("SELECT id FROM problems WHERE digest = ?", (digest,)).fetchone()
            problem = (
                known[0] if known else connection.execute(_PROBLEM, (digest, key.kernel, wire.dump_key(key))).lastrowid
            )
            for part in _parts(sealed, RECORDED_AT_ONCE):
                rows = chain.from_iterable((problem, now, *row) for row in part)
                connection.execute(_recording(len(part)), list(rows))

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key, in the order recorded, read a page at a time."""
        digest = bytes.fromhex(key.digest)
        for _, body, sealed in self._file.pages(_TRIALS, 0, digest=digest):
            if (trial := self._bodies.believed("a trial", read_trial, body, sealed, digest)) is not None:
                yield trial

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        seen: set[Key] = set()
        for decision in self.decisions(kernel):
            seen.add(decision.key)
            yield decision.key
        for _, body, digest in self._file.pages(_KEYS, 0, kernel=kernel):
            key = self._bodies.believed("a key", read_key, body, digest)
            if key is not None and key not in seen:
                yield key

    def tallies(self) -> Iterator[Tally]:
        """How many trials each key has."""
        for digest, body, count, last in self._file.rows(_TALLIES):
            if (key := self._bodies.believed("a key", read_key, body, digest)) is not None:
                yield Tally(key, count, last)

    def want(self, wants: Sequence[Want]) -> None:
        """Add to what is known of each key."""
        now = self._file.now()
        with self._file.writing() as connection:
            for want in wants:
                key = (bytes.fromhex(want.key.digest), want.key.kernel, wire.dump_key(want.key))
                connection.execute(_WANT, (*key, want.calls, want.seconds, now, want.target, want.recipe))

    def wanted(self, kernel: str | None = None) -> Iterator[Want]:
        """What is still undecided, most seconds first."""
        for digest, body, *rest in self._file.rows(_WANTED, {"kernel": kernel}):
            if (key := self._bodies.believed("a key", read_key, body, digest)) is not None:
                yield Want(key, *rest)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease, or renew it; time is that since boot, and another boot's leases have ended."""
        claim = {"name": name, "owner": owner, "boot": boot(), "now": uptime(), "seconds": seconds}
        return self._file.change(_CLAIM, claim) == 1

    def release(self, name: str, owner: str) -> None:
        """Give the lease back."""
        self._file.change("DELETE FROM leases WHERE name = ? AND owner = ?", (name, owner))

    def fetch(self, shelf: str, names: Sequence[str]) -> dict[str, bytes]:
        """What there is under `names` and has not expired."""
        found: dict[str, bytes] = {}
        now = self._file.now()
        for part in _parts(names, ASKED_AT_ONCE):
            marks = ",".join("?" * len(part))
            rows = self._file.rows(
                f"SELECT name, body, seal FROM entries WHERE shelf = ? AND until > ? AND name IN ({marks})",
                (shelf, now, *part),
            )
            found.update(self._entries(shelf, rows))
        return found

    def keep(self, shelf: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True) -> bytes:
        """Keep `body`, and return what stands."""
        now = self._file.now()
        row = (shelf, name, now, inf if seconds is None else now + seconds, seal(body, entry_place(shelf, name)), body)
        if replace:
            self._file.change(_KEEP, row)
            return body
        if standing := self.fetch(shelf, [name]):
            return standing[name]
        with self._file.writing() as connection:
            found = connection.execute(
                "SELECT name, body, seal FROM entries WHERE shelf = ? AND name = ? AND until > ?", (shelf, name, now)
            ).fetchall()
            if standing := dict(self._entries(shelf, found)):
                return standing[name]
            connection.execute(_KEEP, row)
        return body

    def entries(self, shelf: str) -> Iterator[tuple[str, bytes]]:
        """Everything on a shelf, oldest first."""
        rows = self._file.pages(_ENTRIES, 0, shelf=shelf, now=self._file.now())
        return self._entries(shelf, (row[1:] for row in rows))

    def _entries(self, shelf: str, rows: Iterable[tuple[str, bytes, int]]) -> Iterator[tuple[str, bytes]]:
        for name, body, sealed in rows:
            read = self._bodies.believed("an entry", read_entry, body, sealed, shelf, name)
            if read is not None:
                yield name, read

    def clear(self, shelf: str, *, most: int = 0) -> int:
        """Drop the oldest entries until at most `most` are left."""
        oldest = "SELECT id FROM entries WHERE shelf = ? ORDER BY id DESC LIMIT -1 OFFSET ?"
        return self._file.change(f"DELETE FROM entries WHERE id IN ({oldest})", (shelf, most))

    def stats(self) -> Stats:
        """How much is kept."""
        from tunewright.stores.sqlite import upkeep  # noqa: PLC0415 - a launch never needs it

        return upkeep.SqlitePiles(self._file).stats()

    def trim(self, bounds: Bounds) -> Stats:
        """Drop what is beyond `bounds`, a few hundred records at a time, and give the space back."""
        from tunewright.stores.sqlite import upkeep  # noqa: PLC0415 - as above

        return upkeep.trim(self._file, bounds)

    def faults(self) -> Iterator[str]:
        """Every record that cannot be believed, and what SQLite itself finds wrong with the file."""
        from tunewright.stores.sqlite import upkeep  # noqa: PLC0415 - as above

        return upkeep.faults(self._file)
