"""Functions that remember: which calls are the same, and what comes back."""

import dataclasses
import enum
import functools
import inspect
import json
import math
from collections import Counter, namedtuple
from pathlib import Path, PurePosixPath, PureWindowsPath

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunewright.errors import MemoError
from tunewright.memoization import memo, persistent_memo
from tunewright.memoization.canonical import ArgumentEncoder, decode_result, encode_result
from tunewright.stores.memory import MemoryStore


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Vector:
    x: float
    y: float = 0.0


class Struct(msgspec.Struct):
    x: int


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ONE = 1


Pair = namedtuple("Pair", "x y")


class Opaque:
    def __init__(self, name="a"):
        self.name = name


def test_a_call_is_the_same_however_its_arguments_are_given(remember) -> None:
    calls = []

    @remember(version=1)
    def add(a, b=2, *, c=3):
        calls.append((a, b, c))
        return [a, b, c]

    results = [add(1), add(1, 2), add(1, b=2), add(b=2, a=1), add(1, 2, c=3)]
    assert results == [[1, 2, 3]] * 5
    assert calls == [(1, 2, 3)]
    assert add.cache_info()[:2] == (4, 1)


def test_decorators_work_with_and_without_arguments() -> None:
    assert memo(lambda x: x + 1)(1) == 2
    assert memo(most=2)(lambda x: x + 1)(1) == 2

    @memo
    def named(x: int) -> int:
        """Says."""
        return x

    assert (named.__name__, named.__doc__, str(inspect.signature(named))) == ("named", "Says.", "(x: int) -> int")


ALIKE = [1, 1.0, True, "1", b"1", (1,), [1], {1}, frozenset({1}), {1: 1}, {"1": 1}, 0, 0.0, -0.0, False, None, "", b"",
         (1.0,), (True,), [1.0], ((1,),), {"a": 1}, {"a": 1.0}, math.nan, math.inf, 2**64, -(2**64), float(2**64),
         Number.ONE, Colour.RED, Colour.BLUE, Point(1), Point(1.0), Vector(1), Struct(1), Pair(1, 2), (1, 2), [1, 2],
         Path("1"), PureWindowsPath("1"), np.int32(1), np.int64(1), np.float64(1), np.bool_(True), np.array([1]),
         np.array([1.0]), np.array([[1]]), np.array([1], dtype=">i8"), np.array(1), np.dtype("int32"), np.int32, int,
         Point, len, math.sqrt, "\ud800", "\\ud800", {"tuple": [1]}, {"bytes": "31"}, ["a", 1], abs]  # fmt: skip


def test_values_that_differ_never_share_a_result(remember) -> None:
    calls = []

    @remember(version=1, encoders={type: lambda kind: kind.__qualname__})
    def tell(value):
        calls.append(value)
        return len(calls)

    assert [tell(value) for value in ALIKE] == list(range(1, len(ALIKE) + 1))
    assert [tell(value) for value in ALIKE] == list(range(1, len(ALIKE) + 1)), "each is found again, NaN too"
    assert len(calls) == len(ALIKE)


