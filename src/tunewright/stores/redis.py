"""Redis store: a cache in front of the record of truth, or a small fleet's only store."""

from __future__ import annotations

import re
import secrets
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tunewright.errors import StoreError, WriteRefused
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.plugins import missing
from tunewright.stores import redis_layout as layout
from tunewright.stores import redis_scripts, serialization
from tunewright.stores.capabilities import CHANGING, FillToken
from tunewright.stores.deadline import Deadline
from tunewright.stores.location_text import address_of
from tunewright.stores.records import (
    RecordReader,
    batches,
    read_decision,
    read_key,
    split_checksum,
    with_checksum,
)
from tunewright.stores.redis_layout import PREFIX
from tunewright.stores.redis_log import RedisLog
from tunewright.stores.statistics import MissRecord

TIMEOUT_SECONDS = 1.0
"""Seconds for each command, connecting included."""

KEYS_PER_COMMAND = 10_000
PAGE = 1000
BATCHES_PER_PAGE = 100

_KEY_HEADER = f"\r\n${len(PREFIX) + 73}\r\n{PREFIX}decision:"
"""What precedes each digest in a packed command: the length of the key of a decision, and its beginning."""

_ANYTHING = b"*"
"""Allows a write to replace any value."""

_HEX = re.compile(rb"[0-9a-f]{64}")


