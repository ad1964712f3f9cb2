"""Redis as a store, on a real one."""

import os
import threading
import time

import pytest
import redis

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.stores import serialization
from tunewright.stores.capabilities import KeepsNamespaces, KeepsRevisions, RecordsMisses, SupportsLeases
from tunewright.stores.memory import MemoryStore
from tunewright.stores.records import with_checksum
from tunewright.stores.redis import PREFIX, TIMEOUT_SECONDS, RedisStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing import servers
from tunewright.testing.capability_kit import FillContract, LeaseContract, LogContract, MissContract, NamespaceContract
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED, other_decision, other_key
from tunewright.testing.store_kit import StoreContract


class TestRedis(StoreContract, LeaseContract, NamespaceContract, MissContract, FillContract, LogContract):
    @pytest.fixture
    def store(self, redis_location):
        return RedisStore.at(redis_location)


@pytest.fixture
def raw(redis_location):
    with redis.Redis.from_url(redis_location) as client:
        yield client


@pytest.fixture
def store(redis_location):
    return RedisStore.at(redis_location)


def commands(raw) -> dict[str, int]:
    seen = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in raw.info("commandstats").items()}
    return {name: calls for name, calls in seen.items() if name not in ("info", "config|resetstat")}


def test_it_offers_what_it_says(store) -> None:
    assert isinstance(store, SupportsLeases)
    assert isinstance(store, KeepsNamespaces)
    assert isinstance(store, RecordsMisses)
    assert not isinstance(store, KeepsRevisions)


def test_a_fresh_process_asks_for_all_its_keys_in_one_round_trip(redis_location, raw) -> None:
    keys = [other_key(mode={"size": str(i)}) for i in range(1000)]
    writer = RedisStore.at(redis_location)
    for key in keys:
        writer.put(other_decision(key=key))
    raw.config_resetstat()
    assert len(RedisStore.at(redis_location).get_many(keys)) == 1000
    assert commands(raw) == {"mget": 1}


def test_it_is_filled_by_one_round_trip(store, raw) -> None:
    store.fill([DECISION], {})  # which loads the script
    far = MemoryStore()
    far.fill([other_decision(key=other_key(mode={"size": str(i)})) for i in range(1000)])
    raw.config_resetstat()
    assert len(TieredStore(store, far).get_many(list(far.keys()))) == 1000
    seen = commands(raw)
    assert (seen["mget"], seen["evalsha"]) == (2, 1), "values, marks of changes, and one fill"
    assert len(store.get_many(list(far.keys()))) == 1000


def test_a_put_is_one_round_trip_whoever_wins(store, raw) -> None:
    store.put(DECISION)
    raw.config_resetstat()
    store.put(other_decision(config=Config(tile=8)), replace=False)
    assert commands(raw)["evalsha"] == 1


def test_damaged_and_foreign_values_are_misses_and_give_way(redis_location, store, raw, caplog) -> None:
    conv = other_key(kernel="conv")
    store.put(DECISION)
    store.put(other_decision(key=conv))
    place, value = f"{PREFIX}decision:{KEY.digest}", raw.get(f"{PREFIX}decision:{KEY.digest}")
    another = raw.get(f"{PREFIX}decision:{conv.digest}")
    flipped = value.replace(b'"tile":64', b'"tile":65')
    for damaged in (b"", b"\xff\x00", value[:-9], value[4:], flipped, another):
        raw.set(place, damaged)
        store = RedisStore.at(redis_location)
        assert store.get(KEY) is None
        assert store.get_many([KEY]) == {}
        assert KEY not in {decision.key for decision in store.decisions()}
        assert store.put(DECISION, replace=False) == DECISION
        assert store.get(KEY) == DECISION
    raw.delete(place)
    raw.rpush(place, "a list")
    raw.sadd(f"{PREFIX}kernel:gemm", "no digest")
    assert store.get(KEY) is None
    assert store.put(DECISION, replace=False) == DECISION
    assert list(store.decisions("gemm")) == [DECISION]
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 6, "said once by each"
    assert "skipping" in caplog.text


def test_a_decision_of_another_schema_is_a_miss(store, raw) -> None:
    store.put(DECISION)
    place = f"{PREFIX}decision:{KEY.digest}"
    body = raw.get(place)[:-4].replace(b'"schema":1', b'"schema":9')
    raw.set(place, with_checksum(body, bytes.fromhex(KEY.digest)))
    assert store.get(KEY) is None


def test_damaged_trials_keys_and_wants_are_passed_over(store, raw) -> None:
    conv = other_key(kernel="conv")
    store.record(KEY, [TIMED])
    store.record(conv, [FAILED])
    raw.rpush(f"{PREFIX}journal:{KEY.digest}", b"no trial", raw.lindex(f"{PREFIX}journal:{conv.digest}", 0))
    store.record(KEY, [TIMED, FAILED])
    assert list(store.trials(KEY)) == [TIMED, TIMED, FAILED]
    raw.hset(f"{PREFIX}journals:conv", conv.digest, serialization.dump_key(KEY))
    raw.hset(f"{PREFIX}journals:conv", "no digest", serialization.dump_key(conv))
    assert set(store.keys()) == {KEY}
    raw.hset(f"{PREFIX}wants", "00", b"no want")
    raw.zincrby(f"{PREFIX}wants:seconds", 5, "00")
    assert list(store.misses()) == []


