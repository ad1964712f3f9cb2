"""Places: where results are kept, in this process or on a shelf of a store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import msgspec

from tunewright.backends.host import digest
from tunewright.errors import StoreError, WireError
from tunewright.fronts.memo.flight import Ask, Flights, Steps, Work, held, won
from tunewright.fronts.memo.trees import UNREADABLE, Tree, restored, written
from tunewright.remarks import Remarks
from tunewright.sharing import wire
from tunewright.sharing.leases import Lease
from tunewright.sharing.offers import Leases, Shelves

log = Remarks(__name__)

SCHEMA = "memo 1"
MISSING: Any = object()


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """How results are kept; every part is optional.

    - `seconds`: how long a result counts; by default for ever.
    - `most`: how many are kept; beyond that the least recently used goes, on a shelf the oldest.
    - `encoders`: for types of arguments that are no plain values, what of them counts: `{Engine: lambda e: e.name}`.
    - `write`, `read`: make plain values of a result, and the result of them, where it is none itself.
    - `version`: stands for the function's source, which then does not count; a must for functions without source.
    - `store`: a store or its location, for `persistent_memo`; by default the session's.
    - `lease`: seconds after which a process that computes and does not stir is taken for dead.
    """

    seconds: float | None = None
    most: int | None = None
    encoders: dict[type, Callable[[Any], Any]] = {}
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    version: str | int | None = None
    store: Any = None
    lease: float = 10.0


class Question(NamedTuple):
    """A call as it is looked up; its arguments as they were, whatever the function does to them."""

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
        """The record, if it is whole and stands under that name."""
        body = bytes(self.record)
        if self.check != _check(name, body):
            raise WireError("it is damaged, or answers another call")
        return body


def _check(name: str, body: bytes) -> str:
    return blake2b(body, digest_size=8, key=name.encode()).hexdigest()


class Book:
    """Results of one function as lines of JSON, each with what it answers and a check of both."""

    def __init__(self, function: str, source: Callable[[], str], keeping: Keeping) -> None:
        self.function, self._source, self.keeping = function, source, keeping

    def name(self, arguments: bytes) -> str:
        """What a call is stored under."""
        return digest(SCHEMA, self.function, self._source(), arguments)

    def line(self, name: str | None, arguments: bytes, value: Any) -> bytes:
        """A result as a line; a MemoError if it cannot be written so that it comes back as it is."""
        plain = self.keeping.write(value) if self.keeping.write else value
        told = wire.decode(arguments, dict[str, Any])
        body = wire.encode(_Record(self.function, self._source(), told, written(plain)))
        return wire.encode(_Sealed(_check(name or self.name(arguments), body), msgspec.Raw(body)))

    def value(self, name: str, line: bytes) -> Any:
        """The result in a line stored under `name`; MISSING if it is torn, foreign, or answers something else."""
        try:
            return self._restored(wire.decode(wire.decode(line, _Sealed).body(name), _Answer).value)
        except (WireError, *UNREADABLE) as error:
            log.warning("a result of %s is passed over: %s", self.function, error)
            return MISSING

    def read(self, line: bytes) -> tuple[bytes, Any]:
        """The arguments and the result in a line; a WireError or one of UNREADABLE if they are not there."""
        sealed = wire.decode(line, _Sealed)
        record = wire.decode(bytes(sealed.record), _Record)
        if (record.function, record.source) != (self.function, self._source()):
            raise WireError(f"it is of {record.function}, or of another version of it")
        arguments = wire.encode(record.arguments)
        sealed.body(self.name(arguments))
        return arguments, self._restored(record.value)

    def _restored(self, tree: Tree) -> Any:
        plain = restored(tree)
        return self.keeping.read(plain) if self.keeping.read else plain


class Place(Protocol):
    """Where the results of one function are kept. A landed result is opened by each who takes it."""

    flights: Flights
    hits: int
    misses: int

    def look(self, question: Question) -> Steps[Any]:
        """The result kept for a call, or MISSING."""
        ...

    def computed(self, question: Question, *, anew: bool = False) -> Steps[Any]:
        """The result, kept meanwhile by someone, or computed and kept; `anew`: computed in any case."""
        ...

    def opened(self, landed: Any, question: Question) -> Any:
        """The result in what `computed` came to."""
        ...

    def lines(self) -> Iterator[bytes]:
        """Everything that counts, as lines, oldest first."""
        ...

    def put(self, question: Question, line: bytes, value: Any) -> None:
        """Keep what was read from a line, unless there is something."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def size(self) -> int:
        """How many results are kept."""
        ...


class Entry:
    """A result in this process."""

    __slots__ = ("arguments", "until", "value")

    def __init__(self, value: Any, until: float, arguments: Callable[[], bytes]) -> None:
        self.value, self.until, self.arguments = value, until, arguments


