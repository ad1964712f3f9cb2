"""How long a lease and an entry last, by the clock of each store."""

import time

import pytest

from tunewright.stores.memory import MemoryStore
from tunewright.stores.redis import RedisStore
from tunewright.stores.sqlite import SqliteStore

LASTS, LATE = 0.6, 0.3


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryStore()
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "store.sqlite")
    if request.param == "redis":
        return RedisStore.at(request.getfixturevalue("redis_location"))
    from tunewright.stores.postgres import PostgresStore

    return PostgresStore(request.getfixturevalue("postgres_location"))


def lasted(begin, ended) -> tuple[float, float]:
    """Seconds that something surely lasted, and those after which it had surely ended."""
    before = time.monotonic()
    begin()
    after = time.monotonic()
    while not ended():
        time.sleep(0.01)
    now = time.monotonic()
    return now - before, now - after


@pytest.mark.clock("never less than 0.6 s, and at most 0.3 s longer")
def test_a_lease_lasts_as_long_as_it_says_from_when_it_was_renewed(store) -> None:
    store.claim("gemm", "me", LASTS)
    time.sleep(LASTS / 2)
    most, least = lasted(lambda: store.claim("gemm", "me", LASTS), lambda: store.claim("gemm", "you", 60))
    assert most >= LASTS
    assert least < LASTS + LATE


@pytest.mark.clock("never less than 0.6 s, and at most 0.3 s longer")
def test_an_entry_lasts_as_long_as_it_says(store) -> None:
    store.fetch("squares", ["3"])
    most, least = lasted(
        lambda: store.keep("squares", "3", b"9", seconds=LASTS), lambda: not store.fetch("squares", ["3"])
    )
    assert most >= LASTS
    assert least < LASTS + LATE
