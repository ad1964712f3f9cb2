"""A remote that is slow, dead, or back again: nothing waits, nothing is lost."""

import gc
import time

import pytest

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.stores.capabilities import (
    KeepsNamespaces,
    KeepsRevisions,
    RecordsMisses,
    SupportsLeases,
    SupportsMaintenance,
)
from tunewright.stores.circuit_breaker import CircuitBreakerStore
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import CATCH_UP_SECONDS, PENDING, MirrorStore
from tunewright.stores.redis import TIMEOUT_SECONDS, RedisStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing import servers
from tunewright.testing.capability_kit import LeaseContract, MissContract, NamespaceContract, RevisionContract
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED, other_decision, other_key
from tunewright.testing.store_kit import StoreContract

CONV = other_decision(key=other_key(kernel="conv"))
LATER = other_decision(config=Config(tile=8))
OTHERS = other_decision(config=Config(tile=16))


class Line(MemoryStore):
    """A remote whose line can be cut."""

    cut = False

    def __getattribute__(self, name):
        if not name.startswith("_") and name != "cut" and self.cut:
            raise StoreError("the line is cut")
        return super().__getattribute__(name)


@pytest.fixture
def remote():
    return Line()


@pytest.fixture
def local():
    return MemoryStore()


@pytest.fixture
def store(remote, local):
    return MirrorStore(remote, local)


class TestMirrored(StoreContract, LeaseContract, NamespaceContract, MissContract, RevisionContract):
    @pytest.fixture
    def store(self, redis_location):
        return MirrorStore(CircuitBreakerStore(RedisStore.at(redis_location)), MemoryStore())


class TestMirroredWithADeadRemote(StoreContract, LeaseContract, NamespaceContract, MissContract, RevisionContract):
    @pytest.fixture
    def store(self):
        dead = RedisStore.at("redis://127.0.0.1:1/0")
        return MirrorStore(CircuitBreakerStore(dead), MemoryStore())


def test_what_was_read_once_is_answered_without_the_remote(store, remote, local) -> None:
    remote.put(DECISION)
    remote.put(CONV)
    assert store.get_many([KEY, CONV.key]) == {KEY: DECISION, CONV.key: CONV}
    remote.cut = True
    assert store.get(KEY) == DECISION
    assert list(store.decisions("conv")) == [CONV]
    assert list(store.relatives(KEY)) == [DECISION]
    assert set(store.keys()) == {KEY, CONV.key}


def test_what_is_read_is_written_locally_only_where_that_differs(store, remote, local) -> None:
    remote.put(DECISION)
    for _ in range(3):
        store.get(KEY)
    remote.put(LATER)
    store.get(KEY)
    assert [generation.decision for generation in local.history(KEY)] == [DECISION, LATER]


def test_a_remote_that_says_no_is_believed(store, remote, local) -> None:
    local.put(DECISION)
    assert store.get(KEY) is None


def test_writes_during_an_outage_are_sent_on_with_the_next_write(store, remote) -> None:
    remote.cut = True
    assert store.put(DECISION, replace=False) == DECISION
    store.record(KEY, [TIMED, FAILED])
    store.record(KEY, [TIMED])
    assert list(store.trials(KEY)) == [TIMED, FAILED, TIMED]
    remote.cut = False
    assert list(remote.decisions()) == []
    assert store.get(KEY) == DECISION, "known here, although the remote has not heard of it"
    assert list(store.decisions()) == list(store.relatives(KEY)) == [DECISION]
    assert list(store.trials(KEY)) == [TIMED, FAILED, TIMED]
    assert list(store.keys()) == [KEY]
    store.put(CONV)
    assert remote.get(KEY) == DECISION
    assert list(remote.trials(KEY)) == list(store.trials(KEY)) == [TIMED, FAILED, TIMED]
    assert store.send_pending() == 0, "once"


