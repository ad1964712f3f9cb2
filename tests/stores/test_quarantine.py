"""What was found bad on this machine is passed over here, and nothing else is."""

import logging
import threading

import msgspec
import pytest

from tunewright import Config, Knob, Session, Space
from tunewright.errors import StoreError
from tunewright.model.decision import Problem, Tier
from tunewright.stores.bundle import BundleStore, verify_bundle
from tunewright.stores.bundle.build import build, write
from tunewright.stores.bundle.quarantine import Quarantine
from tunewright.stores.memory import MemoryStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

LARGER = other_key(signature=msgspec.structs.replace(KEY.signature, dims={"M": 1024, "K": 256, "N": 128}))
BESIDE = other_decision(key=LARGER, config=DECISION.config.with_value("tile", 32))
SPACE = Space(Knob("tile", [64, 32, 16]), Knob("fast", [True]), Knob("order", ["ikj"]), Knob("share", [0.5]))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.bundle"


@pytest.fixture
def opened(path):
    digest = write(path, build([DECISION, BESIDE]))
    return lambda: BundleStore(verify_bundle(path, pin=digest))


def test_an_entry_in_quarantine_is_a_miss_for_every_way_to_ask(opened, tmp_path, caplog) -> None:
    store = opened()
    Quarantine(tmp_path, store.digest).add(KEY.digest, DECISION.config, "it is wrong here")
    assert store.get(KEY) == DECISION
    store.apply_quarantine(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert store.get(KEY) is None
        assert store.get_many([KEY, LARGER]) == {LARGER: BESIDE}
        assert list(store.relatives(KEY)) == [BESIDE]
    assert caplog.text.count("found bad on this machine") == 1
    assert "it is wrong here" in caplog.text
    assert {decision.key for decision in store.decisions()} == {KEY, LARGER}


def test_the_next_tier_answers(opened, tmp_path) -> None:
    store, problem = opened(), Problem(KEY, SPACE, SPACE.first)
    assert Session(mode="frozen", store=TieredStore(MemoryStore(), store)).lookup_or_policy(problem).tier is Tier.EXACT
    Quarantine(tmp_path, store.digest).add(KEY.digest, DECISION.config, "slow")
    store.apply_quarantine(tmp_path)
    nearest = Session(mode="frozen", store=TieredStore(MemoryStore(), store)).lookup_or_policy(problem)
    assert (nearest.tier, nearest.config) == (Tier.NEAREST, BESIDE.config)
    behind = MemoryStore()
    behind.put(other_decision(config=DECISION.config.with_value("tile", 16)))
    healed = Session(mode="frozen", store=TieredStore(MemoryStore(), store, behind)).lookup_or_policy(problem)
    assert (healed.tier, healed.config["tile"]) == (Tier.EXACT, 16)


def test_a_session_heeds_the_quarantine_in_its_cache(opened, tmp_path) -> None:
    store, cache = opened(), tmp_path / "cache"
    Quarantine(cache, store.digest).add(KEY.digest, DECISION.config, "slow")
    settings = {"mode": "frozen", "store": f"bundle:{store.path}?pin={store.digest}"}
    assert Session(cache=str(cache), **settings).store.get(KEY) is None
    assert Session(cache=str(tmp_path / "other"), **settings).store.get(KEY) == DECISION


def test_another_bundle_is_not_concerned(opened, tmp_path) -> None:
    store = opened()
    Quarantine(tmp_path, "0" * 64).add(KEY.digest, DECISION.config, "slow")
    store.apply_quarantine(tmp_path)
    assert store.get(KEY) == DECISION


def test_two_who_add_at_once_lose_nothing(tmp_path) -> None:
    quarantine = Quarantine(tmp_path, "0" * 64)
    keys = [f"{i:064x}" for i in range(40)]

    def add(mine):
        for digest in mine:
            quarantine.add(digest, Config(tile=1), "slow")

    threads = [threading.Thread(target=add, args=(keys[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(quarantine.entries()) == set(keys)


def test_one_that_cannot_be_read_is_not_taken_for_an_empty_one(opened, tmp_path) -> None:
    store = opened()
    quarantine = Quarantine(tmp_path, store.digest)
    quarantine.add(KEY.digest, DECISION.config, "slow")
    quarantine.path.write_bytes(quarantine.path.read_bytes()[:-9])
    with pytest.raises(StoreError, match=r"cannot be read.*bundle verify --here"):
        store.apply_quarantine(tmp_path)
