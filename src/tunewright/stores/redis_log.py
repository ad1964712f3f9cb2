"""Entries of a Redis store: how they are removed, and logs, which grow together with the decisions they record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tunewright.model.decision import Decision
from tunewright.stores import redis_layout as layout
from tunewright.stores import serialization
from tunewright.stores.records import RecordReader, batches, split_checksum, with_checksum
from tunewright.stores.statistics import LogEntry

PAGE = 1000


class RedisLog:
    """The part of `RedisStore` that keeps logs and removes entries."""

    _client: Callable[[str], AbstractContextManager[Any]]
    _values: Callable[[Sequence[str]], list[bytes | None]]
    _reader: RecordReader
    _expiry: int
    _put_logged_script: Any
    _clear_script: Any
    entries: Callable[[str], Iterator[tuple[str, bytes]]]

    def put_logged(self, decision: Decision, over: Decision | None, entry: LogEntry) -> bool:
        """Stores `decision` in place of `over` and appends `entry`, in one script."""
        key, digest = decision.key, decision.key.digest
        (stored,) = self._values([digest])
        found = () if stored is None else split_checksum(stored)
        current = self._reader.decision(bytes.fromhex(digest), *found, key=key) if found else None
        if current != over:
            return False
        keys = [f"{layout.PREFIX}kernels", *layout.decision_keys(key), layout.entry_prefix(entry.log) + entry.name]
        body = with_checksum(serialization.dump_decision(decision), bytes.fromhex(digest))
        args: list[bytes | str | int] = [self._expiry, stored or b"", f"{layout.PREFIX}changes"]
        args += [body, digest, key.kernel, *entry[1:]]
        with self._client("write to"):
            return bool(self._put_logged_script([*keys, layout.order_key(entry.log)], args))

    def last_entry(self, log: str) -> tuple[str, bytes] | None:
        """Returns the last entry of a log."""
        with self._client("read") as client:
            for name in client.zrange(layout.order_key(log), -1, -1):
                body = client.get(layout.entry_prefix(log).encode() + name)
                return name.decode(errors="replace"), body or b""
        return None

    def drop_entries(self, namespace: str, names: Sequence[str]) -> None:
        """Removes the entries under `names`, in one transaction for each thousand."""
        for batch in batches(names, PAGE):
            with self._client("write to") as client, client.pipeline(transaction=True) as pipeline:
                pipeline.zrem(layout.order_key(namespace), *batch)
                pipeline.unlink(*(layout.entry_prefix(namespace) + name for name in batch))
                pipeline.execute()

    def clear(self, namespace: str, *, keep: int = 0) -> int:
        """Removes all but the newest `keep` entries and returns how many were removed."""
        if keep:
            for _ in self.entries(namespace):
                pass  # removes expired entries, so that only the others are counted
        total, popped = 0, 1
        while popped:
            with self._client("write to"):
                popped, removed = self._clear_script(
                    [layout.order_key(namespace)], [layout.entry_prefix(namespace), keep, PAGE]
                )
            total += removed
        return total