def test_another_process_sends_on_what_the_first_could_not(store, remote, local) -> None:
    remote.cut = True
    store.put(DECISION)
    store.record(CONV.key, [TIMED])
    with pytest.raises(StoreError, match="the line is cut"):
        store.send_pending()
    remote.cut = False
    assert MirrorStore(remote, local).send_pending() == 2
    assert remote.get(KEY) == DECISION
    assert list(remote.trials(CONV.key)) == [TIMED]
    assert list(local.entries(PENDING)) == []


def test_while_one_process_sends_another_does_not(store, remote, local) -> None:
    remote.cut = True
    store.put(DECISION)
    remote.cut = False
    local.claim(PENDING, "another process", 60)
    assert store.send_pending() == 0
    assert store.put(CONV) == CONV, "and it does not wait"
    local.release(PENDING, "another process")
    assert store.send_pending() == 1
    assert remote.get(KEY) == DECISION


def test_whoever_published_first_stands_when_the_line_is_back(store, remote, local) -> None:
    remote.cut = True
    store.put(DECISION, replace=False)
    remote.cut = False
    remote.put(OTHERS)
    assert store.get(KEY) == OTHERS
    store.send_pending()
    assert remote.get(KEY) == local.get(KEY) == OTHERS


def test_what_was_tuned_again_replaces_what_it_was_to_replace(store, remote, local) -> None:
    store.put(DECISION)
    remote.cut = True
    store.put(OTHERS)
    store.put(LATER)
    remote.cut = False
    assert store.get(KEY) == LATER
    store.send_pending()
    assert remote.get(KEY) == local.get(KEY) == LATER


def test_what_was_tuned_again_gives_way_to_what_others_made_of_it_meanwhile(store, remote, local) -> None:
    store.put(DECISION)
    remote.cut = True
    store.put(LATER)
    remote.cut = False
    remote.put(OTHERS)
    assert store.get(KEY) == OTHERS
    store.send_pending()
    assert remote.get(KEY) == local.get(KEY) == OTHERS


def test_a_local_store_that_fails_is_no_reason_to_do_without_the_remote(remote) -> None:
    local = Line()
    local.cut = True
    store = MirrorStore(remote, local)
    remote.put(CONV)
    assert store.get(CONV.key) == CONV
    assert store.put(DECISION) == DECISION
    store.record(KEY, [TIMED])
    assert list(store.trials(KEY)) == [TIMED]
    remote.cut = True
    with pytest.raises(StoreError):
        store.get(KEY)


def test_what_cannot_be_read_is_not_sent_and_not_in_the_way(store, remote, local) -> None:
    local.keep(PENDING, "torn", b'{"key":')
    remote.cut = True
    store.put(DECISION)
    remote.cut = False
    assert store.send_pending() == 1
    assert remote.get(KEY) == DECISION


def test_it_offers_what_either_of_the_two_offers(redis_location) -> None:
    store = MirrorStore(CircuitBreakerStore(RedisStore.at(redis_location)), MemoryStore())
    assert all(isinstance(store, offer) for offer in (SupportsLeases, RecordsMisses, KeepsRevisions, KeepsNamespaces))
    assert not isinstance(store, SupportsMaintenance)


def test_a_lease_taken_during_an_outage_is_given_back_everywhere(store, remote, local) -> None:
    remote.cut = True
    assert store.claim("gemm", "me", 60)
    assert not store.claim("gemm", "you", 60)
    remote.cut = False
    store.release("gemm", "me")
    assert local.claim("gemm", "you", 60)


def test_an_outage_is_said_aloud_once(store, remote, caplog) -> None:
    for _ in range(2):
        remote.cut = True
        store.get(KEY)
        store.get(KEY)
        remote.cut = False
        store.get(KEY)
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "using the local mirror: the line is cut"
    ] * 2