class RedisStore(RedisLog):
    """Decisions, trials, leases, namespaces and misses in one Redis (6.2 or later, not a cluster).

    Each command ends after one second, resolving the name of the server and connecting included, however slowly it
    answers; `?socket_timeout=0.2` in the location changes that. Nothing is retried: a failure is a StoreError at once.
    A batch of keys is one MGET, every write one round trip. Acknowledged writes are as safe as the server keeps them:
    `appendonly yes` for a record of truth.

    With `?ttl=3600`, decisions expire after that many seconds: a cache. Every new decision is also published, so that
    processes that hold decisions in memory can listen to `invalidations`.
    """

    def __init__(self, location: str, *, seconds: float | None = None) -> None:
        try:
            import redis  # noqa: PLC0415 - optional; the error names the extra to install
            from redis.backoff import NoBackoff  # noqa: PLC0415 - the same
            from redis.retry import Retry  # noqa: PLC0415 - the same

            from tunewright.stores.redis_connections import CONNECTIONS  # noqa: PLC0415 - the same
        except ImportError as error:
            raise missing("stores", "redis", error) from error
        self.location = address_of(location)
        self._expiry = 0 if seconds is None else max(1, round(1000 * seconds))
        self._errors, self._refusals = (redis.RedisError, OSError), (redis.exceptions.NoPermissionError,)
        self._reader = RecordReader(self.location)
        try:
            # The older protocol needs no handshake: a new connection costs no round trip before its first command.
            self._redis: Any = redis.Redis.from_url(
                location,
                socket_timeout=TIMEOUT_SECONDS,
                socket_connect_timeout=TIMEOUT_SECONDS,
                connection_class=CONNECTIONS.get(location.partition("://")[0], CONNECTIONS["redis"]),
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                driver_info=None,
            )
            pool = self._redis.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # does not connect, but rejects unknown options
            self._seconds = float(pool.connection_kwargs["socket_timeout"])
            weakref.finalize(self, pool.disconnect)
        except (ValueError, TypeError):
            # The message of the library may repeat the password.
            raise StoreError(
                f"{self.location} is not a valid location of a Redis; write redis://:PASSWORD@HOST:PORT/NUMBER, "
                "with %2F for a slash in the password, and options that redis-py has"
            ) from None
        script = self._redis.register_script
        self._put_script, self._forget_script = script(redis_scripts.PUT), script(redis_scripts.FORGET)
        self._fill_script, self._invalidate_script = script(redis_scripts.FILL), script(redis_scripts.INVALIDATE)
        self._record_script = script(redis_scripts.RECORD)
        self._claim_script, self._release_script = script(redis_scripts.CLAIM), script(redis_scripts.RELEASE)
        self._keep_script, self._entries_script = script(redis_scripts.KEEP), script(redis_scripts.ENTRIES)
        self._clear_script, self._put_logged_script = script(redis_scripts.CLEAR), script(redis_scripts.PUT_LOGGED)

    @classmethod
    def at(cls, location: str) -> RedisStore:
        """Opens `redis://HOST:PORT/NUMBER`, `rediss://...` (encrypted) or `unix://PATH`; see above for `ttl`."""
        address, _, query = location.partition("?")
        options = dict(parse_qsl(query))
        ttl = options.pop("ttl", None)
        try:
            seconds = None if ttl is None else float(ttl)
        except ValueError as error:
            raise StoreError(f"ttl={ttl!r} is not a number of seconds, in {address_of(location)}") from error
        return cls(f"{address}?{urlencode(options)}", seconds=seconds)

    @contextmanager
    def _client(self, verb: str) -> Iterator[Any]:
        """Yields the client, for one deadline; its errors become StoreErrors that name the server."""
        try:
            with Deadline(self._seconds):
                yield self._redis
        except self._errors as error:
            raise self._failed(verb, error) from error

    def _failed(self, verb: str, error: Exception) -> StoreError:
        advice = "check that it runs and is reachable, or set another `store`"
        kind = WriteRefused if isinstance(error, self._refusals) else StoreError
        return kind(f"cannot {verb} {self.location}: {str(error) or type(error).__name__}; {advice}")

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        (value,) = self._values([key.digest])
        if value is None:
            return None
        return self._reader.decision(bytes.fromhex(key.digest), *split_checksum(value), key=key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`, in one round trip."""
        decisions: dict[Key, Decision] = {}
        for batch in batches(keys, KEYS_PER_COMMAND):
            digests = [key.digest for key in batch]
            values = self._values(digests)
            found = self._reader.decisions_from_values(list(map(bytes.fromhex, digests)), values, batch)
            decisions = decisions | found if decisions else found
        return decisions

    def _values(self, digests: Sequence[str]) -> list[bytes | None]:
        """Returns the value under each digest; MGET returns None for values that are not strings, and so not ours.

        The command is packed here, by joining keys of one length: `mget` of redis-py 8.1 with hiredis takes 1.7 times
        as long for one key (122 instead of 73 microseconds on the loopback), and 1.4 times for 10,000.
        """
        packed = f"*{len(digests) + 1}\r\n$4\r\nMGET{_KEY_HEADER}{_KEY_HEADER.join(digests)}\r\n".encode()
        pool = self._redis.connection_pool
        try:
            with Deadline(self._seconds):
                connection = pool.get_connection()
                try:
                    connection.send_packed_command([packed])
                    values: list[bytes | None] = connection.read_response()
                finally:
                    pool.release(connection)
        except self._errors as error:
            raise self._failed("read", error) from error
        return values

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored; replacing a damaged one takes two round trips."""
        key, replaceable = decision.key, _ANYTHING if replace else b""
        while True:
            stored = self._put([decision], replaceable)
            if stored is None:
                return decision
            current = self._reader.current(bytes.fromhex(key.digest), *split_checksum(stored), key=key)
            if current is not None:
                return current
            replaceable = stored

    def fill_token(self, keys: Sequence[Key]) -> FillToken:
        """Returns which of the decisions are being changed now, or exist; only the others can be filled."""
        token: FillToken = {}
        for batch in batches(keys, KEYS_PER_COMMAND):
            with self._client("read") as client:
                marks = client.mget([layout.mark_key(key.digest) for key in batch])
            token |= {key.digest: CHANGING for key, mark in zip(batch, marks, strict=True) if mark is not None}
        return token

    def forget(self, keys: Sequence[Key], seconds: float) -> FillToken:
        """Removes decisions that are about to change, in one round trip."""
        token = {key.digest: secrets.token_hex(8) for key in keys}
        names = [name for digest in token for name in (layout.decision_key(digest), layout.mark_key(digest))]
        marks = [text for pair in token.items() for text in pair]
        with self._client("write to"):
            self._invalidate_script(names, [max(1, round(1000 * seconds)), f"{PREFIX}changes", *marks])
        return dict(token)

    def fill(self, decisions: Sequence[Decision], token: FillToken | None = None) -> int:
        """Copies decisions of a slower store, a thousand per round trip; with a token, only those that are absent."""
        filled = 0
        for batch in batches(decisions, PAGE):
            if token is None:
                self._put(batch, _ANYTHING)
                filled += len(batch)
            else:
                filled += self._fill(batch, token)
        return filled

    def _fill(self, decisions: Sequence[Decision], token: FillToken) -> int:
        keys = [f"{PREFIX}kernels"]
        args: list[bytes | str | int] = [self._expiry, f"{PREFIX}changes"]
        for decision in decisions:
            key, digest, mark = decision.key, decision.key.digest, token.get(decision.key.digest, "")
            if not isinstance(mark, str):
                continue
            keys += layout.decision_keys(key)
            keys.append(layout.mark_key(digest))
            body = with_checksum(serialization.dump_decision(decision), bytes.fromhex(digest))
            args += [body, digest, key.kernel, mark]
        with self._client("write to"):
            return int(self._fill_script(keys, args))

    def _put(self, decisions: Sequence[Decision], replaceable: bytes) -> bytes | None:
        """Stores `decisions` where there is nothing or a `replaceable` value; returns the value that is in the way."""
        keys = [f"{PREFIX}kernels"]
        args: list[bytes | str | int] = [self._expiry, replaceable, f"{PREFIX}changes"]
        for decision in decisions:
            key, digest = decision.key, decision.key.digest
            keys += layout.decision_keys(key)
            args += [with_checksum(serialization.dump_decision(decision), bytes.fromhex(digest)), digest, key.kernel]
        with self._client("write to"):
            stored: bytes | None = self._put_script(keys, args)
        return stored

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        decisions = self._members(layout.related_key(key))
        related = (decision for decision in decisions if decision.key.related_digest == key.related_digest)
        return (decision for _, decision in zip(range(limit), related, strict=False))

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel, read page by page."""
        for name in self._kernels(kernel):
            yield from self._members(layout.kernel_key(name))

    def _kernels(self, kernel: str | None) -> list[str]:
        if kernel is not None:
            return [kernel]
        with self._client("read") as client:
            return sorted(name.decode(errors="replace") for name in client.smembers(f"{PREFIX}kernels"))

    def _members(self, index: str) -> Iterator[Decision]:
        """Yields the decisions whose digests are in a set, each once, and removes digests of expired ones from it."""
        seen: set[bytes] = set()
        cursor = -1
        while cursor != 0:
            with self._client("read") as client:
                cursor, page = client.sscan(index, max(cursor, 0), count=PAGE)
            digests = [digest for digest in dict.fromkeys(page) if digest not in seen and _HEX.fullmatch(digest)]
            seen.update(digests)
            values = self._values([digest.decode() for digest in digests]) if digests else []
            if expired := [digest for digest, value in zip(digests, values, strict=True) if value is None]:
                with self._client("write to"):
                    self._forget_script([index], [layout.decision_key(""), *expired])
            for digest, value in zip(digests, values, strict=True):
                record = () if value is None else (*split_checksum(value), bytes.fromhex(digest.decode()))
                if record and (decision := self._reader.read_or_skip("a decision", read_decision, *record)) is not None:
                    yield decision

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key, as one batch."""
        if not trials:
            return
        batch = with_checksum(serialization.dump_journal(trials), bytes.fromhex(key.digest))
        keys = [f"{PREFIX}kernels", layout.journals_key(key.kernel), layout.journal_key(key.digest)]
        with self._client("write to"):
            self._record_script(keys, [key.kernel, key.digest, serialization.dump_key(key), batch])

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key in the order recorded, read some batches at a time."""
        digest, start = bytes.fromhex(key.digest), 0
        while True:
            with self._client("read") as client:
                stored = client.lrange(layout.journal_key(key.digest), start, start + BATCHES_PER_PAGE - 1)
            for batch in stored:
                record = (*split_checksum(batch), digest)
                yield from self._reader.read_or_skip("a batch of trials", layout.read_trials, *record) or ()
            if len(stored) < BATCHES_PER_PAGE:
                return
            start += BATCHES_PER_PAGE

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        seen: set[Key] = set()
        for decision in self.decisions(kernel):
            seen.add(decision.key)
            yield decision.key
        for name in self._kernels(kernel):
            with self._client("read") as client:
                bodies: dict[bytes, bytes] = client.hgetall(layout.journals_key(name))
            for digest, body in bodies.items():
                raw = bytes.fromhex(digest.decode()) if _HEX.fullmatch(digest) else b""
                if (key := self._reader.read_or_skip("a key", read_key, body, raw)) is not None and key not in seen:
                    yield key

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease."""
        with self._client("write to"):
            return bool(self._claim_script([f"{PREFIX}lease:{name}"], [owner, max(1, round(1000 * seconds))]))

    def release(self, name: str, owner: str) -> None:
        """Releases the lease."""
        with self._client("write to"):
            self._release_script([f"{PREFIX}lease:{name}"], [owner])

    def fetch(self, namespace: str, names: Sequence[str]) -> dict[str, bytes]:
        """Returns the entries under `names` that exist and have not expired."""
        entries: dict[str, bytes] = {}
        for batch in batches(names, KEYS_PER_COMMAND):
            with self._client("read") as client:
                bodies: list[bytes | None] = client.mget([layout.entry_prefix(namespace) + name for name in batch])
            entries |= {name: body for name, body in zip(batch, bodies, strict=True) if body is not None}
        return entries

    def keep(
        self, namespace: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True
    ) -> bytes:
        """Stores `body` and returns what is now stored."""
        expiry = 0 if seconds is None else max(1, round(1000 * seconds))
        keys = [layout.entry_prefix(namespace) + name, layout.order_key(namespace)]
        with self._client("write to"):
            stored = self._keep_script(keys, [name, body, expiry, int(replace)])
        return body if stored is None else bytes(stored)

    def entries(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Yields all entries of a namespace, oldest first, read page by page."""
        after = b"-inf"
        while after:
            with self._client("read"):
                after, names, bodies = self._entries_script(
                    [layout.order_key(namespace)], [layout.entry_prefix(namespace), after, PAGE]
                )
            yield from zip((name.decode(errors="replace") for name in names), bodies, strict=True)

    def record_misses(self, misses: Sequence[MissRecord]) -> None:
        """Adds misses to the totals of their keys, in one transaction."""
        if not misses:
            return
        with self._client("write to") as client, client.pipeline(transaction=True) as pipeline:
            for miss in misses:
                pipeline.hset(f"{PREFIX}wants", miss.key.digest, serialization.encode(miss))
                pipeline.hincrby(f"{PREFIX}wants:calls", miss.key.digest, miss.calls)
                pipeline.zincrby(f"{PREFIX}wants:seconds", miss.seconds, miss.key.digest)
            pipeline.execute()

    def misses(self, kernel: str | None = None) -> Iterator[MissRecord]:
        """Yields the keys that are still undecided, most seconds first, read page by page."""
        start = 0
        while True:
            with self._client("read") as client:
                page = client.zrevrange(f"{PREFIX}wants:seconds", start, start + PAGE - 1, withscores=True)
                digests = [digest for digest, _ in page]
                if not digests:
                    return
                bodies = client.hmget(f"{PREFIX}wants", digests)
                calls = client.hmget(f"{PREFIX}wants:calls", digests)
                decisions = client.mget([layout.decision_key(digest.decode(errors="replace")) for digest in digests])
            start += PAGE
            for (digest, seconds), body, count, decision in zip(page, bodies, calls, decisions, strict=True):
                record = (body, digest, count, seconds)
                is_missing = body is not None and decision is None
                miss = self._reader.read_or_skip("a miss", layout.read_miss, *record) if is_missing else None
                if miss is not None and kernel in (None, miss.key.kernel):
                    yield miss

    def invalidations(self, seconds: float = 1.0) -> Iterator[str | None]:
        """Yields the digests of keys whose decision changes from now on; None after `seconds` without a change.

        For processes that hold decisions in memory. Changes while the connection is down (which ends this with a
        StoreError) are lost: then listen again, and drop all decisions.
        """
        try:
            yield from self._listen(seconds)
        except self._errors as error:
            raise self._failed("listen to", error) from error

    def _listen(self, seconds: float) -> Iterator[str | None]:
        with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:
            subscription.subscribe(f"{PREFIX}changes")
            subscription.get_message(timeout=seconds)  # the server's confirmation
            while True:
                message = subscription.get_message(timeout=seconds)
                yield None if message is None else message["data"].decode(errors="replace")