def test_a_cache_forgets_and_its_lists_with_it(redis_location, raw, wait_until) -> None:
    store, place = RedisStore.at(f"{redis_location}?ttl=600"), f"{PREFIX}decision:{KEY.digest}"
    store.put(DECISION)
    assert list(store.relatives(KEY)) == [DECISION]
    assert 0 < raw.pttl(place) <= 600_000
    assert raw.pexpire(place, 1)
    wait_until(lambda: not raw.exists(place), "the end of what is kept for a millisecond")
    assert store.get(KEY) is None
    assert list(store.relatives(KEY)) == []
    assert list(store.decisions()) == []
    assert raw.scard(f"{PREFIX}kin:{KEY.related_digest}") == raw.scard(f"{PREFIX}kernel:gemm") == 0


def test_who_listens_is_told_which_decision_changed(store) -> None:
    heard = store.invalidations(0.2)
    assert next(heard) is None
    for tile in (8, 8, 16):
        store.put(other_decision(config=Config(tile=tile)))
    store.put(DECISION, replace=False)
    last = other_decision(key=other_key(kernel="conv"))
    store.put(last)
    told = iter(lambda: next(digest for digest in heard if digest), last.key.digest)
    assert list(told) == [KEY.digest, KEY.digest]
    assert next(heard) is None


def test_a_journal_of_many_batches_is_read_whole(store) -> None:
    for number in range(250):
        store.record(KEY, [TIMED] * (number % 3))
    assert sum(1 for _ in store.trials(KEY)) == sum(number % 3 for number in range(250))


def test_shelves_whose_names_run_together_are_kept_apart(store) -> None:
    store.keep("a:b", "c", b"1")
    store.keep("a", "b:c", b"2")
    assert store.fetch("a:b", ["c"]) == {"c": b"1"}
    assert store.fetch("a", ["b:c"]) == {"b:c": b"2"}


def test_a_long_shelf_is_listed_whole_and_cleared_to_size(store, wait_until) -> None:
    for number in range(2500):
        store.keep("squares", str(number), b"x", seconds=None if number % 2 else 0.2)
    wait_until(lambda: sum(1 for _ in store.entries("squares")) == 1250, "the end of every other one")
    assert store.clear("squares", keep=1200) == 50, "the expired ones are gone anyway"
    assert [name for name, _ in store.entries("squares")] == [str(n) for n in range(101, 2500, 2)]
    assert store.clear("squares") == 1200


def test_of_many_who_publish_at_once_the_first_stands_for_all(store) -> None:
    kept = []

    def publish(number):
        kept.append(store.put(other_decision(config=Config(tile=number)), replace=False))

    threads = [threading.Thread(target=publish, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({decision.config for decision in kept}) == 1


def test_a_forked_child_uses_connections_of_its_own(store) -> None:
    store.put(DECISION)
    child = os.fork()
    if not child:
        os._exit(0 if all(store.get(KEY) == DECISION for _ in range(50)) else 1)
    assert all(store.get(KEY) == DECISION for _ in range(50))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_socket_file_serves_too(tmp_path) -> None:
    with servers.redis(tmp_path / "files", "--unixsocket", str(tmp_path / "sock")):
        store = RedisStore.at(f"unix://{tmp_path / 'sock'}?db=1&ttl=60")
        store.put(DECISION)
        assert store.get(KEY) == DECISION


def test_no_password_is_shown_and_what_to_do_is_said() -> None:
    store = RedisStore.at("redis://me:secret@127.0.0.1:1/0?socket_timeout=0.1")
    with pytest.raises(StoreError, match=r"cannot read redis://127.0.0.1:1/0.*set another `store`") as raised:
        store.get(KEY)
    assert "secret" not in str(raised.value)
    with pytest.raises(StoreError, match="ttl='soon'"):
        RedisStore.at("redis://me:secret@localhost/0?ttl=soon")
    with pytest.raises(StoreError, match="not a valid location of a Redis"):
        RedisStore.at("redis://localhost/0?socket_timeout=soon")
    with pytest.raises(StoreError, match=r"not a valid location of a Redis"):
        RedisStore.at("redis://localhost/0?nonsense=1")


@pytest.mark.clock("0.5 s beyond the stated second")
def test_a_frozen_server_costs_no_more_than_the_stated_second(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tunewright.stores.redis.TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    with servers.redis(tmp_path / "files") as server:
        store = RedisStore.at(server.location)
        store.put(DECISION)
        server.freeze()
        for asked in (store, RedisStore.at(server.location)):
            began = time.monotonic()
            with pytest.raises(StoreError, match=r"[Tt]imeout"):
                asked.get(KEY)
            assert time.monotonic() - began < 1.5


@pytest.mark.slow
def test_a_server_that_was_frozen_or_restarted_is_used_again(tmp_path) -> None:
    with servers.redis(tmp_path / "files") as server:
        store = RedisStore.at(f"{server.location}?socket_timeout=4")  # it must answer within that when it runs
        store.put(DECISION)
        server.freeze()
        with pytest.raises(StoreError, match=r"[Tt]imeout"):
            store.get(KEY)
        server.thaw()
        assert store.get(KEY) == DECISION
        server.restart()
        assert store.get(KEY) is None, "it kept nothing, and a connection to the old one is not used"
