"""Flight: of all who need one result at a time one computes it; threads, tasks and processes wait for it.

What is to be done is written once, as a generator of steps; `taken` takes them in a thread, `awaited` in a task.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from tunewright.sharing.leases import Lease

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.5
"""Seconds between two looks at what another process computes; each pause is half as long again."""


class Ask(NamedTuple):
    """A step: something that a store may take a while to answer."""

    call: Callable[[], Any]


class Pause(NamedTuple):
    """A step: wait for so many seconds."""

    seconds: float


class Work(NamedTuple):
    """A step: call the function itself."""


class Join(NamedTuple):
    """A step: wait until a flight has ended."""

    flight: Flight


Step = Ask | Pause | Work | Join
Steps = Generator[Step, Any, T]


def taken(steps: Steps[T], work: Callable[[], Any]) -> T:
    """What the steps come to, taken in this thread."""
    onward, given = steps.send, None
    while True:
        try:
            step = onward(given)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        onward = steps.send
        try:
            given = _took(step, work)
        except BaseException as error:  # noqa: BLE001 - the steps raise it again, after what is still to be done
            onward, given = steps.throw, error


def _took(step: Step, work: Callable[[], Any]) -> Any:
    if isinstance(step, Work):
        return work()
    if isinstance(step, Ask):
        return step.call()
    if isinstance(step, Pause):
        return time.sleep(step.seconds)
    return step.flight.ended.result()


async def awaited(steps: Steps[T], work: Callable[[], Awaitable[Any]]) -> T:
    """What the steps come to, taken in this task; whatever may block is left to a thread."""
    onward, given = steps.send, None
    while True:
        try:
            step = onward(given)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        onward = steps.send
        try:
            given = await _awaited(step, work)
        except GeneratorExit:  # the loop is gone, and nothing can be awaited any more
            steps.close()
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            onward, given = steps.throw, error


async def _awaited(step: Step, work: Callable[[], Awaitable[Any]]) -> Any:
    import asyncio  # noqa: PLC0415 - who comes here has loaded it

    if isinstance(step, Work):
        return await work()
    if isinstance(step, Ask):
        return await asyncio.to_thread(step.call)
    if isinstance(step, Pause):
        return await asyncio.sleep(step.seconds)
    return await asyncio.wrap_future(step.flight.ended)


class Landing(NamedTuple):
    """How a flight ended: with a result, or with an error."""

    result: Any = None
    error: Exception | None = None

    def taken(self) -> Any:
        """The result; or the error is raised."""
        if self.error is not None:
            raise self.error
        return self.result


class Flight:
    """A result being computed; `ended` holds how it landed, None if its leader was interrupted."""

    def __init__(self, leader: object) -> None:
        self.leader = leader
        self.ended: Future[Landing | None] = Future()
        self.ended.set_running_or_notify_cancel()  # a task that is cancelled while it waits cancels only itself


class Flights:
    """The flights under way in this process."""

    def __init__(self) -> None:
        self._renew()
        _everyone.add(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Hashable, Flight] = {}

    def led_by(self, leader: object, key: Hashable) -> bool:
        """Whether it is `leader` who computes this, and asks for it again meanwhile."""
        flight = self._flights.get(key)
        return flight is not None and flight.leader == leader

    def joined(self, key: Hashable, leader: object, computed: Callable[[], Steps[T]]) -> Steps[tuple[T, bool]]:
        """What the flight for `key` comes to, and whether it was led from here. An interrupted leader is replaced."""
        while True:
            with self._lock:
                flight = self._flights.get(key)
                if leads := flight is None:
                    flight = self._flights[key] = Flight(leader)
            assert flight is not None
            if leads:
                return (yield from self._led(key, flight, computed())), True
            landing = yield Join(flight)
            if landing is not None:
                return landing.taken(), False

    def _led(self, key: Hashable, flight: Flight, steps: Steps[T]) -> Steps[T]:
        """Take the leader's steps, and tell all who wait; who comes later starts anew."""
        landing: Landing | None = None
        try:
            result = yield from steps
            landing = Landing(result)
        except Exception as error:
            landing = Landing(error=error)
            raise
        finally:
            with self._lock:
                self._flights.pop(key, None)
            flight.ended.set_result(landing)
        return result


_everyone: weakref.WeakSet[Flights] = weakref.WeakSet()


def _renew_all() -> None:
    """In a forked child: the leaders of its parent's flights are not here."""
    for flights in list(_everyone):
        flights._renew()


os.register_at_fork(after_in_child=_renew_all)


def myself(*, in_task: bool) -> object:
    """Who is calling: a task or a thread."""
    if not in_task:
        return threading.get_ident()
    import asyncio  # noqa: PLC0415 - who comes here has loaded it

    return asyncio.current_task()


def won(lease: Lease, found: Callable[[], Steps[T | None]]) -> Steps[T | None]:
    """None once the lease is held and there is nothing; or what another process has `found` meanwhile."""
    for pause in _pauses():
        if (yield Ask(lease.claim)):
            result = yield from found()
            if result is not None:
                yield Ask(lease.give_back)
            return result
        yield Pause(pause)
        if (result := (yield from found())) is not None:
            return result
    raise AssertionError  # pauses never end


def held(lease: Lease, steps: Steps[T]) -> Steps[T]:
    """Take `steps` while the lease is kept alive, then give it back."""
    lease.keep_alive()
    try:
        result = yield from steps
    except GeneratorExit:
        lease.leave()  # nothing can be asked any more: it ends by itself
        raise
    except BaseException:
        yield Ask(lease.give_back)
        raise
    yield Ask(lease.give_back)
    return result


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(1.5 * pause, LONGEST_PAUSE)
