"""The decorators `memo` and `persistent_memo`, and the methods of a memoized function."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cached_property, partial, update_wrapper
from pathlib import Path
from threading import RLock, get_ident
from types import MappingProxyType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from tunewright.backends.host import digest, function_digest
from tunewright.errors import MemoError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.memoization.call import FunctionBinder, Values, find_nothing
from tunewright.memoization.canonical import UNREADABLE, ArgumentEncoder, decode_result, function_name, source_digest
from tunewright.memoization.singleflight import CallFunction, Steps, current_caller, run_steps, run_steps_async
from tunewright.memoization.storage import (
    MISSING,
    CallQuery,
    LocalResults,
    MemoOptions,
    PersistentResults,
    ResultCodec,
    ResultStore,
)
from tunewright.session import current_session
from tunewright.stores import locations, serialization
from tunewright.stores.capabilities import KeepsNamespaces
from tunewright.stores.memory import MemoryStore

log = LazyLogger(__name__)

MAX_NAMES = 4096
"""Names of calls that are remembered for each function."""

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)


class MemoKeywords(TypedDict, total=False):
    """The keyword parameters of `memo` and `persistent_memo`; all are optional."""

    seconds: float | None
    """How long a result is valid; by default for ever."""
    most: int | None
    """How many results are kept; beyond it the least recently used is dropped, in a store the oldest."""
    encoders: Mapping[type, Callable[[Any], Any]]
    """For argument types that are not plain values, the part that counts: `{Engine: lambda engine: engine.name}`."""
    write: Callable[[Any], Any] | None
    """Turns a result that is not a plain value into plain values."""
    read: Callable[[Any], Any] | None
    """Turns the plain values into the result."""
    version: str | int | None
    """Replaces the source of the function in keys; required for functions without source."""
    store: Any
    """A store or its location, for `persistent_memo`; by default the store of the session."""
    lease: float
    """Seconds after which a process that computes and gives no sign of life is replaced."""


class CacheInfo(NamedTuple):
    """Counts as in `functools.lru_cache`; a miss is a call of the function itself."""

    hits: int
    misses: int
    maxsize: int | None
    currsize: int


class LoadResult(NamedTuple):
    """How many results `load` took from a file, and how many lines it skipped."""

    taken: int
    passed_over: int


class Memoized(Protocol[P, R_co]):
    """A memoized function: it is called like the function it wraps, as a method too."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __get__(self, instance: None, owner: Any = None, /) -> Self: ...
    @overload
    def __get__(self: Memoized[Concatenate[S, Q], R], instance: S, owner: Any = None, /) -> Callable[Q, R]: ...
    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def cache_info(self) -> CacheInfo: ...
    def cache_clear(self) -> None: ...
    def dump(self, path: Path | str) -> int: ...
    def load(self, path: Path | str) -> LoadResult: ...
    def disabled(self) -> AbstractContextManager[None]: ...
    def fresh(self) -> AbstractContextManager[None]: ...


class MemoDecorator(Protocol):
    """What `memo(...)` and `persistent_memo(...)` return: it keeps the signature of the function."""

    def __call__(self, function: Callable[P, R], /) -> Memoized[P, R]: ...


