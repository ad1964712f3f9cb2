"""Single flight: of several threads, tasks or processes that need one result, one computes it and the others wait.

The procedure is written once, as a generator of steps: `run_steps` runs it in a thread, `run_steps_async` in a task.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from tunewright.stores.leases import Lease

T = TypeVar("T")

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.002, 0.5
"""The first and the longest pause between two checks for the result of another process; they grow by half."""


class StoreCall(NamedTuple):
    """A step: call the store, which may block."""

    call: Callable[[], Any]


class Sleep(NamedTuple):
    """A step: sleep."""

    seconds: float


class CallFunction(NamedTuple):
    """A step: call the memoized function itself."""


class WaitForComputation(NamedTuple):
    """A step: wait until a computation that is in flight has ended."""

    flight: ComputationFlight


Step = StoreCall | Sleep | CallFunction | WaitForComputation
Steps = Generator[Step, Any, T]


def run_steps(steps: Steps[T], work: Callable[[], Any]) -> T:
    """Runs the steps in this thread, and returns their result."""
    resume, value = steps.send, None
    while True:
        try:
            step = resume(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        resume = steps.send
        try:
            value = _run_step(step, work)
        except BaseException as error:  # noqa: BLE001 - the steps clean up and raise it again
            resume, value = steps.throw, error


def _run_step(step: Step, work: Callable[[], Any]) -> Any:
    if isinstance(step, CallFunction):
        return work()
    if isinstance(step, StoreCall):
        return step.call()
    if isinstance(step, Sleep):
        return time.sleep(step.seconds)
    return step.flight.ended.result()


async def run_steps_async(steps: Steps[T], work: Callable[[], Awaitable[Any]]) -> T:
    """Runs the steps in this task, and returns their result; blocking calls run in a thread."""
    resume, value = steps.send, None
    while True:
        try:
            step = resume(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        resume = steps.send
        try:
            value = await _run_step_async(step, work)
        except GeneratorExit:  # the event loop has ended; nothing can be awaited anymore
            steps.close()
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            resume, value = steps.throw, error


async def _run_step_async(step: Step, work: Callable[[], Awaitable[Any]]) -> Any:
    import asyncio  # noqa: PLC0415 - already loaded by the caller

    if isinstance(step, CallFunction):
        return await work()
    if isinstance(step, StoreCall):
        return await asyncio.to_thread(step.call)
    if isinstance(step, Sleep):
        return await asyncio.sleep(step.seconds)
    return await asyncio.wrap_future(step.flight.ended)


class FlightOutcome(NamedTuple):
    """The result or the error of a computation."""

    result: Any = None
    error: Exception | None = None

    def unwrap(self) -> Any:
        """Returns the result, or raises the error."""
        if self.error is not None:
            raise self.error
        return self.result


class ComputationFlight:
    """A computation in flight; `ended` resolves to its outcome, or to None if its leader was interrupted."""

    def __init__(self, leader: object) -> None:
        self.leader = leader
        self.ended: Future[FlightOutcome | None] = Future()
        self.ended.set_running_or_notify_cancel()  # so that a waiting task that is cancelled cancels only itself


class InFlightComputations:
    """The computations in flight in this process."""

    def __init__(self) -> None:
        self._reset()
        _instances.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Hashable, ComputationFlight] = {}

    def is_led_by(self, leader: object, key: Hashable) -> bool:
        """Whether `leader` itself is computing the result of `key`."""
        flight = self._flights.get(key)
        return flight is not None and flight.leader == leader

    def join(self, key: Hashable, leader: object, compute: Callable[[], Steps[T]]) -> Steps[tuple[T, bool]]:
        """Returns the result for `key`, and whether it was computed here. An interrupted leader is replaced."""
        while True:
            with self._lock:
                flight = self._flights.get(key)
                if is_leader := flight is None:
                    flight = self._flights[key] = ComputationFlight(leader)
            assert flight is not None
            if is_leader:
                return (yield from self._lead(key, flight, compute())), True
            outcome = yield WaitForComputation(flight)
            if outcome is not None:
                return outcome.unwrap(), False

    def _lead(self, key: Hashable, flight: ComputationFlight, steps: Steps[T]) -> Steps[T]:
        """Runs the leader's steps, and hands the outcome to all who wait."""
        outcome: FlightOutcome | None = None
        try:
            result = yield from steps
            outcome = FlightOutcome(result)
        except Exception as error:
            outcome = FlightOutcome(error=error)
            raise
        finally:
            with self._lock:
                self._flights.pop(key, None)
            flight.ended.set_result(outcome)
        return result


_instances: weakref.WeakSet[InFlightComputations] = weakref.WeakSet()


def _reset_all() -> None:
    """Forgets all flights in a forked child, where their leaders do not run."""
    for flights in list(_instances):
        flights._reset()


os.register_at_fork(after_in_child=_reset_all)


def current_caller(*, in_task: bool) -> object:
    """Returns the identity of the calling task or thread."""
    if not in_task:
        return threading.get_ident()
    import asyncio  # noqa: PLC0415 - already loaded by the caller

    return asyncio.current_task()


def acquire_lease_or_result(lease: Lease, look_up: Callable[[], Steps[T | None]]) -> Steps[T | None]:
    """Returns None once the lease is held and no result exists, or the result of another process."""
    for pause in _pauses():
        if (yield StoreCall(lease.claim)):
            result = yield from look_up()
            if result is not None:
                yield StoreCall(lease.release)
            return result
        yield Sleep(pause)
        if (result := (yield from look_up())) is not None:
            return result
    raise AssertionError("unreachable")


def run_holding_lease(lease: Lease, steps: Steps[T]) -> Steps[T]:
    """Runs `steps` while the lease is kept alive, then gives it back."""
    lease.keep_alive()
    try:
        result = yield from steps
    except GeneratorExit:
        lease.stop_renewing()  # the store cannot be called anymore: the lease expires
        raise
    except BaseException:
        yield StoreCall(lease.release)
        raise
    yield StoreCall(lease.release)
    return result


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(1.5 * pause, MAX_PAUSE_SECONDS)
