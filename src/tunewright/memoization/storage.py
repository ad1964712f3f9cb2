"""Storage of memoized results, in this process or in a namespace of a store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import msgspec

from tunewright.backends.host import digest
from tunewright.errors import StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.memoization.canonical import UNREADABLE, Tree, decode_result, encode_result
from tunewright.memoization.singleflight import (
    CallFunction,
    InFlightComputations,
    Steps,
    StoreCall,
    acquire_lease_or_result,
    run_holding_lease,
)
from tunewright.stores import namespaces, serialization
from tunewright.stores.capabilities import KeepsNamespaces, SupportsLeases
from tunewright.stores.leases import Lease

log = LazyLogger(__name__)

SCHEMA = "memo 1"
MISSING: Any = object()


class MemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `memo` and `persistent_memo`; `MemoKeywords` describes them."""

    seconds: float | None = None
    most: int | None = None
    encoders: Mapping[type, Callable[[Any], Any]] = {}
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    version: str | int | None = None
    store: Any = None
    lease: float = 10.0


class CallQuery(NamedTuple):
    """The key under which a call is looked up, and its arguments as they were before the function ran."""

    key: Hashable
    arguments: Callable[[], bytes]


class _Record(msgspec.Struct):
    function: str
    source: str
    arguments: dict[str, Any]
    value: Any


class _Answer(msgspec.Struct):
    value: Any


class _Sealed(msgspec.Struct):
    check: str
    record: msgspec.Raw

    def body(self, name: str) -> bytes:
        """Returns the record; raises WireError if it is damaged or stored under another name."""
        body = bytes(self.record)
        if self.check != _checksum(name, body):
            raise WireError("it is damaged, or belongs to another call")
        return body


def _checksum(name: str, body: bytes) -> str:
    return blake2b(body, digest_size=8, key=name.encode()).hexdigest()


class ResultCodec:
    """Encodes results of one function as lines of JSON, each with its call and a checksum."""

    def __init__(self, function: str, source: Callable[[], str], options: MemoOptions) -> None:
        self.function, self._source, self.options = function, source, options

    def name(self, arguments: bytes) -> str:
        """Returns the name under which the result of a call is stored."""
        return digest(SCHEMA, self.function, self._source(), arguments)

    def encode(self, name: str | None, arguments: bytes, value: Any) -> bytes:
        """Returns a result as a line; raises MemoError if it could not be restored from it."""
        plain = self.options.write(value) if self.options.write else value
        trees = serialization.decode(arguments, dict[str, Any])
        body = serialization.encode(_Record(self.function, self._source(), trees, encode_result(plain)))
        return serialization.encode(_Sealed(_checksum(name or self.name(arguments), body), msgspec.Raw(body)))

    def decode(self, name: str, line: bytes) -> Any:
        """Returns the result in a line stored under `name`, or MISSING if it is damaged or belongs to another call."""
        try:
            return self._decode(serialization.decode(serialization.decode(line, _Sealed).body(name), _Answer).value)
        except (WireError, *UNREADABLE) as error:
            log.warning("skipped a stored result of %s: %s", self.function, error)
            return MISSING

    def decode_call(self, line: bytes) -> tuple[bytes, Any]:
        """Returns the arguments and the result in a line; raises WireError or one of UNREADABLE."""
        sealed = serialization.decode(line, _Sealed)
        record = serialization.decode(bytes(sealed.record), _Record)
        if (record.function, record.source) != (self.function, self._source()):
            raise WireError(f"it belongs to {record.function}, or to another version of it")
        arguments = serialization.encode(record.arguments)
        sealed.body(self.name(arguments))
        return arguments, self._decode(record.value)

    def _decode(self, tree: Tree) -> Any:
        plain = decode_result(tree)
        return self.options.read(plain) if self.options.read else plain


