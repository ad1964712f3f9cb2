"""A store in Redis: a cache in front of the record of truth, or a small fleet's only store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tunewright.errors import StoreError, WireError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.plugins import missing
from tunewright.sharing import wire
from tunewright.sharing.records import Want
from tunewright.stores import lua
from tunewright.stores.bodies import Bodies, opened, read_decision, read_key, seal, sealed

PREFIX = "tunewright:1:"
"""What every key of ours begins with; the number is that of the layout."""

PATIENCE = 1.0
"""Seconds to connect, and for each command."""

ASKED_AT_ONCE = 10_000
PAGE = 1000
BATCHES = 100

_NEXT = f"\r\n${len(PREFIX) + 73}\r\n{PREFIX}decision:"
"""What stands before each digest in a packed command: the length of a decision's name, and its beginning."""

_ANYTHING = b"*"
"""What stands where anything may be replaced."""

_HEX = re.compile(rb"[0-9a-f]{64}")


class RedisStore:
    """Decisions, trials, leases, shelves and wants in one Redis (6.2 or later, not a cluster).

    Connecting and each command end after one second; `?socket_timeout=0.2&socket_connect_timeout=0.2` in the location
    says otherwise. Nothing is retried: what fails is a StoreError at once. A batch of keys is one MGET, every write one
    round trip. What is acknowledged is as safe as the server keeps it: `appendonly yes` for a record of truth.

    With `?ttl=3600`, decisions are forgotten after that many seconds: a cache. Every decision that comes to stand is
    also published, so that processes that hold it in memory may listen to `invalidations`.
    """

    def __init__(self, location: str, *, seconds: float | None = None) -> None:
        try:
            import redis  # noqa: PLC0415 - optional; said with the extra to install, whatever scheme named us
            from redis.backoff import NoBackoff  # noqa: PLC0415 - the same
            from redis.retry import Retry  # noqa: PLC0415 - the same
        except ImportError as error:
            raise missing("stores", "redis", error) from error
        self.location = _shown(location)
        self._expiry = 0 if seconds is None else max(1, round(1000 * seconds))
        self._trouble = (redis.RedisError, OSError)
        self._bodies = Bodies(self.location)
        try:
            # The older protocol needs no greeting: a new connection costs no round trip before its first command.
            self._redis: Any = redis.Redis.from_url(
                location,
                socket_timeout=PATIENCE,
                socket_connect_timeout=PATIENCE,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                driver_info=None,
            )
            pool = self._redis.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # not connected, but options that it lacks are said here
        except (ValueError, TypeError) as error:
            raise StoreError(f"{self.location} is no location of a Redis: {error}") from error
        script = self._redis.register_script
        self._put, self._forget, self._record = script(lua.PUT), script(lua.FORGET), script(lua.RECORD)
        self._claim, self._release = script(lua.CLAIM), script(lua.RELEASE)
        self._keep, self._shelf, self._clear = script(lua.KEEP), script(lua.SHELF), script(lua.CLEAR)

    @classmethod
    def at(cls, location: str) -> RedisStore:
        """The store at `redis://HOST:PORT/NUMBER`, `rediss://...` (encrypted) or `unix://PATH`; see above for `ttl`."""
        place, _, query = location.partition("?")
        options = dict(parse_qsl(query))
        lasting = options.pop("ttl", None)
        try:
            seconds = None if lasting is None else float(lasting)
        except ValueError as error:
            raise StoreError(f"ttl={lasting!r} is no number of seconds, in {_shown(location)}") from error
        return cls(f"{place}?{urlencode(options)}", seconds=seconds)

    @contextmanager
    def _said(self, what: str) -> Iterator[Any]:
        """The client, whose errors become StoreErrors that name the server."""
        try:
            yield self._redis
        except self._trouble as error:
            raise self._failed(what, error) from error

    def _failed(self, what: str, error: Exception) -> StoreError:
        advice = "see that it runs and can be reached, or set another `store`"
        return StoreError(f"cannot {what} {self.location}: {str(error) or type(error).__name__}; {advice}")

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        (value,) = self._values([key.digest])
        return None if value is None else self._bodies.decision(bytes.fromhex(key.digest), *opened(value), key=key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, in one round trip."""
        found: dict[Key, Decision] = {}
        for part in _pages(keys, ASKED_AT_ONCE):
            names = [key.digest for key in part]
            more = self._bodies.opened(list(map(bytes.fromhex, names)), self._values(names), part)
            found = found | more if found else more
        return found

    def _values(self, digests: Sequence[str]) -> list[bytes | None]:
        """What is kept under each digest; to MGET, what is no text at all, and so not ours, is nothing, not an error.

        Names of one length are packed by joining them; the client, which looks at each, takes as long as the server.
        """
        packed = f"*{len(digests) + 1}\r\n$4\r\nMGET{_NEXT}{_NEXT.join(digests)}\r\n".encode()
        pool = self._redis.connection_pool
        try:
            connection = pool.get_connection()
            try:
                connection.send_packed_command([packed])
                values: list[bytes | None] = connection.read_response()
            finally:
                pool.release(connection)
        except self._trouble as error:
            raise self._failed("read", error) from error
        return values

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands; two round trips if a damaged one has to go first."""
        key, unbelieved = decision.key, _ANYTHING if replace else b""
        while True:
            standing = self._kept([decision], unbelieved)
            if standing is None:
                return decision
            if (kept := self._bodies.decision(bytes.fromhex(key.digest), *opened(standing), key=key)) is not None:
                return kept
            unbelieved = standing

    def fill(self, decisions: Sequence[Decision]) -> None:
        """Take over what a farther store answered, a thousand to a round trip."""
        for part in _pages(decisions, PAGE):
            self._kept(part, _ANYTHING)

    def _kept(self, decisions: Sequence[Decision], unbelieved: bytes) -> bytes | None:
        """Keep `decisions` where there is nothing, or what is not believed; what stands instead, if something does."""
        places = [f"{PREFIX}kernels"]
        given: list[bytes | str | int] = [self._expiry, unbelieved, f"{PREFIX}changes"]
        for decision in decisions:
            key, digest = decision.key, decision.key.digest
            places += [_decision(digest), _of_kernel(key.kernel), f"{PREFIX}kin:{key.kin}"]
            given += [sealed(wire.dump_decision(decision), bytes.fromhex(digest)), digest, key.kernel]
        with self._said("write to"):
            standing: bytes | None = self._put(places, given)
        return standing

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""
        found = (decision for decision in self._members(f"{PREFIX}kin:{key.kin}") if decision.key.kin == key.kin)
        return (decision for _, decision in zip(range(most), found, strict=False))

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel, read a page at a time."""
        for name in self._kernels(kernel):
            yield from self._members(_of_kernel(name))

    def _kernels(self, kernel: str | None) -> list[str]:
        if kernel is not None:
            return [kernel]
        with self._said("read") as client:
            return sorted(name.decode(errors="replace") for name in client.smembers(f"{PREFIX}kernels"))

    def _members(self, place: str) -> Iterator[Decision]:
        """The decisions whose digests are in a set, each once; digests of those that expired are taken out of it."""
        seen: set[bytes] = set()
        cursor = -1
        while cursor != 0:
            with self._said("read") as client:
                cursor, part = client.sscan(place, max(cursor, 0), count=PAGE)
            fresh = [name for name in dict.fromkeys(part) if name not in seen and _HEX.fullmatch(name)]
            seen.update(fresh)
            values = self._values([name.decode() for name in fresh]) if fresh else []
            if gone := [name for name, value in zip(fresh, values, strict=True) if value is None]:
                with self._said("write to"):
                    self._forget([place], [_decision(""), *gone])
            for name, value in zip(fresh, values, strict=True):
                given = () if value is None else (*opened(value), bytes.fromhex(name.decode()))
                if given and (decision := self._bodies.believed("a decision", read_decision, *given)) is not None:
                    yield decision

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key, as one entry of it."""
        if not trials:
            return
        batch = sealed(wire.dump_journal(trials), bytes.fromhex(key.digest))
        places = [f"{PREFIX}kernels", _journals(key.kernel), _journal(key.digest)]
        with self._said("write to"):
            self._record(places, [key.kernel, key.digest, wire.dump_key(key), batch])

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key, in the order recorded, read some batches at a time."""
        digest, start = bytes.fromhex(key.digest), 0
        while True:
            with self._said("read") as client:
                batches = client.lrange(_journal(key.digest), start, start + BATCHES - 1)
            for batch in batches:
                yield from self._bodies.believed("a batch of trials", _read_trials, *opened(batch), digest) or ()
            if len(batches) < BATCHES:
                return
            start += BATCHES

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        seen: set[Key] = set()
        for decision in self.decisions(kernel):
            seen.add(decision.key)
            yield decision.key
        for name in self._kernels(kernel):
            with self._said("read") as client:
                bodies: dict[bytes, bytes] = client.hgetall(_journals(name))
            for digest, body in bodies.items():
                raw = bytes.fromhex(digest.decode()) if _HEX.fullmatch(digest) else b""
                if (key := self._bodies.believed("a key", read_key, body, raw)) is not None and key not in seen:
                    yield key

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease, or renew it."""
        with self._said("write to"):
            return bool(self._claim([f"{PREFIX}lease:{name}"], [owner, max(1, round(1000 * seconds))]))

    def release(self, name: str, owner: str) -> None:
        """Give the lease back."""
        with self._said("write to"):
            self._release([f"{PREFIX}lease:{name}"], [owner])

    def fetch(self, shelf: str, names: Sequence[str]) -> dict[str, bytes]:
        """What there is under `names` and has not expired."""
        found: dict[str, bytes] = {}
        for part in _pages(names, ASKED_AT_ONCE):
            with self._said("read") as client:
                bodies: list[bytes | None] = client.mget([_on_shelf(shelf) + name for name in part])
            found |= {name: body for name, body in zip(part, bodies, strict=True) if body is not None}
        return found

    def keep(self, shelf: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True) -> bytes:
        """Keep `body`, and return what stands."""
        expiry = 0 if seconds is None else max(1, round(1000 * seconds))
        with self._said("write to"):
            standing = self._keep([_on_shelf(shelf) + name, _order(shelf)], [name, body, expiry, int(replace)])
        return body if standing is None else bytes(standing)

    def entries(self, shelf: str) -> Iterator[tuple[str, bytes]]:
        """Everything on a shelf, oldest first, read a page at a time."""
        after = b"-inf"
        while after:
            with self._said("read"):
                after, names, bodies = self._shelf([_order(shelf)], [_on_shelf(shelf), after, PAGE])
            yield from zip((name.decode() for name in names), bodies, strict=True)

    def clear(self, shelf: str, *, most: int = 0) -> int:
        """Drop the oldest entries until at most `most` are left."""
        if most:
            for _ in self.entries(shelf):
                pass  # which takes the expired ones out, so that those left are counted
        gone, dropped = 0, 1
        while dropped:
            with self._said("write to"):
                dropped, there = self._clear([_order(shelf)], [_on_shelf(shelf), most, PAGE])
            gone += there
        return gone

    def want(self, wants: Sequence[Want]) -> None:
        """Add to what is known of each key, all in one transaction."""
        if not wants:
            return
        with self._said("write to") as client, client.pipeline(transaction=True) as together:
            for want in wants:
                together.hset(f"{PREFIX}wants", want.key.digest, wire.encode(want))
                together.hincrby(f"{PREFIX}wants:calls", want.key.digest, want.calls)
                together.zincrby(f"{PREFIX}wants:seconds", want.seconds, want.key.digest)
            together.execute()

    def wanted(self, kernel: str | None = None) -> Iterator[Want]:
        """What is still undecided, most seconds first, read a page at a time."""
        start, listed = 0, [(b"", 0.0)]
        while listed:
            with self._said("read") as client:
                listed = client.zrevrange(f"{PREFIX}wants:seconds", start, start + PAGE - 1, withscores=True)
                digests = [digest for digest, _ in listed]
                if not digests:
                    return
                bodies = client.hmget(f"{PREFIX}wants", digests)
                calls = client.hmget(f"{PREFIX}wants:calls", digests)
                decided = client.mget([_decision(digest.decode()) for digest in digests])
            start += PAGE
            for (_, seconds), body, count, decision in zip(listed, bodies, calls, decided, strict=True):
                want = None if body is None or decision is not None else _want(body, int(count or 0), seconds)
                if want is not None and kernel in (None, want.key.kernel):
                    yield want

    def invalidations(self, seconds: float = 1.0) -> Iterator[str | None]:
        """Digests of the keys whose decision changes from now on; None after that many seconds of silence.

        For whoever holds decisions in memory and wants to drop those that others replace. What changes while the
        connection is down (then this ends with a StoreError) is not told: listen again, and drop everything.
        """
        with self._said("listen to") as client, client.pubsub(ignore_subscribe_messages=True) as ear:
            ear.subscribe(f"{PREFIX}changes")
            ear.get_message(timeout=seconds)  # the server's word that we are heard from now on
            while True:
                message = ear.get_message(timeout=seconds)
                yield None if message is None else message["data"].decode(errors="replace")


def _decision(digest: str) -> str:
    return f"{PREFIX}decision:{digest}"


def _of_kernel(kernel: str) -> str:
    return f"{PREFIX}kernel:{kernel}"


def _journal(digest: str) -> str:
    return f"{PREFIX}journal:{digest}"


def _journals(kernel: str) -> str:
    return f"{PREFIX}journals:{kernel}"


def _on_shelf(shelf: str) -> str:
    """What the keys of a shelf's entries begin with; its length keeps «a:b», «c» apart from «a», «b:c»."""
    return f"{PREFIX}shelf:{len(shelf)}:{shelf}:"


def _order(shelf: str) -> str:
    return f"{PREFIX}order:{shelf}"


def _read_trials(journal: bytes, sealed: int, digest: bytes) -> Sequence[Trial]:
    """The trials of a batch; a WireError if it is damaged, of another schema, or of another journal."""
    if seal(journal, digest) != sealed:
        raise WireError("its bytes are not those that were written there")
    return wire.load_journal(journal)


def _want(body: bytes, calls: int, seconds: float) -> Want | None:
    try:
        want = wire.decode(body, Want)
    except WireError:
        return None
    return Want(want.key, calls, seconds, want.target, want.recipe)


def _pages(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _shown(location: str) -> str:
    """A location without what must not be read in a log: passwords and options."""
    scheme, mark, rest = location.partition("?")[0].partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
