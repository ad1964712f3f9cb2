"""Of many who miss one key, one works on it; whatever happens to that one, nobody hangs."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tunewright.errors import StoreError
from tunewright.sharing.flight import Flight
from tunewright.stores.memory import MemoryStore


def joined(store, made, result, *, patience=30.0, lease=1.0, seconds=0.2):
    """Join the flight of one name, as a process would."""

    def work():
        time.sleep(seconds)
        made.append(result)
        return store.keep("results", "one", result, replace=False)

    return Flight(store, "one", patience=patience, lease=lease).join(
        work, lambda: store.fetch("results", ["one"]).get("one")
    )


def test_one_works_and_all_get_what_it_made() -> None:
    store, made = MemoryStore(), []
    with ThreadPoolExecutor(8) as threads:
        got = set(threads.map(lambda i: joined(store, made, b"%d" % i), range(8)))
    assert len(made) == 1
    assert got == set(made)


def test_a_leader_that_dies_is_replaced() -> None:
    store, made = MemoryStore(), []
    store.claim("one", "the dead", 0.4)
    began = time.monotonic()
    assert joined(store, made, b"second", seconds=0) == b"second"
    assert 0.3 < time.monotonic() - began < 5


def test_a_leader_that_works_for_longer_than_its_lease_renews_it() -> None:
    store, made = MemoryStore(), []
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(joined, store, made, b"slow", lease=0.3, seconds=1.2)
        time.sleep(0.1)
        other = threads.submit(joined, store, made, b"quick", lease=0.3, seconds=0)
        assert {slow.result(), other.result()} == {b"slow"}
    assert made == [b"slow"]


def test_who_has_waited_long_enough_goes_on_without() -> None:
    store, made = MemoryStore(), []
    store.claim("one", "somebody", 60)
    began = time.monotonic()
    assert joined(store, made, b"mine", patience=0.3) is None
    assert time.monotonic() - began < 3
    assert made == []


def test_an_exception_of_the_leader_frees_the_next() -> None:
    store = MemoryStore()
    with pytest.raises(ZeroDivisionError):
        Flight(store, "one", patience=9).join(lambda: 1 // 0, lambda: None)
    assert joined(store, [], b"next", patience=0.2, seconds=0) == b"next"


class Down(MemoryStore):
    def claim(self, *given):
        raise StoreError("down")

    release = claim


def test_a_store_that_grants_no_lease_makes_everybody_lead(caplog) -> None:
    assert joined(Down(), [], b"mine", seconds=0) == b"mine"
    assert "going on without" in caplog.text
    assert Flight(object(), "one", patience=1).join(lambda: 7, lambda: None) == 7


def test_no_thread_is_left_behind() -> None:
    joined(MemoryStore(), [], b"x", seconds=0, lease=0.3)
    time.sleep(0.5)
    assert not [thread for thread in threading.enumerate() if thread.name == "tunewright leases"]