class Memo:
    """The cache behind a memoized function."""

    def __init__(self, function: Callable[..., Any], options: MemoOptions, *, persistent: bool) -> None:
        self.function, self.options = function, options
        self.binder = FunctionBinder(function)
        self.encoder = ArgumentEncoder(options.encoders)
        self.codec = ResultCodec(function_name(function), lambda: self.source, options)
        self._checked_store: KeepsNamespaces | None = None
        self._names: dict[Hashable, str] = {}
        self._lock, self._overrides = RLock(), 0
        bounds = {"expires": options.seconds is not None, "bounded": options.most is not None}
        on_miss = self._on_miss_async if self.binder.is_async else self._on_miss
        self.wrapper = self.binder.generate_wrapper(on_miss, **bounds)
        self.results: ResultStore = (
            PersistentResults(self.codec, self._store) if persistent else LocalResults(self.codec)
        )
        self._cleared_hits = 0
        self._set_lookup()

    def _set_lookup(self) -> None:
        """Lets the wrapper look up local results directly, unless `disabled` or `fresh` is active somewhere."""
        if isinstance(self.results, LocalResults) and not self._overrides:
            entries = self.results.entries
            self.wrapper.set_lookup(entries.get, entries.move_to_end)
        else:
            self.wrapper.set_lookup(find_nothing, find_nothing)

    @cached_property
    def source(self) -> str:
        """The digest that must be equal, besides the arguments, for a stored result to be valid."""
        options = self.options
        version = (
            source_digest(self.function, self.encoder.tree) if options.version is None else f"version {options.version}"
        )
        functions = [options.write, options.read, *options.encoders.values()]
        return digest(version, *(function_digest(function) if function else "" for function in functions))

    @cached_property
    def _opened_store(self) -> Any:
        return locations.open_single(self.options.store)

    def _store(self) -> KeepsNamespaces:
        """Returns the store of the options, or that of the session."""
        store: Any = self.options.store
        store = current_session().store if store is None else self._opened_store if isinstance(store, str) else store
        if self._checked_store is not None and store is self._checked_store:
            return self._checked_store
        if not isinstance(store, KeepsNamespaces):
            raise MemoError(f"{type(store).__name__} cannot store results; give `store=`, such as a SQLite file")
        checked = self._checked_store = store  # remembered, since `isinstance` takes longer than a fetch
        return checked

    def _query(self, key: Hashable, values: Values, *, named: bool) -> CallQuery:
        """Returns how a call is looked up; if all arguments are atoms, `key` identifies it as well as their text."""
        text_of = partial(self._argument_text, values)
        if named and (name := self._known_name(key)) is not None:
            return CallQuery(name, text_of)
        if not all(type(v) in self.encoder.atoms and _equals_only_itself(v) for v in self.binder.leaves(values)):
            text = text_of()
            return CallQuery(self.codec.name(text) if named else text, lambda: text)
        if not named:
            return CallQuery(key, text_of)
        if len(self._names) >= MAX_NAMES:
            self._names.clear()
        name = self._names[key] = self.codec.name(text_of())
        return CallQuery(name, text_of)

    def _known_name(self, key: Hashable) -> str | None:
        """Returns the name of a call that was made before with these atoms."""
        try:
            return self._names.get(key)
        except TypeError:
            return None

    def _argument_text(self, values: Values) -> bytes:
        return self.encoder.text(dict(zip(self.binder.names, values, strict=True)))

    def _on_miss(self, key: Hashable, values: Values, *, refresh: bool = False) -> Any:
        """Returns the result of a call that the wrapper has not found."""
        call = partial(self.binder.call, values)
        results = _overriding_results.get().get(self, self.results)
        return call() if results is None else run_steps(self._steps(results, key, values, refresh=refresh), call)

    async def _on_miss_async(self, key: Hashable, values: Values, *, refresh: bool = False) -> Any:
        call = partial(self.binder.call, values)
        results = _overriding_results.get().get(self, self.results)
        if results is None:
            return await call()
        return await run_steps_async(self._steps(results, key, values, refresh=refresh), call)

    def _steps(self, results: ResultStore, key: Hashable, values: Values, *, refresh: bool) -> Steps[Any]:
        """Returns the result of a call: stored, from a computation in flight, or computed."""
        query = self._query(key, values, named=isinstance(results, PersistentResults))
        if refresh:
            return results.unpack((yield from results.compute(query, refresh=True)), query)
        result = yield from results.look_up(query)
        if result is not MISSING:
            results.hits += 1
            return result
        caller = current_caller(in_task=self.binder.is_async)
        if results.in_flight.is_led_by(caller, query.key):  # a recursive call cannot wait for itself
            return (yield CallFunction())
        computed, is_leader = yield from results.in_flight.join(query.key, caller, partial(results.compute, query))
        results.hits += not is_leader
        return results.unpack(computed, query)

    def refresh(self, *args: Any, **kwargs: Any) -> Any:
        """Computes a result again and replaces the stored one; of a coroutine function, returns an awaitable."""
        on_miss = self._on_miss_async if self.binder.is_async else self._on_miss
        return on_miss(*self.wrapper.bind(*args, **kwargs), refresh=True)

    def cache_info(self) -> CacheInfo:
        """Returns hits, misses, bound and size of the cache in use here."""
        results = _overriding_results.get().get(self, self.results)
        if results is None:
            return CacheInfo(0, 0, 0, 0)
        hits = results.hits + (self.wrapper.hits() - self._cleared_hits if results is self.results else 0)
        return CacheInfo(hits, results.misses, self.options.most, results.size())

    def cache_clear(self) -> None:
        """Drops every result and resets the counts; local results that are being computed are not kept."""
        results = self._current_results()
        if results is not self.results:
            results.clear()
            results.hits = results.misses = 0
            return
        with self._lock:
            results.clear()
            is_persistent = isinstance(results, PersistentResults)
            self.results = PersistentResults(self.codec, self._store) if is_persistent else LocalResults(self.codec)
            self._cleared_hits = self.wrapper.hits()
            self._set_lookup()

    def dump(self, path: Path | str) -> int:
        """Writes all results to a file, one line of JSON each, and returns their number."""
        lines = list(self._current_results().lines())
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}")
        try:
            temporary.write_bytes(b"".join(line + b"\n" for line in lines))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return len(lines)

    def load(self, path: Path | str) -> LoadResult:
        """Adds the valid results of a dumped file that belong to this version of the function."""
        count, total, results = 0, 0, self._current_results()
        try:
            lines = Path(path).read_bytes().splitlines()
        except OSError as error:
            log.warning("cannot load results: %s", error)
            return LoadResult(0, 0)
        for total, line in enumerate(lines, 1):  # noqa: B007 - counted
            try:
                arguments, value = self.codec.decode_call(line)
                query = self._stored_query(arguments, named=isinstance(results, PersistentResults))
            except (WireError, *UNREADABLE) as error:
                log.info("skipped a line of %s: %s", path, error)
                continue
            results.add(query, line, value)
            count += 1
        return LoadResult(count, total - count)

    def _stored_query(self, arguments: bytes, *, named: bool) -> CallQuery:
        """Returns the query of a call that was stored with these arguments."""
        if named:
            return CallQuery(self.codec.name(arguments), lambda: arguments)
        trees = serialization.decode(arguments, dict[str, Any])
        try:
            args, kwargs = self.binder.to_call_arguments(
                tuple(decode_result(trees[name]) for name in self.binder.names)
            )
            key, values = self.wrapper.bind(*args, **kwargs)
            if self._argument_text(values) == arguments:
                return self._query(key, values, named=False)
        except (MemoError, *UNREADABLE):  # for example, the digest of an array
            pass
        return CallQuery(arguments, lambda: arguments)

    def _current_results(self) -> ResultStore:
        return _overriding_results.get().get(self) or self.results

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Within it, in this thread or task, calls go to the function: nothing is looked up, stored or counted."""
        with self._override_results(None):
            yield

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Within it, in this thread or task, results go to an empty cache that is dropped afterwards."""
        scratch: ResultStore = LocalResults(self.codec)
        if isinstance(self.results, PersistentResults):
            store = MemoryStore()
            scratch = PersistentResults(self.codec, lambda: store)
        with self._override_results(scratch):
            yield

    @contextmanager
    def _override_results(self, results: ResultStore | None) -> Iterator[None]:
        with self._lock:
            self._overrides += 1
            self._set_lookup()
        token = _overriding_results.set({**_overriding_results.get(), self: results})
        try:
            yield
        finally:
            _overriding_results.reset(token)
            with self._lock:
                self._overrides -= 1
                self._set_lookup()


