"""A cache never has what the record of truth has replaced: not by a late fill, not by a lost write, not by chance."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.stores import choice_digest
from tunewright.stores.choice_digest import Choices
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import PENDING, MirrorStore
from tunewright.stores.redis import RedisStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

GOOD = other_decision(config=Config(tile=8))


@pytest.fixture(params=["memory", "sqlite", "redis"])
def cache(request, tmp_path):
    if request.param == "redis":
        return RedisStore.at(request.getfixturevalue("redis_location"))
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "cache.sqlite")


class HeldUp:
    """A record of truth whose answer to one host comes late."""

    def __init__(self, store):
        self._store, self.answered, self.go_on = store, threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def get_many(self, keys):
        found = self._store.get_many(keys)
        self.answered.set()
        self.go_on.wait(60)
        return found


def test_a_late_fill_does_not_undo_a_rollback(cache) -> None:
    truth = MemoryStore()
    truth.put(DECISION)
    slow = HeldUp(truth)
    late = threading.Thread(target=lambda: TieredStore(cache, slow).get(KEY))
    late.start()
    slow.answered.wait(60)
    TieredStore(cache, truth).put(GOOD)
    slow.go_on.set()
    late.join()
    assert TieredStore(cache, truth).get(KEY) == GOOD
    assert cache.get(KEY) == GOOD


def test_a_rollback_that_a_cache_was_not_told_is_not_reported_as_done(cache) -> None:
    truth = MemoryStore()
    for store in (truth, cache):
        store.put(DECISION)

    class Flaky(type(cache)):
        def forget(self, keys, seconds):
            raise StoreError("timeout")

    flaky = Flaky.__new__(Flaky)
    flaky.__dict__ = cache.__dict__
    with pytest.raises(StoreError, match="is not replaced"):
        TieredStore(flaky, truth).put(GOOD)
    assert truth.get(KEY) == TieredStore(cache, truth).get(KEY) == DECISION


def test_a_cache_that_fails_after_it_was_told_is_not_stale(cache) -> None:
    truth = MemoryStore()
    for store in (truth, cache):
        store.put(DECISION)

    class Flaky(type(cache)):
        def fill(self, decisions, token=None):
            raise StoreError("timeout")

    flaky = Flaky.__new__(Flaky)
    flaky.__dict__ = cache.__dict__
    assert TieredStore(flaky, truth).put(GOOD) == GOOD
    assert TieredStore(cache, truth).get(KEY) == GOOD


def test_of_two_changes_at_once_neither_is_cached(cache) -> None:
    first, second = cache.forget([KEY], 60), cache.forget([KEY], 60)
    assert cache.fill([DECISION], first) == cache.fill([GOOD], second) == 0
    assert cache.fill([GOOD], cache.fill_token([KEY])) == 0
    assert cache.get(KEY) is None


def test_an_honest_fill_is_kept_and_so_is_a_change(cache) -> None:
    assert cache.fill([DECISION], cache.fill_token([KEY])) == 1
    assert cache.fill([GOOD], cache.forget([KEY], 60)) == 1
    assert cache.get(KEY) == GOOD


def test_a_write_that_comes_while_others_are_sent_is_not_forgotten(tmp_path) -> None:
    class Remote(MemoryStore):
        up = False

        def get(self, key):
            return self._checked(super().get)(key)

        def put(self, decision, *, replace=True):
            return self._checked(super().put)(decision, replace=replace)

        def _checked(self, call):
            if not self.up:
                raise StoreError("down")
            return call

    def decision(number):
        return other_decision(key=other_key(mode={"number": str(number)}))

    remote, local = Remote(), SqliteStore(tmp_path / "mirror.sqlite")
    store = MirrorStore(remote, local)
    store.put(decision(1))
    remote.up = True
    release = local.release

    def release_and_write(*args):  # stands for another thread of this process
        release(*args)
        local.release = release
        remote.up = False
        store.put(decision(2))
        remote.up = True

    local.release = release_and_write
    for number in range(3, 10):
        store.put(decision(number))
    assert set(remote.keys()) == {decision(number).key for number in range(1, 10)}
    assert not [body for _, body in local.entries(PENDING) if body]


def test_memory_and_choices_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(choice_digest, "MAX_CHOICES", 3)
    store, chosen = MemoryStore(max_decisions=3), Choices()
    decisions = [other_decision(key=other_key(mode={"number": str(number)})) for number in range(5)]
    for decision in decisions:
        store.put(decision)
        chosen[decision.key] = decision.config
    assert list(store.decisions()) == decisions[2:]
    assert list(chosen) == [decision.key for decision in decisions[2:]]


def test_a_mirror_is_bounded_and_keeps_what_is_pending(tmp_path, monkeypatch) -> None:
    from tunewright.stores import mirror

    monkeypatch.setattr(mirror, "MAX_MIRROR_BYTES", 20_000)
    monkeypatch.setattr(mirror, "DECISIONS_PER_CHECK", 10)
    remote, local = MemoryStore(), SqliteStore(tmp_path / "mirror.sqlite")
    local.keep(PENDING, "name", b"{}" * 4000)
    decisions = [other_decision(key=other_key(mode={"number": str(number)})) for number in range(100)]
    remote.fill(decisions)
    store = MirrorStore(remote, local)
    for decision in decisions:
        assert store.get(decision.key) == decision
    assert local.stats().bytes < 40_000
    assert local.fetch(PENDING, ["name"])


def test_random_interleavings_leave_nothing_stale_and_lose_nothing() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "interleavings.py"
    done = subprocess.run(
        [sys.executable, script, "--json", "--runs", "60"], capture_output=True, text=True, check=True
    )
    assert '"stale": 0, "lost": 0, "unfinished": 0' in done.stdout
