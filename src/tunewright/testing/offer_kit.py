"""The contracts of what a store may also offer: subclass those it does, give a `store` fixture, done."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tunewright.sharing.offers import Cache, Generations, Leases, Shelves, Tallies, Upkeep, Wants
from tunewright.sharing.records import Bounds, Want
from tunewright.spaces.config import Config
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED, other_decision, other_key

BRIEF = 0.3
"""Seconds a lease or an entry is kept where its end is waited for."""

LONG = 3600.0
"""Seconds a lease or an entry is kept that must not end meanwhile, however slow the machine is."""

HANGING = 120.0
"""Seconds after which what should have ended is said to last for ever: no verdict depends on how long it took."""


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + HANGING
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


class LeaseContract:
    """Tests of what `sharing.offers.Leases` promises."""

    def test_one_owner_at_a_time_holds_a_lease(self, store: Leases) -> None:
        assert store.claim("gemm", "me", LONG)
        assert not store.claim("gemm", "you", LONG)
        assert store.claim("conv", "you", LONG)

    def test_the_owner_renews_and_gives_back(self, store: Leases) -> None:
        assert store.claim("gemm", "me", LONG)
        assert store.claim("gemm", "me", LONG)
        store.release("gemm", "me")
        assert store.claim("gemm", "you", LONG)

    def test_only_the_owner_gives_back(self, store: Leases) -> None:
        store.claim("gemm", "me", LONG)
        store.release("gemm", "you")
        assert not store.claim("gemm", "you", LONG)

    def test_a_lease_that_is_not_renewed_ends(self, store: Leases) -> None:
        assert store.claim("gemm", "me", BRIEF)
        _wait_until(lambda: store.claim("gemm", "you", LONG), "it did not end")
        assert not store.claim("gemm", "me", LONG), "who comes back late does not hold it any more"

    def test_a_lease_that_is_renewed_outlives_one_that_is_not(self, store: Leases) -> None:
        assert store.claim("renewed", "me", BRIEF)
        assert store.claim("left", "me", BRIEF)
        assert store.claim("renewed", "me", LONG)

        def ended() -> bool:
            assert not store.claim("renewed", "you", LONG)
            return store.claim("left", "you", LONG)

        _wait_until(ended, "it did not end")
        assert not store.claim("renewed", "you", LONG)

    def test_of_many_who_claim_at_once_one_gets_it(self, store: Leases) -> None:
        with ThreadPoolExecutor(8) as threads:
            got = list(threads.map(lambda i: store.claim("gemm", f"owner {i}", LONG), range(32)))
        assert sum(got) == 1


class WantContract:
    """Tests of what `sharing.offers.Wants` promises."""

    def test_wants_add_up_and_come_by_time_at_stake(self, store: Wants) -> None:
        small, large = other_key(mode={"size": "small"}), other_key(mode={"size": "large"})
        store.want([Want(small, 5, 0.5, "gemm.py:gemm", "{}"), Want(large, 1, 2.0)])
        store.want([Want(small, 5, 1.0, "gemm.py:gemm", "{}")])
        store.want([])
        assert list(store.wanted()) == [Want(large, 1, 2.0), Want(small, 10, 1.5, "gemm.py:gemm", "{}")]

    def test_what_is_decided_is_wanted_no_more(self, store: Any) -> None:
        conv = other_key(kernel="conv")
        store.want([Want(KEY, 1, 1.0), Want(conv, 1, 2.0)])
        store.put(DECISION)
        assert [want.key for want in store.wanted()] == [conv]
        assert list(store.wanted("gemm")) == []
        assert [want.key for want in store.wanted("conv")] == [conv]


class TallyContract:
    """Tests of what `sharing.offers.Tallies` promises."""

    def test_it_counts(self, store: object) -> None:
        assert isinstance(store, Tallies)

    def test_trials_are_counted_by_key(self, store: Any) -> None:
        assert list(store.tallies()) == []
        conv = other_key(kernel="conv")
        store.record(KEY, [TIMED, FAILED])
        store.record(KEY, [TIMED])
        store.record(conv, [FAILED])
        store.put(other_decision(key=other_key(kernel="untried")))
        assert {tally.key: tally.trials for tally in store.tallies()} == {KEY: 3, conv: 1}
        assert all(tally.last > 0 for tally in store.tallies())


class GenerationContract:
    """Tests of what `sharing.offers.Generations` promises."""

    def test_it_is_an_offer(self, store: object) -> None:
        assert isinstance(store, Generations)

    def test_every_decision_that_stood_is_kept_in_order(self, store: Any) -> None:
        assert list(store.history(KEY)) == []
        later = [other_decision(config=Config(tile=size)) for size in (8, 16)]
        for decision in [DECISION, *later]:
            store.put(decision)
        kept = store.history(KEY)
        assert [generation.decision for generation in kept] == [DECISION, *later]
        assert [generation.number for generation in kept] == [1, 2, 3]
        assert 0 <= kept[0].since <= kept[2].since
        assert abs(kept[2].since - time.time()) < 3600

    def test_to_go_back_is_to_put_an_earlier_one_again(self, store: Any) -> None:
        store.put(DECISION)
        store.put(other_decision(config=Config(tile=8)))
        store.put(store.history(KEY)[0].decision)
        assert store.get(KEY) == DECISION
        assert [g.decision.config["tile"] for g in store.history(KEY)] == [64, 8, 64]

    def test_what_already_stands_makes_no_generation(self, store: Any) -> None:
        store.put(DECISION)
        store.put(DECISION)
        store.put(other_decision(config=Config(tile=8)), replace=False)
        assert len(store.history(KEY)) == 1


class CacheContract:
    """Tests of what `sharing.offers.Cache` promises."""

    def test_it_is_an_offer_to_take_over_many(self, store: object) -> None:
        assert isinstance(store, Cache)

    def test_what_it_is_filled_with_is_found_as_if_it_were_put(self, store: Any) -> None:
        decisions = [other_decision(key=other_key(mode={"size": str(i)})) for i in range(1200)]
        store.fill(decisions)
        found = store.get_many([decision.key for decision in decisions])
        assert found == {decision.key: decision for decision in decisions}
        assert {decision.key for decision in store.decisions("gemm")} == set(found)
        store.fill([])
        assert len(list(store.keys())) == 1200

    def test_what_stands_is_replaced_and_what_does_not_change_makes_no_generation(self, store: Any) -> None:
        better, conv = other_decision(config=Config(tile=8)), other_decision(key=other_key(kernel="conv"))
        store.put(DECISION)
        for _ in range(3):
            store.fill([better, conv])
        assert store.get_many([KEY, conv.key]) == {KEY: better, conv.key: conv}
        if isinstance(store, Generations):
            assert [generation.decision for generation in store.history(KEY)] == [DECISION, better]
            assert len(store.history(conv.key)) == 1


class ShelfContract:
    """Tests of what `sharing.offers.Shelves` promises."""

    def test_what_is_kept_is_fetched_from_its_shelf_alone(self, store: Shelves) -> None:
        assert store.fetch("squares", ["3"]) == {}
        assert store.keep("squares", "3", b"\x009\xff") == b"\x009\xff"
        assert store.fetch("squares", ["3", "4"]) == {"3": b"\x009\xff"}
        assert store.fetch("cubes", ["3"]) == {}
        assert store.fetch("squares", []) == {}

    def test_many_are_fetched_together(self, store: Shelves) -> None:
        for i in range(0, 1200, 100):
            store.keep("squares", str(i), str(i * i).encode())
        assert len(store.fetch("squares", [str(i) for i in range(1200)])) == 12

    def test_a_later_one_replaces_unless_the_first_is_to_stand(self, store: Shelves) -> None:
        store.keep("squares", "3", b"8")
        assert store.keep("squares", "3", b"9") == b"9"
        assert store.keep("squares", "3", b"10", replace=False) == b"9"
        assert store.fetch("squares", ["3"]) == {"3": b"9"}

    def test_an_entry_expires_and_its_place_is_free_again(self, store: Shelves) -> None:
        for name, body in (("3", b"9"), ("4", b"16")):
            store.keep("squares", name, body, seconds=LONG)
        assert set(store.fetch("squares", ["3", "4"])) == {"3", "4"}
        store.keep("squares", "3", b"9", seconds=BRIEF)
        _wait_until(lambda: set(store.fetch("squares", ["3", "4"])) == {"4"}, "it did not expire")
        assert dict(store.entries("squares")) == {"4": b"16"}
        assert store.keep("squares", "3", b"nine", replace=False) == b"nine"

    def test_a_shelf_is_listed_oldest_first_and_cleared_from_that_end(self, store: Shelves) -> None:
        for name in ("c", "a", "b"):
            store.keep("letters", name, name.encode())
        store.keep("others", "z", b"z")
        assert [name for name, _ in store.entries("letters")] == ["c", "a", "b"]
        assert store.clear("letters", most=2) == 1
        assert [name for name, _ in store.entries("letters")] == ["a", "b"]
        assert store.clear("letters") == 2
        assert list(store.entries("letters")) == []
        assert store.fetch("others", ["z"]) == {"z": b"z"}


class UpkeepContract:
    """Tests of what `sharing.offers.Upkeep` promises."""

    def test_it_is_an_offer(self, store: object) -> None:
        assert isinstance(store, Upkeep)

    def test_a_store_says_how_much_it_keeps(self, store: Any) -> None:
        store.put(DECISION)
        store.put(other_decision(config=Config(tile=8)))
        store.record(KEY, [TIMED, FAILED])
        stats = store.stats()
        assert (stats.decisions, stats.generations, stats.trials) == (1, 1, 2)
        assert stats.bytes > 0
        assert list(store.faults()) == []

    def test_what_is_too_old_goes_and_what_stands_stays(self, store: Any) -> None:
        store.put(DECISION)
        store.put(other_decision(config=Config(tile=8)))
        store.record(KEY, [TIMED, FAILED])
        assert store.trim(Bounds(age=3600)).trials == 0
        time.sleep(0.05)
        gone = store.trim(Bounds(age=0.01))
        assert (gone.decisions, gone.generations, gone.trials) == (0, 1, 2)
        assert list(store.trials(KEY)) == []
        assert store.get(KEY) == other_decision(config=Config(tile=8))
        assert store.trim(Bounds(age=0.01, decisions=True)).decisions == 1
        assert store.get(KEY) is None

    def test_the_oldest_journals_go_first_where_there_is_too_much(self, store: Any) -> None:
        old, new = other_key(mode={"age": "old"}), other_key(mode={"age": "new"})
        for key in (old, new):
            store.record(key, [TIMED] * 3000)
        before = store.stats()
        gone = store.trim(Bounds(bytes=int(0.7 * before.bytes)))
        assert 0 < gone.trials < 6000
        assert sum(1 for _ in store.trials(old)) < sum(1 for _ in store.trials(new))
        assert store.stats().bytes <= 0.75 * before.bytes