def test_equal_values_share_a_result_whatever_they_are_made_of(remember) -> None:
    tell = remember(version=1)(lambda *values, **named: 1)
    same = [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({3, 1, 2}, {2, 3, 1}),
        (np.arange(6).reshape(2, 3).T, np.ascontiguousarray(np.arange(6).reshape(2, 3).T)),
        (Path("a/b"), PurePosixPath("a/b")),
        (float("nan"), -float("nan")),
        (functools.partial(max, 1), functools.partial(max, 1)),
    ]
    for left, right in same:
        before = tell.cache_info().misses
        tell(left)
        tell(right)
        assert tell.cache_info().misses == before + 1, (left, right)
    tell(1, x=1, y=2)
    hits = tell.cache_info().hits
    tell(1, y=2, x=1)
    assert tell.cache_info().hits == hits + 1


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=3) | st.integers() | st.booleans(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def typed(value):
    """A value with all its types, and floats by their bits."""
    if isinstance(value, list | tuple):
        return type(value), [typed(item) for item in value]
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    return type(value), value.hex() if isinstance(value, float) else value


@settings(max_examples=150, deadline=None)
@given(PLAIN)
def test_what_is_written_comes_back_with_all_its_types(value) -> None:
    assert typed(decode_result(json.loads(json.dumps(encode_result(value))))) == typed(value)


@settings(max_examples=150, deadline=None)
@given(PLAIN, PLAIN)
def test_text_is_equal_only_where_values_are(left, right) -> None:
    tell = ArgumentEncoder({}).text

    def unordered(value):
        kind, told = value if isinstance(value, tuple) and len(value) == 2 else (None, value)
        if kind is dict:
            return dict, sorted(((repr(unordered(k)), repr(unordered(v))) for k, v in told))
        return (kind, [unordered(item) for item in told]) if kind in (list, tuple) else value

    same = unordered(typed(left)) == unordered(typed(right))
    assert (tell({"x": left}) == tell({"x": right})) == same


def test_two_functions_never_share_a_result(remember) -> None:
    first, second = remember(lambda x: x + 1), remember(lambda x: x + 2)
    assert (first(1), second(1), first(1), second(1)) == (2, 3, 2, 3)


def test_functions_from_one_place_differ_by_what_they_hold() -> None:
    store = MemoryStore()

    def make(parts):
        @persistent_memo(store=store)
        def total(x):
            return x + sum(parts)

        return total

    assert (make([1, 2])(0), make([5])(0), make([1, 2])(0)) == (3, 5, 3)
    with pytest.raises(MemoError, match="version="):
        make(iter([1]))(0)


def test_a_function_that_is_changed_is_another_one() -> None:
    store, results = MemoryStore(), []
    for body in ("x + 1", "x + 2", "x + 1"):
        scope = {"__name__": "changing"}
        exec(f"def f(x):\n    return {body}", scope)
        results.append(persistent_memo(store=store)(scope["f"])(1))
    assert results == [2, 3, 2]
    versions = [persistent_memo(store=store, version=v)(scope["f"]) for v in (1, 2, 1)]
    assert [f(1) and f.cache_info().misses for f in versions] == [1, 1, 0]


def test_a_function_without_source_needs_a_version() -> None:
    store = MemoryStore()
    with pytest.raises(MemoError, match="version="):
        persistent_memo(store=store)(math.gcd)(4, 6)
    assert persistent_memo(store=store, version=1)(math.isqrt)(17) == 4


def test_recursive_functions_remember() -> None:
    @memo
    @persistent_memo(store=MemoryStore())
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib(60) == 1548008755920
    assert fib.cache_info().misses == 61


def test_what_no_one_says_how_to_tell_apart_is_refused_with_a_way_out(remember) -> None:
    with pytest.raises(MemoError, match=r"encoders=\{Opaque: function\}"):
        remember(lambda x: 1)(Opaque())
    told = remember(encoders={Opaque: lambda thing: thing.name})(lambda x: x.name)
    assert [told(Opaque("a")), told(Opaque("b")), told(Opaque("a"))] == ["a", "b", "a"]
    assert told.cache_info().misses == 2
    with pytest.raises(MemoError, match="encoders"):
        remember(lambda x: 1)(np.array([None]))
    loop = []
    loop.append(loop)
    with pytest.raises(MemoError, match="contains itself"):
        remember(lambda x: 1)(loop)


def test_encoders_may_make_plain_values_coarser(remember) -> None:
    lower = remember(encoders={str: str.lower})(lambda text: text)
    assert (lower("A"), lower("a"), lower("b")) == ("A", "A", "b")


def test_methods_count_their_self_by_an_encoder_or_by_its_fields() -> None:
    class Engine(Opaque):
        @memo(encoders={Opaque: lambda engine: engine.name})
        def power(self, x):
            return self.name * x

    @dataclasses.dataclass
    class Scale:
        factor: int

        @persistent_memo(store=MemoryStore())
        def of(self, x):
            return self.factor * x

        @staticmethod
        @memo
        def double(x):
            return 2 * x

    assert (Engine("a").power(2), Engine("b").power(2), Engine("a").power(2)) == ("aa", "bb", "aa")
    assert Engine.power.cache_info()[:2] == (1, 2)
    assert (Scale(2).of(3), Scale(5).of(3), Scale(2).of(3)) == (6, 15, 6)
    assert Scale.of.cache_info().misses == 2
    assert Scale(1).double(4) == Scale.double(4) == 8


def test_parameters_may_have_any_name_and_kind(remember) -> None:
    @remember(version=1)
    def odd(type, /, tuple=1, *map, sorted=2, **entry):
        return [type, tuple, list(map), sorted, dict(entry)]

    expected = [0, 5, [6, 7], 8, {"type": 9, "x": 1}]
    assert odd(0, 5, 6, 7, sorted=8, type=9, x=1) == odd(0, 5, 6, 7, x=1, type=9, sorted=8) == expected
    assert odd.cache_info()[:2] == (1, 1)
    odd(0, 5, 6, 7.0, sorted=8, type=9, x=1)
    odd(0, 5, 6, 7, sorted=8, type=9, x=True)
    assert odd.cache_info()[:2] == (1, 3)
    with pytest.raises(TypeError, match="odd"):
        odd()


def test_an_argument_that_the_function_changes_counts_as_it_was(remember) -> None:
    @remember(version=1)
    def drain(items):
        total = sum(items)
        items.clear()
        return total

    assert (drain([1, 2]), drain([1, 2]), drain([])) == (3, 3, 0)
    assert drain.cache_info().misses == 2


def test_what_can_be_used_once_is_refused() -> None:
    def generator():
        yield 1

    with pytest.raises(MemoError, match="return a list"):
        memo(generator)
    with pytest.raises(MemoError, match="used only once"):
        memo(lambda: [*generator()] and generator())()
    with pytest.raises(MemoError, match="below @staticmethod"):
        memo(5)
    with pytest.raises(MemoError, match="memo takes"):
        memo(size=5)
    with pytest.raises(MemoError, match="positive"):
        memo(most=0)


VALUES = [None, True, 7, -(2**70), 1.5, math.inf, -0.0, "é", "\ud800", b"\xff\x00", (1, (2,)), [1], {"b": 1, "a": (2,)},
          {1: 2, (3, 4): 5}, {1, 2}, frozenset({"x"}), {"tuple": [1]}, Path("a/b"), np.float32(1.5),
          np.datetime64("2020-01-01")]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_result_comes_back_from_the_store_as_it_was(value) -> None:
    keep = persistent_memo(store=MemoryStore(), version=1)(lambda: value)
    first, second = keep(), keep()
    assert keep.cache_info()[:2] == (1, 1)
    assert typed(first) == typed(second) == typed(value)
    if isinstance(value, dict):
        assert list(second) == list(value)


def test_arrays_and_nan_come_back_bit_for_bit() -> None:
    arrays = [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3))), np.array(1, dtype=">i2"),
              np.zeros((0, 3), dtype=bool), np.array(["ab", "c"])]  # fmt: skip
    keep = persistent_memo(store=MemoryStore(), version=1)(lambda i: arrays[i] if i >= 0 else math.nan)
    for i, array in enumerate(arrays):
        keep(i)
        again = keep(i)
        assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert again.flags.fnc == array.flags.fnc
        assert again.flags.writeable
    keep(-1)
    assert math.isnan(keep(-1))
    assert keep.cache_info()[:2] == (len(arrays) + 1, len(arrays) + 1)


def test_a_result_that_would_come_back_different_is_refused_with_a_way_out() -> None:
    store = MemoryStore()
    values = [Point(1), Struct(1), Colour.RED, Pair(1, 2), Counter("a"), Opaque(), np.array([None]), [Point(1)]]
    make = persistent_memo(store=store, version=1)(lambda number: values[number])
    for number in range(len(values)):
        with pytest.raises(MemoError, match="write="):
            make(number)
    made = persistent_memo(store=store, write=dataclasses.astuple, read=lambda told: Point(*told))(
        lambda x: Point(x, x)
    )
    assert made(3) == made(3) == Point(3, 3)
    assert made.cache_info()[:2] == (1, 1)
    with pytest.raises(MemoError, match="`write` and `read` must be given together"):
        persistent_memo(write=str)


def test_each_caller_of_a_persistent_memo_has_a_result_of_its_own() -> None:
    make = persistent_memo(store=MemoryStore(), version=1)(lambda: [1])
    make().append(2)
    make().append(3)
    assert make() == [1]
