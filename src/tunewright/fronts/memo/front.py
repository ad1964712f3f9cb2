"""Front: the functions that users hold, and what they can be asked beside being called."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, partial, update_wrapper
from pathlib import Path
from threading import RLock, get_ident
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from tunewright.backends.host import digest, source_of
from tunewright.errors import MemoError, WireError
from tunewright.fronts.memo.call import Shape, Values, never
from tunewright.fronts.memo.flight import Steps, Work, awaited, myself, taken
from tunewright.fronts.memo.places import MISSING, Book, Keeping, Local, Place, Question, Shelved
from tunewright.fronts.memo.trees import UNREADABLE, Arguments, name_of, restored, source
from tunewright.remarks import Remarks
from tunewright.session import current_session
from tunewright.sharing import wire
from tunewright.sharing.offers import Shelves
from tunewright.stores import places
from tunewright.stores.memory import MemoryStore

log = Remarks(__name__)

MOST_NAMES = 4096

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class CacheInfo(NamedTuple):
    """What `functools.lru_cache` also tells; a miss is a call of the function itself."""

    hits: int
    misses: int
    maxsize: int | None
    currsize: int


class Loaded(NamedTuple):
    """What came of loading a file: results taken, and lines passed over."""

    taken: int
    passed_over: int


class Memoised(Protocol[P, R_co]):
    """A function that remembers: called like the one it was made from, as a method too."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def cache_info(self) -> CacheInfo: ...
    def cache_clear(self) -> None: ...
    def dump(self, path: Path | str) -> int: ...
    def load(self, path: Path | str) -> Loaded: ...
    def disabled(self) -> Any: ...
    def fresh(self) -> Any: ...