def test_a_real_remote_dies_in_between_and_nothing_is_lost(tmp_path) -> None:
    clock = [0.0]
    with servers.redis(tmp_path / "files", fsync=True) as server:
        store = MirrorStore(CircuitBreakerStore(RedisStore.at(server.location), clock=lambda: clock[0]), MemoryStore())
        store.put(DECISION)
        server.kill()
        store.put(CONV)
        store.record(KEY, [TIMED])
        assert store.get_many([KEY, CONV.key]) == {KEY: DECISION, CONV.key: CONV}
        server.start()
        clock[0] += 60
        assert store.send_pending() == 2
        fresh = RedisStore.at(server.location)
        assert fresh.get_many([KEY, CONV.key]) == {KEY: DECISION, CONV.key: CONV}
        assert list(fresh.trials(KEY)) == [TIMED]


def test_connections_are_closed_with_their_store_even_if_it_failed(tmp_path, monkeypatch) -> None:
    left_open: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", left_open.append)
    with servers.redis(tmp_path / "files") as server:
        store = MirrorStore(CircuitBreakerStore(RedisStore.at(server.location)), MemoryStore())
        store.put(DECISION)
        server.kill()
        store.put(CONV)  # the traceback of what fails here holds the store in a cycle
        server.start()
        other = RedisStore.at(server.location)
        other.put(CONV)
        del store, other
        gc.collect()
    assert left_open == []


def test_a_frozen_remote_is_asked_once_and_then_left_alone(tmp_path, monkeypatch) -> None:
    with servers.redis(tmp_path / "files") as server:
        remote, asked = RedisStore.at(f"{server.location}?socket_timeout=0.3"), []
        monkeypatch.setattr(remote, "get_many", lambda keys, get=remote.get_many: asked.append(keys) or get(keys))
        local = MemoryStore()
        local.put(DECISION)
        server.freeze()
        store = MirrorStore(CircuitBreakerStore(remote, clock=lambda: 0.0), local)
        for _ in range(20):
            assert store.get(KEY) == DECISION
        assert asked == [[KEY]]


@pytest.mark.clock("0.5 s beyond the time-out of 1 s for the first call, 0.1 s for each later one")
def test_a_frozen_remote_costs_one_time_out_and_then_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tunewright.stores.redis.TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    with servers.redis(tmp_path / "files") as server:
        store = MirrorStore(CircuitBreakerStore(RedisStore.at(server.location)), MemoryStore())
        store.put(DECISION)
        server.freeze()
        took = []
        for _ in range(20):
            began = time.monotonic()
            assert store.get(KEY) == DECISION
            took.append(time.monotonic() - began)
        assert took[0] < 1.5
        assert max(took[1:]) < 0.1


def test_a_mirror_that_cannot_be_used_is_said_once(tmp_path, caplog) -> None:
    (tmp_path / "file").touch()
    remote = MemoryStore()
    store = MirrorStore(remote, SqliteStore(tmp_path / "file" / "mirror.sqlite"))
    for _ in range(3):
        assert store.put(DECISION) == DECISION
        assert store.get(KEY) == DECISION
    (said,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "skipped" in said


class Slow(MemoryStore):
    """A remote that takes its time to keep something, once it is up: 0.05 s of `now`."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.now = False, 0.0

    def get_many(self, keys):
        if not self.up:
            raise StoreError("down")
        return super().get_many(keys)

    def put(self, decision, *, replace=True):
        if not self.up:
            raise StoreError("down")
        self.now += 0.05
        return super().put(decision, replace=replace)


def test_no_write_is_held_up_until_all_that_is_owed_is_sent(tmp_path) -> None:
    remote = Slow()
    store = MirrorStore(remote, SqliteStore(tmp_path / "mirror.sqlite"), clock=lambda: remote.now)
    owed = [other_decision(key=other_key(mode={"number": str(number)})) for number in range(40)]
    for decision in owed:
        store.put(decision)
    remote.up = True
    assert store.put(other_decision(key=owed[-1].key, config=Config(tile=1)), replace=False) == owed[-1]
    assert CATCH_UP_SECONDS <= remote.now < CATCH_UP_SECONDS + 0.2
    assert 1 < len(list(remote.decisions())) < 30
    for number in range(20):
        store.put(other_decision(key=other_key(mode={"later": str(number)})))
    assert list(remote.get_many([decision.key for decision in owed]).values()) == owed