class ResultStore(Protocol):
    """Storage of the results of one function."""

    in_flight: InFlightComputations
    hits: int
    misses: int

    def look_up(self, query: CallQuery) -> Steps[Any]:
        """Returns the stored result of a call, or MISSING."""
        ...

    def compute(self, query: CallQuery, *, refresh: bool = False) -> Steps[Any]:
        """Computes and stores a result, unless one was stored meanwhile; `refresh` computes it in any case."""
        ...

    def unpack(self, computed: Any, query: CallQuery) -> Any:
        """Returns the result in what `compute` returned."""
        ...

    def lines(self) -> Iterator[bytes]:
        """Returns every valid result as a line, oldest first."""
        ...

    def add(self, query: CallQuery, line: bytes, value: Any) -> None:
        """Stores a result that was read from a line, unless there is one."""
        ...

    def clear(self) -> None:
        """Drops all results."""
        ...

    def size(self) -> int:
        """Returns the number of stored results."""
        ...


class CachedResult:
    """A result in this process."""

    __slots__ = ("arguments", "until", "value")

    def __init__(self, value: Any, until: float, arguments: Callable[[], bytes]) -> None:
        self.value, self.until, self.arguments = value, until, arguments


class LocalResults:
    """Results in this process, least recently used first."""

    def __init__(self, codec: ResultCodec) -> None:
        self.codec, self.in_flight, self.hits, self.misses = codec, InFlightComputations(), 0, 0
        self.entries: OrderedDict[Hashable, CachedResult] = OrderedDict()
        self._lock = threading.Lock()

    def look_up(self, query: CallQuery) -> Steps[Any]:
        """Returns the result of a call without waiting."""
        yield from ()
        return self._get(query.key)

    def _get(self, key: Hashable) -> Any:
        with self._lock:
            entry = self.entries.get(key)
            if entry is None:
                return MISSING
            if entry.until <= time.monotonic():
                del self.entries[key]
                return MISSING
            self.entries.move_to_end(key)
            return entry.value

    def compute(self, query: CallQuery, *, refresh: bool = False) -> Steps[Any]:
        """Computes and stores a result."""
        if not refresh and (result := self._get(query.key)) is not MISSING:
            self.hits += 1
            return result
        self.misses += 1
        value = yield CallFunction()
        return self._put(query, value, replace=refresh)

    def _put(self, query: CallQuery, value: Any, *, replace: bool) -> Any:
        """Stores a result, and returns the one that is stored afterwards."""
        options, now = self.codec.options, time.monotonic()
        until = float("inf") if options.seconds is None else now + options.seconds
        with self._lock:
            existing = self.entries.get(query.key)
            if existing is not None and existing.until > now and not replace:
                return existing.value
            self.entries[query.key] = CachedResult(value, until, query.arguments)
            self.entries.move_to_end(query.key)
            while options.most is not None and len(self.entries) > options.most:
                self.entries.popitem(last=False)
        return value

    def unpack(self, computed: Any, query: CallQuery) -> Any:
        """Returns the result unchanged."""
        return computed

    def lines(self) -> Iterator[bytes]:
        """Returns every result that has not expired."""
        with self._lock:
            entries = list(self.entries.values())
        now = time.monotonic()
        return (self.codec.encode(None, entry.arguments(), entry.value) for entry in entries if entry.until > now)

    def add(self, query: CallQuery, line: bytes, value: Any) -> None:
        """Stores the value."""
        self._put(query, value, replace=False)

    def clear(self) -> None:
        """Drops all results."""
        with self._lock:
            self.entries.clear()

    def size(self) -> int:
        """Returns the number of results that have not expired."""
        now = time.monotonic()
        return sum(entry.until > now for entry in list(self.entries.values()))


