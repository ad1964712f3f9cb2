"""Contract tests of stores: subclass `StoreContract` and define the fixture `store`."""

from __future__ import annotations

import msgspec

from tunewright.ports.store import Store
from tunewright.spaces.config import Config
from tunewright.stores import serialization
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED, other_decision, other_key


class StoreContract:
    """Tests of what `ports.store.Store` promises."""

    def test_an_unknown_key_is_a_miss(self, store: Store) -> None:
        assert store.get(KEY) is None
        assert store.get_many([KEY]) == {}
        assert list(store.trials(KEY)) == []

    def test_what_is_put_can_be_got_byte_for_byte(self, store: Store) -> None:
        assert store.put(DECISION) == DECISION
        found = store.get(KEY)
        assert found is not None
        assert serialization.dump_decision(found) == serialization.dump_decision(DECISION)

    def test_a_later_put_replaces(self, store: Store) -> None:
        store.put(DECISION)
        better = other_decision(config=Config(tile=8))
        assert store.put(better) == better
        assert store.get(KEY) == better

    def test_put_if_absent_keeps_and_returns_the_first(self, store: Store) -> None:
        assert store.put(DECISION, replace=False) == DECISION
        assert store.put(other_decision(config=Config(tile=8)), replace=False) == DECISION
        assert store.get(KEY) == DECISION

    def test_another_toolchain_is_a_miss(self, store: Store) -> None:
        store.put(DECISION)
        assert store.get(other_key(toolchain={"compiler": "gcc 13"})) is None

    def test_many_keys_are_answered_together(self, store: Store) -> None:
        keys = [other_key(mode={"threads": str(i)}) for i in range(1200)]
        for key in keys[::3]:
            store.put(other_decision(key=key))
        assert set(store.get_many(keys)) == set(keys[::3])

    def test_decisions_are_listed_once_each_and_by_kernel(self, store: Store) -> None:
        store.put(DECISION)
        store.put(DECISION)
        conv = other_decision(key=other_key(kernel="conv"))
        store.put(conv)
        assert sorted(d.key.kernel for d in store.decisions()) == ["conv", "gemm"]
        assert list(store.decisions("conv")) == [conv]
        assert list(store.decisions("nope")) == []

    def test_relatives_differ_in_sizes_and_model_alone(self, store: Store) -> None:
        larger = other_key(signature=msgspec.structs.replace(KEY.signature, dims={"M": 1024, "K": 256, "N": 128}))
        sibling = other_key(device=msgspec.structs.replace(KEY.device, model="Other CPU", limits={"cores": 4}))
        for key in (KEY, larger, sibling, other_key(source="4567"), other_key(mode={}), other_key(kernel="conv")):
            store.put(other_decision(key=key))
        assert {decision.key for decision in store.relatives(KEY)} == {KEY, larger, sibling}
        assert len(list(store.relatives(KEY, limit=2))) == 2

    def test_trials_come_back_in_order_with_their_reasons(self, store: Store) -> None:
        store.record(KEY, [TIMED])
        store.record(KEY, [FAILED, TIMED])
        store.record(other_key(kernel="conv"), [FAILED])
        assert list(store.trials(KEY)) == [TIMED, FAILED, TIMED]

    def test_a_long_journal_is_read_whole(self, store: Store) -> None:
        store.record(KEY, [TIMED] * 2500)
        assert sum(1 for _ in store.trials(KEY)) == 2500

    def test_keys_with_only_trials_are_known_too(self, store: Store) -> None:
        conv = other_key(kernel="conv")
        store.put(DECISION)
        store.record(KEY, [TIMED])
        store.record(conv, [TIMED])
        assert set(store.keys()) == {KEY, conv}
        assert set(store.keys("conv")) == {conv}
