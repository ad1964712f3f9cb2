"""Call: how a call of a memoised function is bound and told from others, and its front, written out for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from time import monotonic
from types import CoroutineType, GeneratorType
from typing import Any, NamedTuple

from tunewright.errors import MemoError

Get = Callable[[Hashable], Any]
Values = tuple[Any, ...]

_KINDS = inspect.Parameter
_TOUCH = """try:
            _tunewright_touch(_tunewright_mark)
        except KeyError:
            pass  # it has just been dropped"""
# A parameter may be called `type` or `tuple`.
_USED: dict[str, Any] = {"type": type, "tuple": tuple, "map": map, "sorted": sorted, "now": monotonic}
_FRONT = """
def _tunewright_make(_tunewright_get, _tunewright_touch, _tunewright_answer):
    _tunewright_hits = 0

    {async_}def _tunewright_front({heads}):
        nonlocal _tunewright_hits
        {named}
        _tunewright_mark = {mark}
        try:
            _tunewright_entry = _tunewright_get(_tunewright_mark)
        except TypeError:
            _tunewright_entry = None
        if _tunewright_entry is None{expired}:
            return {await_}_tunewright_answer(_tunewright_mark, {values})
        {touch}
        _tunewright_hits += 1
        return _tunewright_entry.value

    def _tunewright_look(get, touch):
        nonlocal _tunewright_get, _tunewright_touch
        _tunewright_get, _tunewright_touch = get, touch

    def _tunewright_bind({heads}):
        {named}
        return {mark}, {values}

    return _tunewright_front, _tunewright_look, _tunewright_bind, lambda: _tunewright_hits
"""


class Front(NamedTuple):
    """A generated function, and what it lets its memo do."""

    call: Callable[..., Any]
    look: Callable[[Get, Callable[[Hashable], None]], None]
    """Make it look for entries elsewhere."""
    bind: Callable[..., tuple[Hashable, Values]]
    """The mark of a call, and its arguments in the order of the parameters, defaults applied."""
    hits: Callable[[], int]


class Shape:
    """The parameters of a function: how its calls are bound."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        if not callable(function) or not hasattr(function, "__qualname__"):
            raise MemoError("memo takes a function; put it below @staticmethod, @classmethod and @property")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise MemoError(f"{function.__qualname__} is a generator, which is read once; return a list to remember")
        try:
            self.parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError) as error:
            raise MemoError(f"{function.__qualname__} does not say what it takes; wrap it in a function") from error
        self.names = [parameter.name for parameter in self.parameters]

    def spread(self, values: Values) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as the function takes them."""
        given: list[Any] = []
        named: dict[str, Any] = {}
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.kind is _KINDS.VAR_POSITIONAL:
                given.extend(value)
            elif parameter.kind is _KINDS.VAR_KEYWORD:
                named |= value
            elif parameter.kind is _KINDS.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                given.append(value)
        return given, named

    def call(self, values: Values) -> Any:
        """What the function returns; for a coroutine function, what can be awaited."""
        given, named = self.spread(values)
        result = self.function(*given, **named)
        if isinstance(result, GeneratorType | CoroutineType) and not self.is_async:
            result.close()
            raise MemoError(
                f"{self.function.__qualname__} returned a {type(result).__name__}, which is used once; "
                f"return what comes of it, or declare the function `async def`"
            )
        return result

    def leaves(self, values: Values) -> Iterator[Any]:
        """Every argument for itself, those of `*args` and `**kwargs` too."""
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.kind is _KINDS.VAR_POSITIONAL:
                yield from value
            elif parameter.kind is _KINDS.VAR_KEYWORD:
                yield from value.values()
            else:
                yield value

    def front(self, answer: Callable[[Hashable, Values], Any], *, expires: bool, bounded: bool) -> Front:
        """The function users call: a look-up of the arguments and their types, else `answer`.

        It is generated, as `namedtuple` generates its own, and a plain function, so that it also serves as a method.
        Types come first in a mark, so that values of different types are never compared.
        """
        scope = {f"_tunewright_{name}": thing for name, thing in _USED.items()} | {"__name__": __name__}
        kwargs = next((p.name for p in self.parameters if p.kind is _KINDS.VAR_KEYWORD), None)
        waits = {"async_": "async ", "await_": "await "} if self.is_async else {"async_": "", "await_": ""}
        text = _FRONT.format(
            **waits,
            heads=", ".join(self._heads(scope)),
            named=f"_tunewright_named = _tunewright_tuple(_tunewright_sorted({kwargs}.items())) if {kwargs} else ()"
            if kwargs
            else "",
            mark=_tuple([*map(_kind_text, self.parameters), *map(_value_text, self.parameters)]),
            values=_tuple(self.names),
            expired=" or _tunewright_entry.until <= _tunewright_now()" if expires else "",
            touch=_TOUCH if bounded else "",
        )
        exec(text, scope)
        return Front(*scope["_tunewright_make"](never, never, answer))

    def _heads(self, scope: dict[str, Any]) -> Iterator[str]:
        """The parameters as written in a `def`; their defaults go into `scope`."""
        before: Any = None
        for p in self.parameters:
            if before is _KINDS.POSITIONAL_ONLY and p.kind is not _KINDS.POSITIONAL_ONLY:
                yield "/"
            if p.kind is _KINDS.KEYWORD_ONLY and before not in (_KINDS.KEYWORD_ONLY, _KINDS.VAR_POSITIONAL):
                yield "*"
            star = "*" if p.kind is _KINDS.VAR_POSITIONAL else "**" if p.kind is _KINDS.VAR_KEYWORD else ""
            if p.default is p.empty:
                yield f"{star}{p.name}"
            else:
                scope[f"_tunewright_default_{p.name}"] = p.default
                yield f"{p.name}=_tunewright_default_{p.name}"
            before = p.kind
        if before is _KINDS.POSITIONAL_ONLY:
            yield "/"


def never(mark: Hashable) -> None:
    """The look-up that finds nothing."""


def _kind_text(parameter: inspect.Parameter) -> str:
    """The types of an argument, as an expression."""
    if parameter.kind is _KINDS.VAR_POSITIONAL:
        return f"_tunewright_tuple(_tunewright_map(_tunewright_type, {parameter.name}))"
    if parameter.kind is _KINDS.VAR_KEYWORD:
        return "_tunewright_tuple([_tunewright_type(pair[1]) for pair in _tunewright_named])"
    return f"_tunewright_type({parameter.name})"


def _value_text(parameter: inspect.Parameter) -> str:
    return "_tunewright_named" if parameter.kind is _KINDS.VAR_KEYWORD else parameter.name


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)},)" if parts else "()"