class Local:
    """Results in this process, the least recently used first."""

    def __init__(self, book: Book) -> None:
        self.book, self.flights, self.hits, self.misses = book, Flights(), 0, 0
        self.entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, question: Question) -> Steps[Any]:
        """The result kept for a call; in this process there is nothing to wait for."""
        yield from ()
        return self._found(question.key)

    def _found(self, key: Hashable) -> Any:
        with self._lock:
            entry = self.entries.get(key)
            if entry is None:
                return MISSING
            if entry.until <= time.monotonic():
                del self.entries[key]
                return MISSING
            self.entries.move_to_end(key)
            return entry.value

    def computed(self, question: Question, *, anew: bool = False) -> Steps[Any]:
        """The result, kept."""
        if not anew and (found := self._found(question.key)) is not MISSING:
            self.hits += 1
            return found
        self.misses += 1
        value = yield Work()
        return self._keep(question, value, replace=anew)

    def _keep(self, question: Question, value: Any, *, replace: bool) -> Any:
        """Keep a result, and return the one that stands."""
        keeping, now = self.book.keeping, time.monotonic()
        until = float("inf") if keeping.seconds is None else now + keeping.seconds
        with self._lock:
            stood = self.entries.get(question.key)
            if stood is not None and stood.until > now and not replace:
                return stood.value
            self.entries[question.key] = Entry(value, until, question.arguments)
            self.entries.move_to_end(question.key)
            while keeping.most is not None and len(self.entries) > keeping.most:
                self.entries.popitem(last=False)
        return value

    def opened(self, landed: Any, question: Question) -> Any:
        """The result itself."""
        return landed

    def lines(self) -> Iterator[bytes]:
        """Everything that has not expired."""
        with self._lock:
            entries = list(self.entries.values())
        now = time.monotonic()
        return (self.book.line(None, entry.arguments(), entry.value) for entry in entries if entry.until > now)

    def put(self, question: Question, line: bytes, value: Any) -> None:
        """Keep the value."""
        self._keep(question, value, replace=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self.entries.clear()

    def size(self) -> int:
        """How many results are kept."""
        now = time.monotonic()
        return sum(entry.until > now for entry in list(self.entries.values()))


class Shelved:
    """Results on a shelf of a store, shared by processes. A store that fails is passed over: the function computes."""

    def __init__(self, book: Book, store: Callable[[], Shelves]) -> None:
        self.book, self._store, self.flights, self.hits, self.misses = book, store, Flights(), 0, 0
        self.shelf = f"memo {book.function}"
        self._said = False
        self._asked: tuple[object, Leases | None] = None, None

    def look(self, question: Question) -> Steps[Any]:
        """The result on the shelf."""
        line = yield from self._fetched(question)
        return MISSING if line is None else self.book.value(str(question.key), line)

    def _fetched(self, question: Question) -> Steps[bytes | None]:
        name = str(question.key)
        try:
            found: dict[str, bytes] = yield Ask(partial(self._store().fetch, self.shelf, [name]))
        except StoreError as error:
            self._skipped(error)
            return None
        return found.get(name)

    def _whole(self, question: Question) -> Steps[bytes | None]:
        """The line on the shelf, if it can be believed."""
        line = yield from self._fetched(question)
        return line if line is not None and self.book.value(str(question.key), line) is not MISSING else None

    def computed(self, question: Question, *, anew: bool = False) -> Steps[bytes]:
        """The line that stands: of all processes that need it one computes it."""
        leases = self._leases()
        if anew or leases is None:
            return (yield from self._made(question, anew=anew))
        lease = Lease(leases, f"memo {question.key}", self.book.keeping.lease)
        try:
            found = yield from won(lease, partial(self._whole, question))
        except StoreError as error:
            self._skipped(error)
            return (yield from self._made(question, anew=anew))
        if found is not None:
            self.hits += 1
            return found
        return (yield from held(lease, self._made(question, anew=anew)))

    def _leases(self) -> Leases | None:
        """The store, if it also offers leases; asking that takes longer than a look at its shelf."""
        store = self._store()
        if self._asked[0] is not store:
            self._asked = store, store if isinstance(store, Leases) else None
        return self._asked[1]

    def _made(self, question: Question, *, anew: bool) -> Steps[bytes]:
        """The line of a result computed here, kept unless another stands."""
        self.misses += 1
        arguments, name = question.arguments(), str(question.key)
        value = yield Work()
        line = self.book.line(name, arguments, value)
        store, keeping = self._store(), self.book.keeping
        keep = partial(store.keep, self.shelf, name, line, seconds=keeping.seconds)
        try:
            stands: bytes = yield Ask(partial(keep, replace=anew))
            if stands != line and self.book.value(name, stands) is MISSING:
                stands = yield Ask(keep)
            if keeping.most is not None:
                yield Ask(partial(store.clear, self.shelf, most=keeping.most))
        except StoreError as error:
            self._skipped(error)
            return line
        return stands

    def opened(self, landed: Any, question: Question) -> Any:
        """The result in a line: each who takes it has one of his own."""
        return self.book.value(str(question.key), landed)

    def lines(self) -> Iterator[bytes]:
        """Every line that is whole and of this function as it is now."""
        for name, line in self._store().entries(self.shelf):
            if self.book.value(name, line) is not MISSING:
                yield line

    def put(self, question: Question, line: bytes, value: Any) -> None:
        """Keep the line."""
        name, seconds = str(question.key), self.book.keeping.seconds
        self._store().keep(self.shelf, name, line, seconds=seconds, replace=False)

    def clear(self) -> None:
        """Clear the shelf, of earlier versions of the function too."""
        self._store().clear(self.shelf)

    def size(self) -> int:
        """How many results are on the shelf."""
        return sum(1 for _ in self.lines())

    def _skipped(self, error: StoreError) -> None:
        """Say that the store fails: aloud once, then for those who listen closely."""
        say = log.debug if self._said else log.warning
        self._said = True
        say("%s computes without its store: %s", self.book.function, error)