class PersistentResults:
    """Results in a namespace of a store, shared by processes. If the store fails, the function is called instead."""

    def __init__(self, codec: ResultCodec, store: Callable[[], KeepsNamespaces]) -> None:
        self.codec, self._store, self.hits, self.misses = codec, store, 0, 0
        self.in_flight = InFlightComputations()
        self.namespace = namespaces.MEMO.named(codec.function)
        self._has_warned = False
        self._lease_support: tuple[object, SupportsLeases | None] = None, None

    def look_up(self, query: CallQuery) -> Steps[Any]:
        """Returns the result in the store."""
        line = yield from self._fetch(query)
        return MISSING if line is None else self.codec.decode(str(query.key), line)

    def _fetch(self, query: CallQuery) -> Steps[bytes | None]:
        name = str(query.key)
        try:
            lines: dict[str, bytes] = yield StoreCall(partial(self._store().fetch, self.namespace, [name]))
        except StoreError as error:
            self._log_failure(error)
            return None
        return lines.get(name)

    def _fetch_valid(self, query: CallQuery) -> Steps[bytes | None]:
        """Returns the line in the store, or None if there is none or it is damaged."""
        line = yield from self._fetch(query)
        return line if line is not None and self.codec.decode(str(query.key), line) is not MISSING else None

    def compute(self, query: CallQuery, *, refresh: bool = False) -> Steps[bytes]:
        """Returns the stored line; of all processes that need it, one computes it."""
        store = self._leasing_store()
        if refresh or store is None:
            return (yield from self._compute_here(query, refresh=refresh))
        lease = Lease(store, f"memo {query.key}", self.codec.options.lease)
        try:
            line = yield from acquire_lease_or_result(lease, partial(self._fetch_valid, query))
        except StoreError as error:
            self._log_failure(error)
            return (yield from self._compute_here(query, refresh=refresh))
        if line is not None:
            self.hits += 1
            return line
        return (yield from run_holding_lease(lease, self._compute_here(query, refresh=refresh)))

    def _leasing_store(self) -> SupportsLeases | None:
        """Returns the store if it has leases; remembered, since `isinstance` takes longer than a fetch."""
        store = self._store()
        if self._lease_support[0] is not store:
            self._lease_support = store, store if isinstance(store, SupportsLeases) else None
        return self._lease_support[1]

    def _compute_here(self, query: CallQuery, *, refresh: bool) -> Steps[bytes]:
        """Computes a result in this process, and returns the line that is stored afterwards."""
        self.misses += 1
        arguments, name = query.arguments(), str(query.key)
        value = yield CallFunction()
        line = self.codec.encode(name, arguments, value)
        store, options = self._store(), self.codec.options
        keep = partial(store.keep, self.namespace, name, line, seconds=options.seconds)
        try:
            stored: bytes = yield StoreCall(partial(keep, replace=refresh))
            if stored != line and self.codec.decode(name, stored) is MISSING:
                stored = yield StoreCall(keep)
            if options.most is not None:
                yield StoreCall(partial(store.clear, self.namespace, keep=options.most))
        except StoreError as error:
            self._log_failure(error)
            return line
        return stored

    def unpack(self, computed: Any, query: CallQuery) -> Any:
        """Decodes the result anew for each caller, so that callers do not share a mutable value."""
        return self.codec.decode(str(query.key), computed)

    def lines(self) -> Iterator[bytes]:
        """Returns every valid line of the current version of the function."""
        for name, line in self._store().entries(self.namespace):
            if self.codec.decode(name, line) is not MISSING:
                yield line

    def add(self, query: CallQuery, line: bytes, value: Any) -> None:
        """Stores the line."""
        name, seconds = str(query.key), self.codec.options.seconds
        self._store().keep(self.namespace, name, line, seconds=seconds, replace=False)

    def clear(self) -> None:
        """Clears the namespace, including results of earlier versions of the function."""
        self._store().clear(self.namespace)

    def size(self) -> int:
        """Returns the number of valid results in the store."""
        return sum(1 for _ in self.lines())

    def _log_failure(self, error: StoreError) -> None:
        """Logs a failure of the store: the first as a warning, later ones at debug level."""
        write = log.debug if self._has_warned else log.warning
        self._has_warned = True
        write("%s is computed without its store: %s", self.codec.function, error)