class Memo:
    """What stands behind a function that remembers."""

    def __init__(self, function: Callable[..., Any], keeping: Keeping, *, persistent: bool) -> None:
        self.function, self.keeping = function, keeping
        self.shape = Shape(function)
        self.arguments = Arguments(keeping.encoders)
        self.book = Book(name_of(function), lambda: self.source, keeping)
        self._checked: Shelves | None = None
        self._names: dict[Hashable, str] = {}
        self._lock, self._elsewhere = RLock(), 0
        bounds = {"expires": keeping.seconds is not None, "bounded": keeping.most is not None}
        answer = self._answer_in_task if self.shape.is_async else self._answer
        self.front = self.shape.front(answer, **bounds)
        self.place: Place = Shelved(self.book, self._store) if persistent else Local(self.book)
        self._earlier_hits = 0
        self._look_here()

    def _look_here(self) -> None:
        """Let the front find what is in this process, unless someone has results kept elsewhere."""
        if isinstance(self.place, Local) and not self._elsewhere:
            entries = self.place.entries
            self.front.look(entries.get, entries.move_to_end)
        else:
            self.front.look(never, never)

    @cached_property
    def source(self) -> str:
        """What must be equal for a stored result to count, besides arguments."""
        given = self.keeping
        says = source(self.function, self.arguments.tree) if given.version is None else f"version {given.version}"
        parts = [given.write, given.read, *given.encoders.values()]
        return digest(says, *(source_of(part) if part else "" for part in parts))

    @cached_property
    def _opened(self) -> Any:
        return places.at(self.keeping.store)

    def _store(self) -> Shelves:
        """The store given, or the session's."""
        store: Any = self.keeping.store
        store = current_session().store if store is None else self._opened if isinstance(store, str) else store
        if self._checked is not None and store is self._checked:
            return self._checked
        if not isinstance(store, Shelves):
            raise MemoError(f"{type(store).__name__} has no shelves; give `store=`, such as a path of a SQLite file")
        checked = self._checked = store  # asking what a store offers takes longer than a look at its shelf
        return checked

    def _question(self, mark: Hashable, values: Values, *, named: bool) -> Question:
        """How a call is looked up. Where all arguments are atoms, their mark says the same as their text."""
        told = partial(self._told, values)
        if named and (name := self._known(mark)) is not None:
            return Question(name, told)
        if not all(type(v) in self.arguments.atoms and _is_told(v) for v in self.shape.leaves(values)):
            text = told()
            return Question(self.book.name(text) if named else text, lambda: text)
        if not named:
            return Question(mark, told)
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        name = self._names[mark] = self.book.name(told())
        return Question(name, told)

    def _known(self, mark: Hashable) -> str | None:
        """The name of a call, if it was made before with these atoms."""
        try:
            return self._names.get(mark)
        except TypeError:
            return None

    def _told(self, values: Values) -> bytes:
        return self.arguments.text(dict(zip(self.shape.names, values, strict=True)))

    def _answer(self, mark: Hashable, values: Values, *, anew: bool = False) -> Any:
        """The result of a call that the front does not know."""
        work = partial(self.shape.call, values)
        place = _places.get().get(self, self.place)
        return work() if place is None else taken(self._steps(place, mark, values, anew=anew), work)

    async def _answer_in_task(self, mark: Hashable, values: Values, *, anew: bool = False) -> Any:
        work = partial(self.shape.call, values)
        place = _places.get().get(self, self.place)
        return await (work() if place is None else awaited(self._steps(place, mark, values, anew=anew), work))

    def _steps(self, place: Place, mark: Hashable, values: Values, *, anew: bool) -> Steps[Any]:
        """How a result is come by: kept, else from a flight under way, else computed."""
        question = self._question(mark, values, named=isinstance(place, Shelved))
        if anew:
            return place.opened((yield from place.computed(question, anew=True)), question)
        found = yield from place.look(question)
        if found is not MISSING:
            place.hits += 1
            return found
        leader = myself(in_task=self.shape.is_async)
        if place.flights.led_by(leader, question.key):  # it cannot wait for itself
            return (yield Work())
        landed, led = yield from place.flights.joined(question.key, leader, partial(place.computed, question))
        place.hits += not led
        return place.opened(landed, question)

    def refresh(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a result again and replace what is kept; for a coroutine function, to be awaited."""
        answer = self._answer_in_task if self.shape.is_async else self._answer
        return answer(*self.front.bind(*args, **kwargs), anew=True)

    def cache_info(self) -> CacheInfo:
        """Hits, misses, bound and size, of the place in use here."""
        place = _places.get().get(self, self.place)
        if place is None:
            return CacheInfo(0, 0, 0, 0)
        hits = place.hits + (self.front.hits() - self._earlier_hits if place is self.place else 0)
        return CacheInfo(hits, place.misses, self.keeping.most, place.size())

    def cache_clear(self) -> None:
        """Forget every result. What is being computed meanwhile is not kept, in this process."""
        place = self._here()
        if place is not self.place:
            place.clear()
            place.hits = place.misses = 0
            return
        with self._lock:
            place.clear()
            self.place = Shelved(self.book, self._store) if isinstance(place, Shelved) else Local(self.book)
            self._earlier_hits = self.front.hits()
            self._look_here()

    def dump(self, path: Path | str) -> int:
        """Write what is kept to a file, a line of JSON for each result; how many there are."""
        lines = list(self._here().lines())
        path = Path(path)
        beside = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}")
        try:
            beside.write_bytes(b"".join(line + b"\n" for line in lines))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        return len(lines)

    def load(self, path: Path | str) -> Loaded:
        """Take the results of a dumped file that are whole and of this function as it is now; what is kept stays."""
        count, total, place = 0, 0, self._here()
        try:
            lines = Path(path).read_bytes().splitlines()
        except OSError as error:
            log.warning("nothing is loaded: %s", error)
            return Loaded(0, 0)
        for total, line in enumerate(lines, 1):  # noqa: B007 - counted
            try:
                arguments, value = self.book.read(line)
                question = self._asked(arguments, named=isinstance(place, Shelved))
            except (WireError, *UNREADABLE) as error:
                log.info("a line of %s is passed over: %s", path, error)
                continue
            place.put(question, line, value)
            count += 1
        return Loaded(count, total - count)

    def _asked(self, arguments: bytes, *, named: bool) -> Question:
        """The question that has these arguments; if they are atoms, it is asked by their mark."""
        if named:
            return Question(self.book.name(arguments), lambda: arguments)
        trees = wire.decode(arguments, dict[str, Any])
        try:
            given, by_name = self.shape.spread(tuple(restored(trees[name]) for name in self.shape.names))
            mark, values = self.front.bind(*given, **by_name)
            if self._told(values) == arguments:
                return self._question(mark, values, named=False)
        except (MemoError, *UNREADABLE):  # such as the digest of an array
            pass
        return Question(arguments, lambda: arguments)

    def _here(self) -> Place:
        return _places.get().get(self) or self.place

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Call the function itself within, in this thread or task; nothing is looked up, kept or counted."""
        with self._keeping_at(None):
            yield

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Keep results in an empty cache of its own within, in this thread or task, and forget it after."""
        scratch: Place = Local(self.book)
        if isinstance(self.place, Shelved):
            store = MemoryStore()
            scratch = Shelved(self.book, lambda: store)
        with self._keeping_at(scratch):
            yield

    @contextmanager
    def _keeping_at(self, place: Place | None) -> Iterator[None]:
        with self._lock:
            self._elsewhere += 1
            self._look_here()
        token = _places.set({**_places.get(), self: place})
        try:
            yield
        finally:
            _places.reset(token)
            with self._lock:
                self._elsewhere -= 1
                self._look_here()


_places: ContextVar[Mapping[Memo, Place | None]] = ContextVar("tunewright memo places", default=MappingProxyType({}))


def _is_told(value: Any) -> bool:
    """Whether an atom equals itself alone: zeros have two signs, and what is not a number equals nothing."""
    return type(value) is not float or (value == value and value != 0.0)  # noqa: PLR0124


@overload
def memo(function: Callable[P, R], /) -> Memoised[P, R]: ...
@overload
def memo(**said: Any) -> Callable[[Callable[P, R]], Memoised[P, R]]: ...
def memo(function: Callable[..., Any] | None = None, /, **said: Any) -> Any:
    """Make a function remember its results in this process: `@memo` or `@memo(most=100)`; see Keeping for all parts.

    Arguments count by value: `f(1, b=2)` is `f(b=2, a=1)`, and 1, 1.0 and True differ. Coroutine functions are
    remembered by what they return. Of threads and tasks that need one result at a time one computes it.
    """
    return _decorated(function, said, persistent=False)


@overload
def persistent_memo(function: Callable[P, R], /) -> Memoised[P, R]: ...
@overload
def persistent_memo(**said: Any) -> Callable[[Callable[P, R]], Memoised[P, R]]: ...
def persistent_memo(function: Callable[..., Any] | None = None, /, **said: Any) -> Any:
    """Make a function remember its results in a store, for all processes that share it: `@persistent_memo`.

    As `memo`; and a result counts while the function's source is the same. Of processes that need one at a time one
    computes it. Put `@memo` above it to have results at hand that this process has seen.
    """
    return _decorated(function, said, persistent=True)


def _decorated(function: Callable[..., Any] | None, said: Mapping[str, Any], *, persistent: bool) -> Any:
    try:
        keeping = Keeping(**said)
    except TypeError as error:
        raise MemoError(f"{error}; memo takes {', '.join(sorted(Keeping.__struct_fields__))}") from error
    if (keeping.seconds is not None and keeping.seconds <= 0) or (keeping.most is not None and keeping.most < 1):
        raise MemoError("`seconds` and `most` are positive; use `with function.disabled():` to remember nothing")
    if keeping.lease <= 0 or (keeping.write is None) != (keeping.read is None):
        raise MemoError("`lease` is positive, and `write` comes with `read`")

    def decorated(function: Callable[..., Any]) -> Any:
        made = Memo(function, keeping, persistent=persistent)
        call = update_wrapper(made.front.call, function)
        for name in ("cache_clear", "cache_info", "disabled", "dump", "fresh", "load", "refresh"):
            setattr(call, name, getattr(made, name))
        return call

    return decorated if function is None else decorated(function)
