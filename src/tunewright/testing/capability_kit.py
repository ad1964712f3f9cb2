"""Contracts of the optional capabilities of a store: subclass those that it has and provide a `store` fixture."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tunewright.spaces.config import Config
from tunewright.stores.capabilities import (
    CountsTrials,
    KeepsLogs,
    KeepsNamespaces,
    KeepsRevisions,
    RecordsMisses,
    SupportsFill,
    SupportsLeases,
    SupportsMaintenance,
)
from tunewright.stores.statistics import LogEntry, MissRecord, RetentionLimits
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED, other_decision, other_key

BRIEF = 0.3
"""Duration in seconds of leases and entries whose end a test waits for."""

LONG = 3600.0
"""Duration in seconds of leases and entries that must not end during a test, however slow the machine is."""

GIVE_UP_SECONDS = 120.0
"""Seconds after which a test gives up waiting; no other verdict depends on how long something took."""


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


class LeaseContract:
    """Tests of what `stores.capabilities.SupportsLeases` promises."""

    def test_one_owner_at_a_time_holds_a_lease(self, store: SupportsLeases) -> None:
        assert store.claim("gemm", "me", LONG)
        assert not store.claim("gemm", "you", LONG)
        assert store.claim("conv", "you", LONG)

    def test_the_owner_renews_and_releases(self, store: SupportsLeases) -> None:
        assert store.claim("gemm", "me", LONG)
        assert store.claim("gemm", "me", LONG)
        store.release("gemm", "me")
        assert store.claim("gemm", "you", LONG)

    def test_only_the_owner_releases(self, store: SupportsLeases) -> None:
        store.claim("gemm", "me", LONG)
        store.release("gemm", "you")
        assert not store.claim("gemm", "you", LONG)

    def test_a_lease_that_is_not_renewed_ends(self, store: SupportsLeases) -> None:
        assert store.claim("gemm", "me", BRIEF)
        _wait_until(lambda: store.claim("gemm", "you", LONG), "it did not end")
        assert not store.claim("gemm", "me", LONG), "a late owner does not hold it any more"

    def test_a_lease_that_is_renewed_outlives_one_that_is_not(self, store: SupportsLeases) -> None:
        assert store.claim("renewed", "me", BRIEF)
        assert store.claim("left", "me", BRIEF)
        assert store.claim("renewed", "me", LONG)

        def ended() -> bool:
            assert not store.claim("renewed", "you", LONG)
            return store.claim("left", "you", LONG)

        _wait_until(ended, "it did not end")
        assert not store.claim("renewed", "you", LONG)

    def test_of_many_concurrent_claims_one_succeeds(self, store: SupportsLeases) -> None:
        with ThreadPoolExecutor(8) as threads:
            granted = list(threads.map(lambda i: store.claim("gemm", f"owner {i}", LONG), range(32)))
        assert sum(granted) == 1


class MissContract:
    """Tests of what `stores.capabilities.RecordsMisses` promises."""

    def test_misses_add_up_and_are_sorted_by_seconds(self, store: RecordsMisses) -> None:
        small, large = other_key(mode={"size": "small"}), other_key(mode={"size": "large"})
        store.record_misses([MissRecord(small, 5, 0.5, "gemm.py:gemm", "{}"), MissRecord(large, 1, 2.0)])
        store.record_misses([MissRecord(small, 5, 1.0, "gemm.py:gemm", "{}")])
        store.record_misses([])
        assert list(store.misses()) == [MissRecord(large, 1, 2.0), MissRecord(small, 10, 1.5, "gemm.py:gemm", "{}")]

    def test_a_decided_key_is_no_longer_a_miss(self, store: Any) -> None:
        conv = other_key(kernel="conv")
        store.record_misses([MissRecord(KEY, 1, 1.0), MissRecord(conv, 1, 2.0)])
        store.put(DECISION)
        assert [miss.key for miss in store.misses()] == [conv]
        assert list(store.misses("gemm")) == []
        assert [miss.key for miss in store.misses("conv")] == [conv]


class TrialCountContract:
    """Tests of what `stores.capabilities.CountsTrials` promises."""

    def test_it_has_the_capability(self, store: object) -> None:
        assert isinstance(store, CountsTrials)

    def test_trials_are_counted_by_key(self, store: Any) -> None:
        assert list(store.trial_counts()) == []
        conv = other_key(kernel="conv")
        store.record(KEY, [TIMED, FAILED])
        store.record(KEY, [TIMED])
        store.record(conv, [FAILED])
        store.put(other_decision(key=other_key(kernel="untried")))
        assert {count.key: count.trials for count in store.trial_counts()} == {KEY: 3, conv: 1}
        assert all(count.last > 0 for count in store.trial_counts())


class RevisionContract:
    """Tests of what `stores.capabilities.KeepsRevisions` promises."""

    def test_it_has_the_capability(self, store: object) -> None:
        assert isinstance(store, KeepsRevisions)

    def test_every_revision_is_kept_in_order(self, store: Any) -> None:
        assert list(store.history(KEY)) == []
        later = [other_decision(config=Config(tile=size)) for size in (8, 16)]
        for decision in [DECISION, *later]:
            store.put(decision)
        revisions = store.history(KEY)
        assert [revision.decision for revision in revisions] == [DECISION, *later]
        assert [revision.number for revision in revisions] == [1, 2, 3]
        assert 0 <= revisions[0].since <= revisions[2].since
        assert abs(revisions[2].since - time.time()) < 3600

    def test_putting_an_earlier_revision_rolls_back(self, store: Any) -> None:
        store.put(DECISION)
        store.put(other_decision(config=Config(tile=8)))
        store.put(store.history(KEY)[0].decision)
        assert store.get(KEY) == DECISION
        assert [revision.decision.config["tile"] for revision in store.history(KEY)] == [64, 8, 64]

    def test_an_unchanged_decision_makes_no_revision(self, store: Any) -> None:
        store.put(DECISION)
        store.put(DECISION)
        store.put(other_decision(config=Config(tile=8)), replace=False)
        assert len(store.history(KEY)) == 1


class FillContract:
    """Tests of what `stores.capabilities.SupportsFill` promises."""

    def test_it_has_the_capability(self, store: object) -> None:
        assert isinstance(store, SupportsFill)

    def test_filled_decisions_are_found_as_if_they_were_put(self, store: Any) -> None:
        decisions = [other_decision(key=other_key(mode={"size": str(i)})) for i in range(1200)]
        store.fill(decisions)
        found = store.get_many([decision.key for decision in decisions])
        assert found == {decision.key: decision for decision in decisions}
        assert {decision.key for decision in store.decisions("gemm")} == set(found)
        store.fill([])
        assert len(list(store.keys())) == 1200

    def test_fill_replaces_and_an_unchanged_decision_makes_no_revision(self, store: Any) -> None:
        better, conv = other_decision(config=Config(tile=8)), other_decision(key=other_key(kernel="conv"))
        store.put(DECISION)
        for _ in range(3):
            store.fill([better, conv])
        assert store.get_many([KEY, conv.key]) == {KEY: better, conv.key: conv}
        if isinstance(store, KeepsRevisions):
            assert [revision.decision for revision in store.history(KEY)] == [DECISION, better]
            assert len(store.history(conv.key)) == 1


class NamespaceContract:
    """Tests of what `stores.capabilities.KeepsNamespaces` promises."""

    def test_an_entry_is_fetched_from_its_namespace_only(self, store: KeepsNamespaces) -> None:
        assert store.fetch("squares", ["3"]) == {}
        assert store.keep("squares", "3", b"\x009\xff") == b"\x009\xff"
        assert store.fetch("squares", ["3", "4"]) == {"3": b"\x009\xff"}
        assert store.fetch("cubes", ["3"]) == {}
        assert store.fetch("squares", []) == {}

    def test_many_entries_are_fetched_together(self, store: KeepsNamespaces) -> None:
        for i in range(0, 1200, 100):
            store.keep("squares", str(i), str(i * i).encode())
        assert len(store.fetch("squares", [str(i) for i in range(1200)])) == 12

    def test_a_later_entry_replaces_unless_told_otherwise(self, store: KeepsNamespaces) -> None:
        store.keep("squares", "3", b"8")
        assert store.keep("squares", "3", b"9") == b"9"
        assert store.keep("squares", "3", b"10", replace=False) == b"9"
        assert store.fetch("squares", ["3"]) == {"3": b"9"}

    def test_an_entry_expires_and_its_name_is_free_again(self, store: KeepsNamespaces) -> None:
        for name, body in (("3", b"9"), ("4", b"16")):
            store.keep("squares", name, body, seconds=LONG)
        assert set(store.fetch("squares", ["3", "4"])) == {"3", "4"}
        store.keep("squares", "3", b"9", seconds=BRIEF)
        _wait_until(lambda: set(store.fetch("squares", ["3", "4"])) == {"4"}, "it did not expire")
        assert dict(store.entries("squares")) == {"4": b"16"}
        assert store.keep("squares", "3", b"nine", replace=False) == b"nine"

    def test_a_namespace_is_listed_and_cleared_oldest_first(self, store: KeepsNamespaces) -> None:
        for name in ("c", "a", "b"):
            store.keep("letters", name, name.encode())
        store.keep("others", "z", b"z")
        assert [name for name, _ in store.entries("letters")] == ["c", "a", "b"]
        assert store.clear("letters", keep=2) == 1
        assert [name for name, _ in store.entries("letters")] == ["a", "b"]
        assert store.clear("letters") == 2
        assert list(store.entries("letters")) == []
        assert store.fetch("others", ["z"]) == {"z": b"z"}


class LogContract:
    """Tests of what `stores.capabilities.KeepsLogs` promises."""

    def test_it_has_the_capability(self, store: object) -> None:
        assert isinstance(store, KeepsLogs)

    def test_a_decision_and_its_entry_are_stored_together(self, store: Any) -> None:
        better = other_decision(config=Config(tile=8))
        assert store.last_entry("log") is None
        assert store.put_logged(DECISION, None, LogEntry("log", "1", "", b"first"))
        assert store.put_logged(better, DECISION, LogEntry("log", "2", "1", b"second"))
        assert store.get(KEY) == better
        assert list(store.entries("log")) == [("1", b"first"), ("2", b"second")]
        assert store.last_entry("log") == ("2", b"second")
        assert list(store.decisions("gemm")) == [better]

    def test_neither_is_stored_if_another_decision_is_current(self, store: Any) -> None:
        store.put(DECISION)
        better = other_decision(config=Config(tile=8))
        assert not store.put_logged(better, None, LogEntry("log", "1", "", b"first"))
        assert not store.put_logged(better, better, LogEntry("log", "1", "", b"first"))
        assert store.get(KEY) == DECISION
        assert store.last_entry("log") is None

    def test_neither_is_stored_if_the_log_ends_with_another_entry(self, store: Any) -> None:
        assert store.put_logged(DECISION, None, LogEntry("log", "1", "", b"first"))
        conv = other_decision(key=other_key(kernel="conv"))
        for entry in (
            LogEntry("log", "1", "", b"other"),
            LogEntry("log", "2", "", b"x"),
            LogEntry("log", "3", "2", b"x"),
        ):
            assert not store.put_logged(conv, None, entry)
        assert store.get(conv.key) is None
        assert list(store.entries("log")) == [("1", b"first")]

    def test_of_many_that_append_at_once_each_follows_another(self, store: Any) -> None:
        def append(i: int) -> None:
            decision = other_decision(key=other_key(kernel=f"kernel {i}"))
            while True:
                last = store.last_entry("log")
                after = last[0] if last else ""
                name = f"{int(after or 0) + 1:04d}"
                if store.put_logged(decision, None, LogEntry("log", name, after, str(i).encode())):
                    return

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(append, range(20)))
        entries = list(store.entries("log"))
        assert [name for name, _ in entries] == [f"{number:04d}" for number in range(1, 21)]
        assert {int(body) for _, body in entries} == set(range(20))
        assert len(list(store.decisions())) == 20

    def test_named_entries_are_dropped_and_no_others(self, store: Any) -> None:
        for name in ("a", "b", "c"):
            store.keep("log", name, name.encode())
        store.keep("other", "a", b"a")
        store.drop_entries("log", ["a", "b", "unknown"])
        assert list(store.entries("log")) == [("c", b"c")]
        assert store.last_entry("log") == ("c", b"c")
        assert store.fetch("other", ["a"]) == {"a": b"a"}


class MaintenanceContract:
    """Tests of what `stores.capabilities.SupportsMaintenance` promises."""

    def test_it_has_the_capability(self, store: object) -> None:
        assert isinstance(store, SupportsMaintenance)

    def test_stats_count_the_records(self, store: Any) -> None:
        store.put(DECISION)
        store.put(other_decision(config=Config(tile=8)))
        store.record(KEY, [TIMED, FAILED])
        stats = store.stats()
        assert (stats.decisions, stats.generations, stats.trials) == (1, 1, 2)
        assert stats.bytes > 0
        assert list(store.faults()) == []

    def test_trim_removes_old_records_but_not_current_decisions(self, store: Any) -> None:
        store.put(DECISION)
        store.put(other_decision(config=Config(tile=8)))
        store.record(KEY, [TIMED, FAILED])
        assert store.trim(RetentionLimits(age=3600)).trials == 0
        time.sleep(0.05)
        removed = store.trim(RetentionLimits(age=0.01))
        assert (removed.decisions, removed.generations, removed.trials) == (0, 1, 2)
        assert list(store.trials(KEY)) == []
        assert store.get(KEY) == other_decision(config=Config(tile=8))
        assert store.trim(RetentionLimits(age=0.01, decisions=True)).decisions == 1
        assert store.get(KEY) is None

    def test_trim_removes_the_oldest_journals_first(self, store: Any) -> None:
        old, new = other_key(mode={"age": "old"}), other_key(mode={"age": "new"})
        for key in (old, new):
            store.record(key, [TIMED] * 3000)
        before = store.stats()
        removed = store.trim(RetentionLimits(bytes=int(0.7 * before.bytes)))
        assert 0 < removed.trials < 6000
        assert sum(1 for _ in store.trials(old)) < sum(1 for _ in store.trials(new))
        assert store.stats().bytes <= 0.75 * before.bytes

    def test_trim_keeps_what_a_service_and_a_mirror_must_not_lose(self, store: Any) -> None:
        for namespace in ("service:tokens", "unsent", "torch"):
            store.keep(namespace, "name", b"x" * 100)
        assert store.trim(RetentionLimits(age=-3600.0)).entries == 1
        assert store.trim(RetentionLimits(bytes=0)).entries == 0
        assert [bool(store.fetch(name, ["name"])) for name in ("service:tokens", "unsent", "torch")] == [
            True,
            True,
            False,
        ]
