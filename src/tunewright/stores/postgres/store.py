"""The store itself: decisions, journals, and all offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

import msgspec

from tunewright.errors import StoreError
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
from tunewright.stores.postgres import upkeep
from tunewright.stores.postgres.link import Link
from tunewright.stores.postgres.server import Server
from tunewright.stores.postgres.target import Target

COPIED_FROM = 1000
"""Trials from which COPY, which takes more round trips, is faster than one statement."""

FEW, ROOM_SECONDS = 10, 20.0
"""How many keys a launch asks for at most; whoever asks for more has this long, in seconds, to find room on the server.

A launch must not wait: where a server is crowded, it is answered from the mirror, or not at all, within the time-out
of any other call. A program that asks for all its keys at once is about to start, may be one of thousands that do,
and would rather start late than without its decisions: that crowd is gone in seconds, since no one stays in.
"""

ATTEMPTS = 5
"""How often to ask for what another process is just writing."""

_NOW = "extract(epoch FROM clock_timestamp())::float8"

_GET = "SELECT body, seal FROM decisions WHERE digest = %b"

_GET_MANY = "SELECT digest, body, seal FROM decisions WHERE digest = ANY(%b)"

_NEW = f"INSERT INTO decisions AS d VALUES (%b, %b, %b, %b, 1, {_NOW}, %b::bigint, %b) ON CONFLICT (digest) DO"

_CHANGE = (
    f"UPDATE decisions SET generation = generation + 1, since = greatest(since, {_NOW}), seal = %b::bigint, body = %b"
)

_PUT = f"""{_NEW} UPDATE
SET generation = d.generation + 1, since = greatest(d.since, excluded.since), seal = excluded.seal, body = excluded.body
WHERE d.body <> excluded.body OR d.seal <> excluded.seal"""

_PUT_FIRST = f"""WITH fresh AS ({_NEW} NOTHING RETURNING body, seal)
SELECT body, seal FROM fresh UNION ALL SELECT body, seal FROM decisions WHERE digest = %b LIMIT 1"""

_MEND = f"""UPDATE decisions
SET generation = generation + 1, since = greatest(since, {_NOW}), seal = %b::bigint, body = %b
WHERE digest = %b AND body = %b AND seal = %b::bigint"""

_HISTORY = """SELECT generation, since, body, seal FROM history WHERE digest = %b
UNION ALL SELECT generation, since, body, seal FROM decisions WHERE digest = %b ORDER BY generation"""

_PROBLEM = "INSERT INTO problems VALUES (%b, %b, %b, %b) ON CONFLICT DO NOTHING"

_RECORD = f"""WITH problem AS ({_PROBLEM}) INSERT INTO trials (kernel, device, digest, seal, body)
SELECT %b, %b, %b, * FROM unnest(%b::bigint[], %b::bytea[])"""

_COPY = "COPY trials (kernel, device, digest, seal, body) FROM STDIN (FORMAT BINARY)"

# In which part they are is asked of the key's own row: of a key that came over a network the digest alone is known.
_TRIALS = """SELECT id, body, seal FROM trials
WHERE kernel = (SELECT kernel FROM problems WHERE digest = %b)
AND device = (SELECT device FROM problems WHERE digest = %b) AND digest = %b AND id > %b ORDER BY id LIMIT %b"""

_KEYS = """SELECT digest, key FROM problems p WHERE {} digest > %b AND EXISTS (
SELECT FROM trials t WHERE t.kernel = p.kernel AND t.device = p.device AND t.digest = p.digest)
ORDER BY digest LIMIT %b"""

_TALLIES = """SELECT p.digest, p.key, c.trials, c.last FROM (
SELECT kernel, device, digest, count(*) AS trials, max(at) AS last FROM trials GROUP BY kernel, device, digest) c
JOIN problems p ON p.digest = c.digest"""

_WANT = f"""INSERT INTO wants AS w (digest, kernel, key, calls, seconds, target, recipe, at)
SELECT *, {_NOW} FROM unnest(%b::bytea[], %b::text[], %b::bytea[], %b::bigint[], %b::float8[], %b::text[], %b::text[])
ON CONFLICT (digest) DO UPDATE SET calls = w.calls + excluded.calls, seconds = w.seconds + excluded.seconds,
at = excluded.at, target = excluded.target, recipe = excluded.recipe, key = excluded.key"""

_WANTED = """SELECT digest, key, calls, seconds, target, recipe FROM wants w WHERE (%b::text IS NULL OR kernel = %b)
AND NOT EXISTS (SELECT FROM decisions d WHERE d.digest = w.digest) ORDER BY seconds DESC, digest"""

_CLAIM = """INSERT INTO leases AS l VALUES (%b, %b, clock_timestamp() + %b::float8 * interval '1 second')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE l.owner = excluded.owner OR l.until <= clock_timestamp() RETURNING 1"""

_FETCH = f"SELECT name, body, seal FROM entries WHERE shelf = %b AND name = ANY(%b) AND until > {_NOW}"

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


class PostgresStore:
    """Decisions and trials on a server that many machines share, as the record of truth.

    The location is `postgresql://user@host:port/database` (or `postgres:` and libpq's words); what libpq reads from
    the environment and from `~/.pgpass` counts. Tables live in the schema `tunewright`, which is made on first use.

    Every call ends within 2 seconds, or as many as `?tunewright_timeout=5` says, whatever became of the server or the
    line to it; only trimming, verifying and a change of schema may take longer, and a look-up of many keys while the
    server says that it has no room for another connection. What is acknowledged is on the server's disk. A look-up of
    any number of keys is one round trip, and so is a put. A connection that idles is closed: places are for those who
    ask.
    """

    def __init__(self, location: str) -> None:
        target = Target.of(location)
        self._server = Server(target)
        self._patient = Server(target, upkeep.SECONDS)
        self._bodies = Bodies(target.name)

    @classmethod
    def at(cls, location: str) -> PostgresStore:
        """The store on a server."""
        return cls(location)

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        digest = bytes.fromhex(key.digest)
        for body, sealed in self._server.rows(_GET, (digest,)):
            return self._bodies.decision(digest, body, sealed, key)
        return None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, in one round trip."""
        wanted = by_digest(keys)
        room = ROOM_SECONDS if len(wanted) > FEW else 0.0
        return (
            self._bodies.decisions(self._server.rows(_GET_MANY, (list(wanted),), room=room), wanted) if wanted else {}
        )

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands, in one round trip."""
        key, body = decision.key, wire.dump_decision(decision)
        digest = bytes.fromhex(key.digest)
        sealed = seal(body, digest)
        row = (digest, key.kernel, key.device.model, kin_of(key), sealed, body)
        if replace:
            self._server.rows(_PUT, row)
            return decision
        for _ in range(ATTEMPTS):
            # No row: another process has put one since our statement began to look.
            for stood in self._server.rows(_PUT_FIRST, (*row, digest)):
                if stood == (body, sealed):
                    return decision
                if (standing := self._bodies.decision(digest, stood[0], stood[1], key)) is not None:
                    return standing
                self._server.rows(_MEND, (sealed, body, digest, *stood))
        raise StoreError(f"the decision for {key.kernel} on {self._server.name} changes all the time; try again")

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""
        rows = self._server.rows(
            "SELECT digest, body, seal FROM decisions WHERE kin = %b LIMIT %b", (kin_of(key), most)
        )
        found = (self._bodies.decision(*row) for row in rows)
        return (decision for decision in found if decision is not None and decision.key.kin == key.kin)

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel, read a page at a time."""
        narrowed, given = ("", ()) if kernel is None else ("kernel = %b AND", (kernel,))
        asked = f"SELECT digest, body, seal FROM decisions WHERE {narrowed} digest > %b ORDER BY digest LIMIT %b"
        for digest, body, sealed in self._server.pages(asked, b"", *given):
            decision = self._bodies.believed("a decision", read_decision, body, sealed, digest)
            if decision is not None:
                yield decision

    def history(self, key: Key) -> Sequence[Generation]:
        """What stood for a key, oldest first."""
        digest, found = bytes.fromhex(key.digest), []
        for number, since, body, sealed in self._server.rows(_HISTORY, (digest, digest)):
            decision = self._bodies.believed("a decision", read_decision, body, sealed, digest)
            if decision is not None:
                found.append(Generation(number, since, decision))
        return found

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key: in one statement, or by COPY if they are many."""
        if not trials:
            return
        digest, place = bytes.fromhex(key.digest), (key.kernel, key.device.model)
        bodies = wire.dump_trials(trials)
        sealed = seals(bodies, digest)
        problem = (digest, *place, wire.dump_key(key))
        if len(bodies) < COPIED_FROM:
            self._server.rows(_RECORD, (*problem, *place, digest, sealed, bodies), twice=False)
            return

        def copy(link: Link) -> None:
            with link.transaction():
                link.rows(_PROBLEM, problem)
                with link.asking.copy(_COPY) as into:
                    into.set_types(["text", "text", "bytea", "int8", "bytea"])
                    for number, body in zip(sealed, bodies, strict=True):
                        into.write_row((*place, digest, number, body))

        self._server.use(copy, twice=False)

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key, in the order recorded, read a page at a time."""
        digest = bytes.fromhex(key.digest)
        for _, body, sealed in self._server.pages(_TRIALS, 0, digest, digest, digest):
            if (trial := self._bodies.believed("a trial", read_trial, body, sealed, digest)) is not None:
                yield trial

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        seen: set[Key] = set()
        for decision in self.decisions(kernel):
            seen.add(decision.key)
            yield decision.key
        narrowed, given = ("", ()) if kernel is None else ("kernel = %b AND", (kernel,))
        for digest, body in self._server.pages(_KEYS.format(narrowed), b"", *given):
            key = self._bodies.believed("a key", read_key, body, digest)
            if key is not None and key not in seen:
                yield key

    def tallies(self) -> Iterator[Tally]:
        """How many trials each key has."""
        for digest, body, count, last in self._server.rows(_TALLIES, room=ROOM_SECONDS):
            if (key := self._bodies.believed("a key", read_key, body, digest)) is not None:
                yield Tally(key, count, last)

    def want(self, wants: Sequence[Want]) -> None:
        """Add to what is known of each key."""
        total: dict[bytes, Want] = {}
        for want in wants:
            if (known := total.get(digest := bytes.fromhex(want.key.digest))) is not None:
                calls, seconds = known.calls + want.calls, known.seconds + want.seconds
                want = msgspec.structs.replace(want, calls=calls, seconds=seconds)
            total[digest] = want
        rows = [
            (digest, want.key.kernel, wire.dump_key(want.key), want.calls, want.seconds, want.target, want.recipe)
            for digest, want in sorted(total.items())  # two who add in the same order cannot lock each other out
        ]
        if rows:
            self._server.rows(_WANT, [list(column) for column in zip(*rows, strict=True)], twice=False)

    def wanted(self, kernel: str | None = None) -> Iterator[Want]:
        """What is still undecided, most seconds first."""
        for digest, body, *rest in self._server.rows(_WANTED, (kernel, kernel)):
            if (key := self._bodies.believed("a key", read_key, body, digest)) is not None:
                yield Want(key, *rest)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease, or renew it, by the server's clock."""
        return bool(self._server.rows(_CLAIM, (name, owner, seconds)))

    def release(self, name: str, owner: str) -> None:
        """Give the lease back."""
        self._server.rows("DELETE FROM leases WHERE name = %b AND owner = %b", (name, owner))

    def fetch(self, shelf: str, names: Sequence[str]) -> dict[str, bytes]:
        """What there is under `names` and has not expired, in one round trip."""
        return dict(self._entries(shelf, self._server.rows(_FETCH, (shelf, list(names))))) if names else {}

    def keep(self, shelf: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True) -> bytes:
        """Keep `body`, and return what stands, in one round trip."""
        row = (shelf, name, inf if seconds is None else seconds, seal(body, entry_place(shelf, name)), body)
        if replace:
            self._server.rows(_KEEP, row)
            return body
        for _ in range(ATTEMPTS):
            stood = self._server.rows(_KEEP_FIRST, (*row, shelf, name))
            for _, standing in self._entries(shelf, stood):
                return standing
            for damaged in stood:
                self._server.rows(
                    "DELETE FROM entries WHERE shelf = %b AND name = %b AND body = %b AND seal = %b::bigint",
                    (shelf, *damaged),
                )
        raise StoreError(f"{name!r} on the shelf {shelf!r} on {self._server.name} changes all the time; try again")

    def entries(self, shelf: str) -> Iterator[tuple[str, bytes]]:
        """Everything on a shelf, oldest first."""
        return self._entries(shelf, (row[1:] for row in self._server.pages(_ENTRIES, 0, shelf)))

    def _entries(self, shelf: str, rows: Iterable[tuple[str, bytes, int]]) -> Iterator[tuple[str, bytes]]:
        for name, body, sealed in rows:
            read = self._bodies.believed("an entry", read_entry, body, sealed, shelf, name)
            if read is not None:
                yield name, read

    def clear(self, shelf: str, *, most: int = 0) -> int:
        """Drop the oldest entries until at most `most` are left."""
        return int(self._server.rows(_CLEAR, (shelf, most))[0][0])

    def stats(self) -> Stats:
        """How much is kept."""
        return upkeep.PostgresPiles(self._patient).stats()

    def trim(self, bounds: Bounds) -> Stats:
        """Drop what is beyond `bounds`, a few hundred records at a time; the server's vacuum takes the space back."""
        return upkeep.trim(self._patient, bounds)

    def faults(self) -> Iterator[str]:
        """Every record that cannot be believed."""
        return upkeep.faults(self._patient)