_overriding_results: ContextVar[Mapping[Memo, ResultStore | None]] = ContextVar(
    "tunewright memo results", default=MappingProxyType({})
)


def _equals_only_itself(value: Any) -> bool:
    """Whether `==` identifies an atom: 0.0 equals -0.0, and NaN does not equal itself."""
    return type(value) is not float or (value == value and value != 0.0)  # noqa: PLR0124


@overload
def memo(function: Callable[P, R], /) -> Memoized[P, R]: ...
@overload
def memo(**options: Unpack[MemoKeywords]) -> MemoDecorator: ...
def memo(function: Callable[..., Any] | None = None, /, **options: Unpack[MemoKeywords]) -> Any:
    """Makes a function remember its results in this process.

    Arguments are compared by value: `f(1, b=2)` is `f(b=2, a=1)`, and 1, 1.0 and True differ. Of threads and tasks
    that need the same result, one computes it. A coroutine function remembers what it returns.

    Example:
        >>> import tunewright
        >>> @tunewright.memo(most=100)
        ... def square(x: int) -> int:
        ...     return x * x
        >>> square(3), square(3), square.cache_info().hits
        (9, 9, 1)
    """
    return _decorate(function, options, persistent=False)


@overload
def persistent_memo(function: Callable[P, R], /) -> Memoized[P, R]: ...
@overload
def persistent_memo(**options: Unpack[MemoKeywords]) -> MemoDecorator: ...
def persistent_memo(function: Callable[..., Any] | None = None, /, **options: Unpack[MemoKeywords]) -> Any:
    """Makes a function remember its results in a store, for all processes that share it.

    It works like `memo`; a stored result is valid while the source of the function is the same. Of processes that
    need the same result, one computes it. Put `@memo` above it to keep results of this process at hand.

    Example:
        >>> import tunewright
        >>> @tunewright.persistent_memo(store="memory:", version=1)
        ... def cube(x: int) -> int:
        ...     return x ** 3
        >>> cube(3), cube(3), cube.cache_info().hits
        (27, 27, 1)
    """
    return _decorate(function, options, persistent=True)


def _decorate(function: Callable[..., Any] | None, keywords: Mapping[str, Any], *, persistent: bool) -> Any:
    try:
        options = MemoOptions(**keywords)
    except TypeError as error:
        raise MemoError(f"{error}; memo takes {', '.join(sorted(MemoOptions.__struct_fields__))}") from error
    if (options.seconds is not None and options.seconds <= 0) or (options.most is not None and options.most < 1):
        raise MemoError("`seconds` and `most` must be positive; to store nothing, use `with function.disabled():`")
    if options.lease <= 0 or (options.write is None) != (options.read is None):
        raise MemoError("`lease` must be positive, and `write` and `read` must be given together")

    def decorate(function: Callable[..., Any]) -> Any:
        memoized = Memo(function, options, persistent=persistent)
        wrapper = update_wrapper(memoized.wrapper.call, function)
        for name in ("cache_clear", "cache_info", "disabled", "dump", "fresh", "load", "refresh"):
            setattr(wrapper, name, getattr(memoized, name))
        return wrapper

    return decorate if function is None else decorate(function)
