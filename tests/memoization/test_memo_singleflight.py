"""Functions that remember: one computes for all, bounds, state."""

import asyncio
import inspect
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tunewright.memoization import call, memo, persistent_memo, storage
from tunewright.stores.memory import MemoryStore


async def until(condition):
    """Let others go on until it is so; the bound only ends a test that would hang."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.001)


def test_of_many_threads_one_computes(remember, joins, wait_until) -> None:
    calls = []

    @remember(version=1)
    def slow(x):
        calls.append(x)
        wait_until(lambda: len(joins) == 15, "the others waiting")
        return x

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(slow, [1] * 16)) == [1] * 16
    assert calls == [1]
    assert slow.cache_info()[:2] == (15, 1)


def test_of_many_tasks_one_computes(remember, joins) -> None:
    calls = []

    @remember(version=1)
    async def slow(x, y=2):
        calls.append(x)
        await until(lambda: len(joins) == 3)
        return [x, y]

    async def main():
        first = await asyncio.gather(slow(1), slow(1, 2), slow(x=1), slow(1, y=2), slow(3))
        return first, await slow(1)

    assert inspect.iscoroutinefunction(slow)
    assert asyncio.run(main()) == ([[1, 2]] * 4 + [[3, 2]], [1, 2])
    assert sorted(calls) == [1, 3]
    assert slow.cache_info().misses == 2


def test_tasks_of_several_loops_share_one_flight(joins) -> None:
    calls = []

    @memo
    async def slow(x):
        calls.append(x)
        await until(lambda: len(joins) == 3)
        return x

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: asyncio.run(slow(1)), range(4))) == [1] * 4
    assert calls == [1]


def test_an_error_reaches_all_who_wait_and_is_never_kept(remember, joins, wait_until) -> None:
    calls, release = [], threading.Event()

    @remember(version=1)
    def fails(x):
        calls.append(x)
        release.wait(120)
        if len(calls) == 1:
            raise ZeroDivisionError("once")
        return x

    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(fails, 1) for _ in range(4)]
        wait_until(lambda: len(joins) == 3, "the others waiting")
        release.set()
        errors = [flight.exception() for flight in waiting]
    assert [type(error) for error in errors] == [ZeroDivisionError] * 4
    assert (fails(1), fails(1)) == (1, 1)
    assert len(calls) == 2


def test_a_task_that_is_cancelled_is_replaced_by_one_that_waits(remember, joins) -> None:
    calls = []

    @remember(version=1)
    async def slow(x):
        calls.append(x)
        await until(lambda: len(calls) > 1)  # the first would never end
        return x

    async def main():
        leader = asyncio.create_task(slow(1))
        await until(lambda: calls)
        others = [asyncio.create_task(slow(1)) for _ in range(3)]
        await until(lambda: len(joins) == 3)
        others[2].cancel()
        leader.cancel()
        return await asyncio.gather(leader, *others, return_exceptions=True)

    ended = asyncio.run(main())
    assert ended[1:3] == [1, 1]
    assert [type(ended[i]) for i in (0, 3)] == [asyncio.CancelledError] * 2
    assert calls == [1, 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking beside threads
def test_a_fork_during_a_flight_does_not_hang_the_child() -> None:
    started, release = threading.Event(), threading.Event()

    @memo
    def slow(x):
        started.set()
        release.wait(120)
        return x

    leader = threading.Thread(target=slow, args=(1,))
    leader.start()
    assert started.wait(120)
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        release.set()
        os._exit(0 if slow(1) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    release.set()
    leader.join()


def test_a_function_that_asks_for_itself_recurses_and_does_not_hang(remember) -> None:
    @remember(version=1)
    def endless(x):
        return endless(x)

    with pytest.raises(RecursionError):
        endless(1)


def test_the_least_recently_used_goes_first_in_a_process() -> None:
    @memo(most=2)
    def f(x):
        return x

    for x in (1, 2, 1, 3):
        f(x)
    assert f.cache_info() == (1, 3, 2, 2)
    f(1)
    assert f.cache_info().hits == 2, "1 was used after 2"
    f(2)
    assert f.cache_info().misses == 4


def test_the_oldest_go_first_on_a_shelf() -> None:
    store = MemoryStore()
    f = persistent_memo(store=store, most=3)(lambda x: x)
    for x in range(10):
        f(x)
    assert f.cache_info().currsize == 3
    assert [f(x) and f.cache_info().misses for x in (9, 8, 7)] == [10, 10, 10]
    f(0)
    assert f.cache_info().misses == 11


def test_results_expire(remember, monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setitem(call._WRAPPER_GLOBALS, "now", lambda: now[0])
    monkeypatch.setattr(storage, "time", SimpleNamespace(monotonic=lambda: now[0]))
    store = {"store": MemoryStore(clock=lambda: now[0])} if remember is not memo else {}
    f = remember(seconds=0.2, **store)(lambda x: x)
    f(1), f(1)
    assert f.cache_info()[:2] == (1, 1)
    now[0] += 0.1
    f(1)
    assert f.cache_info()[:2] == (2, 1)
    now[0] += 0.2
    assert f.cache_info().currsize == 0
    f(1)
    assert f.cache_info()[:2] == (2, 2)


def test_clearing_forgets_results_and_counts(remember) -> None:
    f = remember(lambda x: x)
    f(1), f(1)
    f.cache_clear()
    assert f.cache_info() == (0, 0, None, 0)
    f(1)
    assert f.cache_info() == (0, 1, None, 1)


def test_what_is_being_computed_while_the_cache_is_cleared_is_not_kept() -> None:
    started, release = threading.Event(), threading.Event()

    @memo
    def slow(x):
        started.set()
        release.wait(120)
        return x

    with ThreadPoolExecutor(1) as threads:
        flight = threads.submit(slow, 1)
        assert started.wait(120)
        slow.cache_clear()
        release.set()
        assert flight.result() == 1
    assert slow.cache_info().currsize == 0


def test_refresh_computes_again_and_replaces(remember) -> None:
    now = [1]
    f = remember(version=1)(lambda x: now[0] + x)
    assert f(0) == 1
    now[0] = 5
    assert (f(0), f.refresh(x=0), f(0)) == (1, 5, 5)

    @remember(version=1)
    async def g(x):
        return now[0] + x

    async def main():
        first = await g(0)
        now[0] = 7
        return first, await g(0), await g.refresh(0), await g(0)

    assert asyncio.run(main()) == (5, 5, 7, 7)


def test_disabled_calls_go_straight_through_in_this_thread_alone(remember) -> None:
    calls = []
    f = remember(version=1)(lambda x: calls.append(x) or x)
    f(1)
    with f.disabled(), ThreadPoolExecutor(1) as threads:
        f(1), f(2)
        assert threads.submit(f, 1).result() == 1
    assert calls == [1, 1, 2]
    f(1)
    f(2)
    assert calls == [1, 1, 2, 2]


def test_a_fresh_cache_never_touches_the_real_one(remember) -> None:
    calls = []
    f = remember(version=1)(lambda x: calls.append(x) or x)
    f(1)
    with f.fresh():
        f(1), f(1), f(2)
        assert f.cache_info() == (1, 2, None, 2)
        f.refresh(1)
        f.cache_clear()
        assert f.cache_info().currsize == 0
    assert calls == [1, 1, 2, 1]
    assert f.cache_info() == (0, 1, None, 1)
    f(1)
    assert calls == [1, 1, 2, 1]
