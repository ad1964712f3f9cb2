"""A store that fails is not called for a while; everything else passes through unchanged."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunewright.errors import StoreError
from tunewright.stores.capabilities import (
    KeepsNamespaces,
    KeepsRevisions,
    RecordsMisses,
    SupportsLeases,
    SupportsMaintenance,
)
from tunewright.stores.circuit_breaker import MAX_PAUSE, MIN_PAUSE, PAUSE_FACTOR, CircuitBreaker, CircuitBreakerStore
from tunewright.stores.memory import MemoryStore
from tunewright.stores.redis import RedisStore
from tunewright.testing import servers
from tunewright.testing.capability_kit import (
    FillContract,
    LeaseContract,
    LogContract,
    MissContract,
    NamespaceContract,
    RevisionContract,
)
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key
from tunewright.testing.store_kit import StoreContract


class TestGuarded(
    StoreContract, LeaseContract, NamespaceContract, MissContract, RevisionContract, FillContract, LogContract
):
    @pytest.fixture
    def store(self):
        return CircuitBreakerStore(MemoryStore())


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Plain:
    """A store that offers nothing else, and fails when told to."""

    def __init__(self) -> None:
        self.fails, self.calls = False, 0
        self._kept = MemoryStore()

    def get(self, key):
        self.calls += 1
        if self.fails:
            raise StoreError("no route to host")
        return self._kept.get(key)

    def decisions(self, kernel=None):
        """Asked only when the first part is taken, as generators are."""
        self.get(KEY)
        yield from [DECISION, DECISION]

    def put(self, decision, *, replace=True):
        self.get(decision.key)
        return self._kept.put(decision, replace=replace)


def test_it_offers_what_the_store_offers_and_no_more(redis_location) -> None:
    def offered(store):
        return {
            offer.__name__
            for offer in (SupportsLeases, RecordsMisses, KeepsRevisions, KeepsNamespaces, SupportsMaintenance)
            if isinstance(store, offer)
        }

    assert offered(CircuitBreakerStore(Plain())) == set()
    assert (
        offered(CircuitBreakerStore(MemoryStore()))
        == offered(MemoryStore())
        == {"SupportsLeases", "RecordsMisses", "KeepsRevisions", "KeepsNamespaces"}
    )
    assert offered(CircuitBreakerStore(RedisStore.at(redis_location))) == {
        "SupportsLeases",
        "RecordsMisses",
        "KeepsNamespaces",
    }


def test_a_store_that_fails_is_left_alone_for_a_while_that_doubles() -> None:
    store, clock = Plain(), Clock()
    guarded = CircuitBreakerStore(store, clock=clock)
    store.fails = True
    for asked, wait in enumerate((MIN_PAUSE, 2, 4, 8, 16, 32, MAX_PAUSE, MAX_PAUSE), start=1):
        with pytest.raises(StoreError, match=r"^no route to host"):
            guarded.get(KEY)
        clock.now += wait - 0.01
        with pytest.raises(StoreError, match=r"not called for 0\.01 s"):
            guarded.get(KEY)
        assert store.calls == asked
        clock.now += 0.01
    store.fails = False
    guarded.get(KEY)
    store.fails = True
    with pytest.raises(StoreError, match=r"^no route to host"):
        guarded.get(KEY)
    clock.now += MIN_PAUSE
    store.fails = False
    assert guarded.get(KEY) is None, "after a success it begins anew"


def test_a_store_that_takes_long_to_fail_is_left_alone_for_longer() -> None:
    clock = Clock()
    breaker = CircuitBreaker("remote", clock)

    def time_out() -> None:
        clock.now += 2.0
        raise StoreError("time-out")

    for wait in (2 * PAUSE_FACTOR, 4 * PAUSE_FACTOR):
        with pytest.raises(StoreError, match=r"^time-out"):
            breaker.call(time_out)
        clock.now += wait - 0.01
        with pytest.raises(StoreError, match=r"not called for 0\.01 s"):
            breaker.call(time_out)
        clock.now += 0.01


def test_what_is_said_meanwhile_names_the_reason() -> None:
    store, clock = Plain(), Clock()
    guarded = CircuitBreakerStore(store, clock=clock)
    store.fails = True
    with pytest.raises(StoreError):
        guarded.get(KEY)
    clock.now += 0.25
    with pytest.raises(StoreError, match=r"Plain is not called for 0.75 s after: no route to host"):
        guarded.put(DECISION)
    assert store.calls == 1


def test_an_answer_in_parts_counts_as_failed_when_its_first_part_fails() -> None:
    store, clock = Plain(), Clock()
    guarded = CircuitBreakerStore(store, clock=clock)
    assert list(guarded.decisions()) == [DECISION, DECISION]
    store.fails = True
    for wait in (1, 2, 4):
        with pytest.raises(StoreError, match="no route"):
            list(guarded.decisions())
        clock.now += wait - 0.01
        with pytest.raises(StoreError, match="is not called"):
            guarded.decisions()
        clock.now += 0.01
    store.fails = False
    assert list(guarded.decisions()) == [DECISION, DECISION]


def test_many_calls_that_fail_together_are_one_failure() -> None:
    clock, gate = Clock(), threading.Barrier(8)
    breaker = CircuitBreaker("remote", clock)

    def hang() -> None:
        gate.wait()
        raise StoreError("time-out")

    def ask() -> None:
        with pytest.raises(StoreError, match="time-out"):
            breaker.call(hang)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.now += MIN_PAUSE
    assert breaker.call(lambda: "back") == "back"


def test_one_call_probes_while_the_others_go_on() -> None:
    clock, entered, leave = Clock(), threading.Event(), threading.Event()
    breaker = CircuitBreaker("remote", clock)

    def fail() -> None:
        raise StoreError("down")

    with pytest.raises(StoreError):
        breaker.call(fail)
    clock.now += MIN_PAUSE

    def slow() -> str:
        entered.set()
        leave.wait(120)
        return "back"

    answers = []
    probe = threading.Thread(target=lambda: answers.append(breaker.call(slow)))
    probe.start()
    assert entered.wait(120)
    with pytest.raises(StoreError, match="while another call probes it"):
        breaker.call(lambda: "me too")
    leave.set()
    probe.join()
    assert answers == ["back"]
    assert breaker.call(lambda: "me too") == "me too"


def test_an_interrupted_probe_leaves_the_next_one_free() -> None:
    clock = Clock()
    breaker = CircuitBreaker("remote", clock)

    def fail(error: BaseException) -> None:
        raise error

    with pytest.raises(StoreError):
        breaker.call(fail, StoreError("down"))
    clock.now += MIN_PAUSE
    with pytest.raises(KeyboardInterrupt):
        breaker.call(fail, KeyboardInterrupt())
    assert breaker.call(lambda: "back") == "back"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.just(0.0)),
        st.tuples(st.sampled_from(["succeed", "fail", "leave"]), st.floats(0, 1)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 2.0, 30.0, 60.0])),
    ),
    max_size=40,
)


class Model:
    """A breaker in the fewest words: what it should say, step by step."""

    def __init__(self) -> None:
        self.breaks, self.pause, self.until, self.probe = 0, 0.0, 0.0, False

    def allows(self, now: float) -> bool:
        return not self.pause or (now >= self.until and not self.probe)

    def begin(self) -> None:
        self.probe = self.probe or bool(self.pause)

    def end(self, how: str, began: int, now: float, took: float) -> None:
        if began != self.breaks:
            return
        self.probe = False
        if how == "succeed":
            self.pause = 0.0
        elif how == "fail":
            self.breaks += 1
            self.pause = min(max(MIN_PAUSE, PAUSE_FACTOR * took, 2 * self.pause), MAX_PAUSE)
            self.until = now + self.pause


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_whatever_happens_in_whatever_order_the_rules_are_kept(steps) -> None:
    """Calls begin and end in any order, each on its own, as those of threads do."""
    clock, model = Clock(), Model()
    breaker = CircuitBreaker("remote", clock)
    ends = {"succeed": breaker._succeeded, "leave": breaker._aborted}
    under_way: list[tuple[int, float]] = []  # of each call, how often it had broken when it began, and when that was
    for step, amount in steps:
        if step == "wait":
            clock.now += amount
        elif step == "begin" and model.allows(clock.now):
            under_way.append((breaker._enter(), clock.now))
            model.begin()
        elif step == "begin":
            with pytest.raises(StoreError, match="is not called"):
                breaker._enter()
        elif under_way:
            began, at = under_way.pop(min(int(amount * len(under_way)), len(under_way) - 1))
            took = clock.now - at
            ends.get(step, lambda began, took=took: breaker._failed(began, StoreError("down"), took))(began)
            model.end(step, began, clock.now, took)
    clock.now += MAX_PAUSE
    for began, _ in under_way:
        breaker._aborted(began)
    assert breaker.call(lambda: "back") == "back", "no order of events leaves it shut for good"


def test_a_real_server_that_dies_and_comes_back(tmp_path) -> None:
    clock = Clock()
    with servers.redis(tmp_path / "files") as server:
        guarded = CircuitBreakerStore(RedisStore.at(server.location), clock=clock)
        guarded.put(DECISION)
        server.kill()
        with pytest.raises(StoreError, match="cannot read redis://"):
            guarded.get(KEY)
        server.start()
        with pytest.raises(StoreError, match=f"{server.location} is not called for 1 s after: cannot read"):
            guarded.get(KEY)
        clock.now += MIN_PAUSE
        assert guarded.get(KEY) is None
        conv = other_decision(key=other_key(kernel="conv"))
        assert guarded.put(conv) == conv
