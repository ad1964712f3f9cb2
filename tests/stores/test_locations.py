"""Locations in words, and what becomes of them when a server is not there."""

import time

import pytest

from tunewright import Config
from tunewright.errors import PluginError, StoreError
from tunewright.stores.capabilities import KeepsNamespaces, RecordsMisses, SupportsLeases
from tunewright.stores.locations import open_store
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import MirrorStore
from tunewright.stores.redis import RedisStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing import servers
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key

CONV = other_decision(key=other_key(kernel="conv"))
NOWHERE = "redis://127.0.0.1:1/0"


def test_a_path_is_sqlite_even_with_blanks_in_it(tmp_path) -> None:
    path = tmp_path / "my own store.sqlite"
    store = open_store(str(path), tmp_path / "mirror")
    assert isinstance(store, SqliteStore)
    store.put(DECISION)
    assert path.exists()
    assert not (tmp_path / "mirror").exists()
    assert isinstance(open_store(f"sqlite:{path}", tmp_path / "mirror"), SqliteStore)
    assert isinstance(open_store("memory:", tmp_path / "mirror"), MemoryStore)


def test_a_remote_is_mirrored(tmp_path, redis_location) -> None:
    store = open_store(redis_location, tmp_path / "mirror")
    assert isinstance(store, MirrorStore)
    store.put(DECISION)
    assert RedisStore.at(redis_location).get(KEY) == SqliteStore(tmp_path / "mirror").get(KEY) == DECISION


def test_several_places_are_layers_and_the_farthest_is_mirrored(tmp_path, redis_location) -> None:
    other = redis_location.removesuffix("0") + "1"
    path = tmp_path / "near by"
    store = open_store(f"  {path}\n {redis_location}?ttl=60  {other} ", tmp_path / "mirror")
    assert isinstance(store, TieredStore)
    assert all(isinstance(store, offer) for offer in (SupportsLeases, RecordsMisses, KeepsNamespaces))
    RedisStore.at(other).put(DECISION)
    assert store.get(KEY) == DECISION
    for place in (SqliteStore(path), RedisStore.at(redis_location), SqliteStore(tmp_path / "mirror")):
        assert place.get(KEY) == DECISION, "a far hit fills what is nearer"


def test_what_cannot_be_a_location_says_why(tmp_path) -> None:
    with pytest.raises(StoreError, match="there is a blank in"):
        open_store(f"{NOWHERE} sqlite:elsewhere", tmp_path / "mirror")
    with pytest.raises(PluginError, match="no stores named 'gopher'"):
        open_store("gopher://host/1", tmp_path / "mirror")


def test_a_server_that_was_never_there_is_done_without(tmp_path) -> None:
    store = open_store(f"{NOWHERE} redis://127.0.0.1:2/0", tmp_path / "mirror")
    assert store.get(KEY) is None
    assert store.put(DECISION) == DECISION
    store.record(KEY, [TIMED])
    assert store.claim("gemm", "me", 60)
    store.release("gemm", "me")
    assert store.get(KEY) == DECISION
    assert list(store.trials(KEY)) == [TIMED]


@pytest.mark.clock("within 1 s for seven calls")
def test_a_server_that_was_never_there_holds_nothing_up(tmp_path) -> None:
    began = time.monotonic()
    store = open_store(f"{NOWHERE} redis://127.0.0.1:2/0", tmp_path / "mirror")
    store.put(DECISION)
    store.record(KEY, [TIMED])
    store.claim("gemm", "me", 60)
    store.release("gemm", "me")
    for _ in range(3):
        store.get(KEY)
    assert time.monotonic() - began < 1


def test_what_one_process_could_not_send_the_next_one_does(tmp_path) -> None:
    with servers.redis(tmp_path / "files") as server:
        server.stop()
        open_store(server.location, tmp_path / "mirror").put(DECISION)
        server.start()
        store = open_store(server.location, tmp_path / "mirror")
        assert store.get(KEY) == DECISION
        store.put(CONV)
        assert RedisStore.at(server.location).get_many([KEY, CONV.key]) == {KEY: DECISION, CONV.key: CONV}
        assert open_store(server.location, tmp_path / "mirror").send_pending() == 0


def test_while_a_cache_is_frozen_the_truth_goes_on(tmp_path, redis_location) -> None:
    with servers.redis(tmp_path / "files") as cache:
        store = open_store(f"{cache.location}?socket_timeout=0.3 {redis_location}", tmp_path / "mirror")
        store.put(DECISION)
        cache.freeze()
        for _ in range(10):
            assert store.get(KEY) == DECISION
        assert store.put(CONV) == CONV
        assert RedisStore.at(redis_location).get(CONV.key) == CONV


def test_what_a_frozen_cache_may_still_have_is_not_replaced_behind_its_back(tmp_path, redis_location) -> None:
    later = other_decision(config=Config(tile=8))
    with servers.redis(tmp_path / "files") as cache:
        location = f"{cache.location}?socket_timeout=0.3 {redis_location}"
        open_store(location, None).put(DECISION)
        cache.freeze()
        with pytest.raises(StoreError, match="is not replaced: a cache that may have the old one cannot be told"):
            open_store(location, None).put(later)
        assert RedisStore.at(redis_location).get(KEY) == DECISION
        cache.thaw()
        assert open_store(location, None).put(later) == later
        assert open_store(location, None).get(KEY) == RedisStore.at(redis_location).get(KEY) == later


@pytest.mark.clock("0.3 s beyond the time-out of 0.3 s for the first call, 0.1 s for each later one")
def test_a_cache_that_freezes_costs_one_time_out(tmp_path, redis_location) -> None:
    with servers.redis(tmp_path / "files") as cache:
        store = open_store(f"{cache.location}?socket_timeout=0.3 {redis_location}", tmp_path / "mirror")
        store.put(DECISION)
        cache.freeze()
        took = []
        for _ in range(10):
            began = time.monotonic()
            assert store.get(KEY) == DECISION
            took.append(time.monotonic() - began)
        assert took[0] < 0.6
        assert max(took[1:]) < 0.1
