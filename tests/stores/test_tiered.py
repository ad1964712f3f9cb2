"""Layers hand on what stores also offer: to the farthest that does, and without fail."""

import pytest

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.stores.memory import MemoryStore
from tunewright.stores.redis import RedisStore
from tunewright.stores.statistics import MissRecord, RetentionLimits, StoreStats
from tunewright.stores.tiered import TieredStore
from tunewright.testing.capability_kit import LeaseContract, MissContract, NamespaceContract, RevisionContract
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key
from tunewright.testing.store_kit import StoreContract

CONV = other_decision(key=other_key(kernel="conv"))
LARGER = other_decision(key=other_key(signature=KEY.signature.__class__(KEY.signature.args, {"M": 9, "K": 9, "N": 9})))


class TestLayersOfMemoryAndRedis(StoreContract, LeaseContract, NamespaceContract, MissContract):
    @pytest.fixture
    def store(self, redis_location):
        return TieredStore(MemoryStore(), RedisStore.at(redis_location))


class TestLayersWithADeadRemote(StoreContract, LeaseContract, NamespaceContract, MissContract, RevisionContract):
    @pytest.fixture
    def store(self):
        return TieredStore(MemoryStore(), Dead())


class Dead(MemoryStore):
    def __getattribute__(self, name):
        if name.startswith("_"):
            return super().__getattribute__(name)
        raise StoreError("dead")


class Plain:
    """A store that offers nothing else."""


def test_a_lease_is_taken_in_the_farthest_layer_that_gives_any() -> None:
    near, far = MemoryStore(), MemoryStore()
    store = TieredStore(near, far, Plain())
    assert store.claim("gemm", "me", 60)
    assert not far.claim("gemm", "you", 60)
    assert near.claim("gemm", "you", 60)


def test_where_no_layer_gives_leases_everyone_has_one() -> None:
    store = TieredStore(Plain())
    assert store.claim("gemm", "me", 60)
    assert store.claim("gemm", "you", 60)
    store.release("gemm", "me")


def test_a_lease_that_fails_is_a_lease() -> None:
    store = TieredStore(Dead(), Dead())
    assert store.claim("gemm", "me", 60)
    assert store.claim("gemm", "you", 60)
    store.release("gemm", "me")


def test_where_nothing_is_offered_lists_are_empty_and_nothing_is_kept() -> None:
    store = TieredStore(Plain())
    store.record_misses([MissRecord(KEY)])
    assert list(store.misses()) == list(store.history(KEY)) == list(store.entries("s")) == list(store.faults()) == []
    assert store.keep("s", "n", b"body") == b"body"
    assert store.fetch("s", ["n"]) == {}
    assert store.clear("s") == 0
    assert store.stats() == store.trim(RetentionLimits()) == StoreStats()


def test_relatives_come_from_all_layers_each_once_the_nearest_first() -> None:
    near, far = MemoryStore(), MemoryStore()
    mine = other_decision(config=Config(tile=8))
    near.put(mine)
    far.put(DECISION)
    far.put(LARGER)
    far.put(CONV)
    store = TieredStore(near, Dead(), far)
    assert list(store.relatives(KEY)) == [mine, LARGER]
    assert list(store.relatives(KEY, limit=1)) == [mine]


def test_a_far_hit_fills_the_nearer_layers_and_a_far_entry_does_not() -> None:
    near, far = MemoryStore(), MemoryStore()
    far.put(DECISION)
    far.keep("s", "n", b"body", seconds=60)
    store = TieredStore(near, far)
    assert store.get(KEY) == near.get(KEY) == DECISION
    assert store.fetch("s", ["n"]) == {"n": b"body"}
    assert near.fetch("s", ["n"]) == {}
