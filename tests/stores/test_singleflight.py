"""Of many who miss one key, one works on it; whatever happens to that one, nobody hangs."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tunewright.errors import StoreError
from tunewright.stores import leases, memory, singleflight
from tunewright.stores.memory import MemoryStore
from tunewright.stores.singleflight import SingleFlight


class Clock:
    """Seconds that pass while a waiter sleeps, and never else."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The clock of flights and of the store in memory."""
    clock = Clock()
    for module in (singleflight, memory):
        monkeypatch.setattr(module, "time", clock)
    return clock


def joined(store, made, result, *, max_wait=3600.0, lease=None, meanwhile=lambda: None):
    """Join the flight of one name, as a process would."""

    def work():
        meanwhile()
        made.append(result)
        return store.keep("results", "one", result, replace=False)

    return SingleFlight(store, "one", max_wait=max_wait, lease_seconds=lease).run(
        work, lambda: store.fetch("results", ["one"]).get("one")
    )


class Refusing(MemoryStore):
    """A store that counts those who were refused a lease."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.renewed = threading.Semaphore(0)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        renews = self._leases.get(name, ("", 0.0))[0] == owner
        granted = super().claim(name, owner, seconds)
        if not granted:
            self.refused.add(owner)
        elif renews:
            self.renewed.release()
        return granted


def test_one_works_and_all_get_what_it_made(wait_until) -> None:
    store, made = Refusing(), []

    def all_wait() -> None:
        wait_until(lambda: len(store.refused) == 7, "the other seven")

    with ThreadPoolExecutor(8) as threads:
        got = set(threads.map(lambda i: joined(store, made, b"%d" % i, lease=3600, meanwhile=all_wait), range(8)))
    assert len(made) == 1
    assert got == set(made)


def test_a_leader_that_dies_is_replaced_when_its_lease_ends(clock) -> None:
    store, made, began = MemoryStore(), [], clock.now
    store.claim("one", "the dead", 10)
    assert joined(store, made, b"second") == b"second"
    assert 10 <= clock.now - began < 10 + 1.3 * singleflight.MAX_PAUSE


def test_a_leader_that_works_for_longer_than_its_lease_renews_it(wait_until, monkeypatch) -> None:
    store, made, now = Refusing(), [], [1000.0]
    # To the store no time passes but by renewals: without them, the lease would have ended.
    monkeypatch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def long_work() -> None:
        wait_until(lambda: store.refused, "the other one")
        for _ in range(6):
            assert store.renewed.acquire(timeout=120), "it is not renewed"
            now[0] += 0.2

    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(joined, store, made, b"slow", lease=0.3, meanwhile=long_work)
        wait_until(lambda: store._leases, "the first one")
        other = threads.submit(joined, store, made, b"quick", lease=0.3)
        assert {slow.result(), other.result()} == {b"slow"}
    assert made == [b"slow"]


def test_a_lease_is_renewed_three_times_in_its_life(monkeypatch) -> None:
    now, store, renewer = [1000.0], Refusing(), leases.LeaseRenewer()
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now[0]))
    lease = leases.Lease(store, "one", 9.0)
    assert lease.claim()
    renewer.add(lease)
    assert not store.renewed.acquire(blocking=False)
    for later in (1003.0, 1006.0, 1009.0):
        with renewer._changed:
            assert renewer._due == {lease: later}
            now[0] = later
            renewer._changed.notify()
        assert store.renewed.acquire(timeout=120)
    with renewer._changed:
        renewer.remove(lease)
        renewer._changed.notify()


def test_who_has_waited_long_enough_goes_on_without(clock) -> None:
    store, made, began = MemoryStore(), [], clock.now
    store.claim("one", "somebody", 3600)
    assert joined(store, made, b"mine", max_wait=30) is None
    assert 30 < clock.now - began < 30 + 1.3 * singleflight.MAX_PAUSE
    assert made == []


def test_an_exception_of_the_leader_frees_the_next(clock) -> None:
    store, began = MemoryStore(), clock.now
    with pytest.raises(ZeroDivisionError):
        SingleFlight(store, "one", max_wait=9).run(lambda: 1 // 0, lambda: None)
    assert joined(store, [], b"next") == b"next"
    assert clock.now == began, "at once"


class Down(MemoryStore):
    def claim(self, *given):
        raise StoreError("down")

    release = claim


def test_a_store_that_grants_no_lease_makes_everybody_lead(caplog) -> None:
    assert joined(Down(), [], b"mine") == b"mine"
    assert "going on without" in caplog.text
    assert SingleFlight(object(), "one", max_wait=1).run(lambda: 7, lambda: None) == 7


def test_no_thread_is_left_behind(wait_until) -> None:
    joined(MemoryStore(), [], b"x", lease=0.3)
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if thread.name == "tunewright leases"],
        "the end of the thread that renews",
    )
