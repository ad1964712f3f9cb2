"""Argument binding of a memoized function, and the wrapper that is generated for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from time import monotonic
from types import CoroutineType, GeneratorType
from typing import Any, NamedTuple

from tunewright.errors import MemoError

Lookup = Callable[[Hashable], Any]
Values = tuple[Any, ...]

_Kind = inspect.Parameter
_TOUCH = """try:
            _tunewright_touch(_tunewright_key)
        except KeyError:
            pass  # another thread has just evicted it"""
# Prefixed in the generated code, because a parameter may be called `type` or `tuple`.
_WRAPPER_GLOBALS: dict[str, Any] = {"type": type, "tuple": tuple, "map": map, "sorted": sorted, "now": monotonic}
_WRAPPER_SOURCE = """
def _tunewright_make(_tunewright_get, _tunewright_touch, _tunewright_on_miss):
    _tunewright_hits = 0

    {async_}def _tunewright_wrapper({parameters}):
        nonlocal _tunewright_hits
        {sort_kwargs}
        _tunewright_key = {key}
        try:
            _tunewright_entry = _tunewright_get(_tunewright_key)
        except TypeError:
            _tunewright_entry = None
        if _tunewright_entry is None{expired}:
            return {await_}_tunewright_on_miss(_tunewright_key, {values})
        {touch}
        _tunewright_hits += 1
        return _tunewright_entry.value

    def _tunewright_set_lookup(get, touch):
        nonlocal _tunewright_get, _tunewright_touch
        _tunewright_get, _tunewright_touch = get, touch

    def _tunewright_bind({parameters}):
        {sort_kwargs}
        return {key}, {values}

    return _tunewright_wrapper, _tunewright_set_lookup, _tunewright_bind, lambda: _tunewright_hits
"""


class GeneratedWrapper(NamedTuple):
    """A generated wrapper, with the functions that control it."""

    call: Callable[..., Any]
    set_lookup: Callable[[Lookup, Callable[[Hashable], None]], None]
    """Sets where the wrapper looks for cached results, and how it marks one as recently used."""
    bind: Callable[..., tuple[Hashable, Values]]
    """Returns the key of a call, and its arguments in the order of the parameters, with defaults applied."""
    hits: Callable[[], int]


class FunctionBinder:
    """Binds calls to the parameters of a function, and generates its wrapper."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        if not callable(function) or not hasattr(function, "__qualname__"):
            raise MemoError("memo takes a function; put @memo below @staticmethod, @classmethod and @property")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise MemoError(f"{function.__qualname__} is a generator, which can be read only once; return a list")
        try:
            self.parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError) as error:
            raise MemoError(f"{function.__qualname__} has no signature; wrap it in a function that has one") from error
        self.names = [parameter.name for parameter in self.parameters]

    def to_call_arguments(self, values: Values) -> tuple[list[Any], dict[str, Any]]:
        """Returns the positional and keyword arguments that call the function with `values`."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.kind is _Kind.VAR_POSITIONAL:
                args.extend(value)
            elif parameter.kind is _Kind.VAR_KEYWORD:
                kwargs |= value
            elif parameter.kind is _Kind.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return args, kwargs

    def call(self, values: Values) -> Any:
        """Calls the function; a coroutine function returns an awaitable."""
        args, kwargs = self.to_call_arguments(values)
        result = self.function(*args, **kwargs)
        if isinstance(result, GeneratorType | CoroutineType) and not self.is_async:
            result.close()
            raise MemoError(
                f"{self.function.__qualname__} returned a {type(result).__name__}, which can be used only once; "
                f"return its result, or declare the function `async def`"
            )
        return result

    def leaves(self, values: Values) -> Iterator[Any]:
        """Yields every argument, including those inside `*args` and `**kwargs`."""
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.kind is _Kind.VAR_POSITIONAL:
                yield from value
            elif parameter.kind is _Kind.VAR_KEYWORD:
                yield from value.values()
            else:
                yield value

    def generate_wrapper(
        self, on_miss: Callable[[Hashable, Values], Any], *, expires: bool, bounded: bool
    ) -> GeneratedWrapper:
        """Generates the function that users call: it looks up the arguments and their types, or calls `on_miss`.

        It is a plain function, generated as `namedtuple` generates its methods, so that it also works as a method.
        Types come first in a key, so that values of different types are never compared.
        """
        scope = {f"_tunewright_{name}": value for name, value in _WRAPPER_GLOBALS.items()} | {"__name__": __name__}
        kwargs = next((p.name for p in self.parameters if p.kind is _Kind.VAR_KEYWORD), None)
        keywords = {"async_": "async ", "await_": "await "} if self.is_async else {"async_": "", "await_": ""}
        text = _WRAPPER_SOURCE.format(
            **keywords,
            parameters=", ".join(self._parameter_list(scope)),
            sort_kwargs=(
                f"_tunewright_kwargs = _tunewright_tuple(_tunewright_sorted({kwargs}.items())) if {kwargs} else ()"
                if kwargs
                else ""
            ),
            key=_tuple([*map(_type_expression, self.parameters), *map(_value_expression, self.parameters)]),
            values=_tuple(self.names),
            expired=" or _tunewright_entry.until <= _tunewright_now()" if expires else "",
            touch=_TOUCH if bounded else "",
        )
        exec(text, scope)
        return GeneratedWrapper(*scope["_tunewright_make"](find_nothing, find_nothing, on_miss))

    def _parameter_list(self, scope: dict[str, Any]) -> Iterator[str]:
        """Yields the parameters as written in a `def`, and puts their defaults into `scope`."""
        previous: Any = None
        for p in self.parameters:
            if previous is _Kind.POSITIONAL_ONLY and p.kind is not _Kind.POSITIONAL_ONLY:
                yield "/"
            if p.kind is _Kind.KEYWORD_ONLY and previous not in (_Kind.KEYWORD_ONLY, _Kind.VAR_POSITIONAL):
                yield "*"
            star = "*" if p.kind is _Kind.VAR_POSITIONAL else "**" if p.kind is _Kind.VAR_KEYWORD else ""
            if p.default is p.empty:
                yield f"{star}{p.name}"
            else:
                scope[f"_tunewright_default_{p.name}"] = p.default
                yield f"{p.name}=_tunewright_default_{p.name}"
            previous = p.kind
        if previous is _Kind.POSITIONAL_ONLY:
            yield "/"


def find_nothing(key: Hashable) -> None:
    """A look-up that never finds anything."""


def _type_expression(parameter: inspect.Parameter) -> str:
    """Returns the expression for the types of an argument."""
    if parameter.kind is _Kind.VAR_POSITIONAL:
        return f"_tunewright_tuple(_tunewright_map(_tunewright_type, {parameter.name}))"
    if parameter.kind is _Kind.VAR_KEYWORD:
        return "_tunewright_tuple([_tunewright_type(pair[1]) for pair in _tunewright_kwargs])"
    return f"_tunewright_type({parameter.name})"


def _value_expression(parameter: inspect.Parameter) -> str:
    return "_tunewright_kwargs" if parameter.kind is _Kind.VAR_KEYWORD else parameter.name


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)},)" if parts else "()"
