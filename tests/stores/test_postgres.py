import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import msgspec
import psycopg
import pytest

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.stores.postgres import PostgresStore
from tunewright.stores.postgres.connection import AnswerTimeout, DeadlineConnection
from tunewright.stores.postgres.location import SECONDS
from tunewright.stores.postgres.pool import IDLE_SECONDS
from tunewright.stores.postgres.schema import PARTS
from tunewright.stores.postgres.server import PostgresServer
from tunewright.stores.statistics import MissRecord, RetentionLimits
from tunewright.testing import servers
from tunewright.testing.capability_kit import (
    LeaseContract,
    LogContract,
    MaintenanceContract,
    MissContract,
    NamespaceContract,
    RevisionContract,
    TrialCountContract,
)
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED, other_decision, other_key
from tunewright.testing.store_kit import StoreContract


class TestPostgres(
    StoreContract,
    LeaseContract,
    MissContract,
    TrialCountContract,
    RevisionContract,
    LogContract,
    NamespaceContract,
    MaintenanceContract,
):
    @pytest.fixture
    def store(self, location):
        return PostgresStore(location)


def refused(call) -> str:
    """What the StoreError says that `call` must raise."""
    with pytest.raises(StoreError) as said:
        call()
    return str(said.value)


def took(call) -> float:
    """Seconds until `call` raised its StoreError."""
    began = time.monotonic()
    refused(call)
    return time.monotonic() - began


class Clock:
    """Seconds that pass while someone sleeps, and never else. What happens `meanwhile` is told how many there were."""

    def __init__(self) -> None:
        self.now = self.slept = 0.0
        self.meanwhile = lambda slept: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        self.meanwhile(self.slept)


@pytest.fixture
def clock(monkeypatch):
    """The clock that connections are waited for and kept by."""
    clock = Clock()
    for module in ("connection", "pool", "server"):
        monkeypatch.setattr(f"tunewright.stores.postgres.{module}.monotonic", clock)
    monkeypatch.setattr("tunewright.stores.postgres.server.sleep", clock.sleep)
    return clock


def run(location: str, sql: str, given=()) -> list:
    with psycopg.connect(location, autocommit=True) as connection:
        cursor = connection.execute(sql, given)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def server(open_folder):
    """A server of our own, since we kill it; it need not survive a power cut, and is back the sooner."""
    with servers.postgres(open_folder / "killed", "max_connections=40", fsync=False) as server:
        yield server


@pytest.fixture
def location(server) -> str:
    """Where a store is that keeps nothing yet."""
    run(server.location, "DROP SCHEMA IF EXISTS tunewright CASCADE")
    return server.location


def test_a_call_is_one_exchange_with_the_server_for_any_number_of_keys(location, monkeypatch) -> None:
    store = PostgresStore(location)
    keys = [other_key(mode={"threads": str(i)}) for i in range(1000)]
    for key in keys[::10]:
        store.put(other_decision(key=key))
    exchanges = []
    wait = DeadlineConnection.wait
    monkeypatch.setattr(DeadlineConnection, "wait", lambda *given: exchanges.append(given) or wait(*given))
    calls = [
        lambda: store.get(KEY),
        lambda: store.get_many(keys),
        lambda: store.put(DECISION),
        lambda: store.put(other_decision(config=Config(tile=8)), replace=False),
        lambda: store.record(KEY, [TIMED] * 100),
        lambda: store.fetch("squares", [str(i) for i in range(1000)]),
        lambda: store.keep("squares", "3", b"9", replace=False),
        lambda: store.claim("gemm", "me", 60),
    ]
    for call in calls:
        exchanges.clear()
        call()
        assert len(exchanges) == 1
    assert len(store.get_many(keys)) == 100


def test_a_killed_server_is_an_error_and_works_again_when_it_is_back(server, location) -> None:
    store = PostgresStore(location)
    store.put(DECISION)
    store.record(KEY, [TIMED])
    run(location, "CHECKPOINT")  # what earlier tests did need not be done again
    server.kill()
    for call in (lambda: store.get(KEY), lambda: store.put(DECISION), lambda: store.record(KEY, [TIMED])):
        said = refused(call)
        assert location.partition("@")[2] in said
        assert "check that the server is up" in said
    server.start()
    assert store.get(KEY) == DECISION
    assert list(store.trials(KEY)) == [TIMED]


def test_a_restart_between_two_calls_is_not_noticed_and_nothing_is_done_twice(server, location) -> None:
    store = PostgresStore(location)
    store.put(DECISION)
    for turn in range(3):
        server.restart()
        if turn == 0:
            store.record(KEY, [TIMED])
        elif turn == 1:
            store.record_misses([MissRecord(KEY, 1, 1.0)])
        assert store.get(KEY) == DECISION
    assert list(store.trials(KEY)) == [TIMED]


@contextmanager
def frozen(server):
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def test_a_server_that_is_stopped_is_an_error_and_works_again_when_it_goes_on(server, location, monkeypatch) -> None:
    store, fresh = PostgresStore(location), PostgresStore(location)
    store.put(DECISION)
    with frozen(server), monkeypatch.context() as hasty:
        for asked in (store, fresh):
            hasty.setattr(asked._server, "_seconds", 0.5)
        assert "no answer within 0.5 s" in refused(lambda: store.get(KEY))
        assert "no answer within 0.5 s" in refused(lambda: store.record(KEY, [TIMED] * 3000))
        assert "no answer within 0.5 s" in refused(lambda: fresh.get(KEY))
    assert store.get(KEY) == DECISION
    assert fresh.get(KEY) == DECISION
    assert len(list(store.trials(KEY))) in (0, 3000), "all of them, or none"


@pytest.mark.clock("1 s beyond the time-out; what is refused at once is said within 1 s")
def test_a_server_that_is_stopped_silent_or_gone_is_an_error_in_time(server, location) -> None:
    store, fresh = (PostgresStore(f"{location}?tunewright_timeout={seconds}") for seconds in (SECONDS, 0.5))
    store.put(DECISION)
    with frozen(server):
        assert SECONDS == 2.0
        assert took(lambda: store.get(KEY)) < 3.0
        assert took(lambda: store.record(KEY, [TIMED] * 3000)) < 3.0
        assert took(lambda: fresh.get(KEY)) < 1.5
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        there = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/tuning?tunewright_timeout=0.5"
        assert took(lambda: PostgresStore(there).get(KEY)) < 1.5
    server.kill()
    try:
        for call in (lambda: store.get(KEY), lambda: store.put(DECISION), lambda: store.record(KEY, [TIMED])):
            assert took(call) < 1.0
    finally:
        server.start()


def test_a_port_that_says_nothing_is_an_error() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        store = PostgresStore(f"postgresql://me:opensesame@127.0.0.1:{port}/tuning?tunewright_timeout=0.5")
        said = refused(lambda: store.get(KEY))
    assert f"127.0.0.1:{port}/tuning" in said
    assert "opensesame" not in said


def test_no_error_tells_the_password(location) -> None:
    wrong = location.replace("postgres@", "nobody:opensesame@")
    with pytest.raises(StoreError) as said:
        PostgresStore(wrong).get(KEY)
    assert "nobody" in str(said.value)
    assert "opensesame" not in f"{said.value} {said.value.__cause__} {said.value.__context__}"
    with pytest.raises(StoreError) as said:
        PostgresStore("postgresql://me:opensesame@host:port:1/x?nonsense=opensesame")
    assert "postgresql://user@host" in str(said.value)
    assert "opensesame" not in f"{said.value} {said.value.__cause__}"


def test_a_location_is_a_url_or_words_and_says_how_long_to_wait(location) -> None:
    host, port, database = location.partition("@")[2].replace("/", ":").split(":")
    words = f"host={host} port={port} user=postgres dbname={database} tunewright_timeout=120"
    for place in (location, location.replace("postgresql:", "postgres:"), f"postgres:{words}", f"postgresql:{words}"):
        assert PostgresStore.at(place).put(DECISION) == DECISION
    with pytest.raises(StoreError, match="number of seconds"):
        PostgresStore(location + "?tunewright_timeout=soon")


def test_many_who_start_at_once_make_the_tables_once(location, together) -> None:
    needs = "from tunewright.stores.postgres import PostgresStore\nfrom tunewright.testing.keys import DECISION"
    place = location + "?tunewright_timeout=120"
    assert together(needs, "PostgresStore(given).put(DECISION)", place) == [0] * 8
    assert run(location, "SELECT version FROM tunewright.migrations") == [(1,)]
    assert PostgresStore(location).history(KEY)[-1].number == 1


def test_a_store_of_a_later_version_is_left_alone(location) -> None:
    PostgresStore(location).put(DECISION)
    run(location, "INSERT INTO tunewright.migrations (version) VALUES (99)")
    with pytest.raises(StoreError, match="has schema 99"):
        PostgresStore(location).get(KEY)


def test_of_many_who_put_the_first_decision_one_stands(location) -> None:
    stores = [PostgresStore(location) for _ in range(4)]
    stores[0].get(KEY)
    for turn in range(10):
        key = other_key(mode={"turn": str(turn)})

        def put(number: int, key=key):
            mine = other_decision(key=key, config=Config(tile=number))
            return stores[number % 4].put(mine, replace=False)

        with ThreadPoolExecutor(8) as threads:
            kept = {decision.config for decision in threads.map(put, range(1, 9))}
        assert len(kept) == 1
        assert stores[0].get(key).config in kept
        assert len(stores[0].history(key)) == 1


def test_a_store_whose_tables_were_dropped_is_made_anew(location) -> None:
    store = PostgresStore(location)
    store.put(DECISION)
    run(location, "DROP SCHEMA tunewright CASCADE")
    assert "the next call creates a new, empty one" in refused(lambda: store.get(KEY))
    assert store.get(KEY) is None
    assert store.put(DECISION) == DECISION


def test_who_finds_no_room_on_the_server_waits_for_it(location, clock) -> None:
    PostgresStore(location).put(DECISION)
    disconnected(location)
    store = PostgresStore(location + "?tunewright_timeout=20")
    with crowd(location) as leave:
        assert "max_connections" in refused(lambda: store.get(KEY))
        assert 15 < clock.slept < 20, "as long as it may"
        clock.slept, clock.meanwhile = 0.0, lambda slept: leave() if slept > 5 else None
        assert store.get(KEY) == DECISION
        assert 5 < clock.slept < 20


def test_who_gets_no_answer_to_its_last_knock_says_that_there_was_no_room(location, monkeypatch) -> None:
    disconnected(location)
    store, connect_once = PostgresStore(location), PostgresServer._connect_once

    def late(self, until):
        if knocks.pop():
            raise AnswerTimeout("no connection in time")
        return connect_once(self, until)

    knocks = [True, False, False]
    monkeypatch.setattr(PostgresServer, "_connect_once", late)
    with crowd(location):
        assert "max_connections" in refused(lambda: store.get(KEY))
    assert knocks == []


def test_threads_wait_for_the_few_connections_there_are(location, monkeypatch) -> None:
    disconnected(location)
    monkeypatch.setattr("tunewright.stores.postgres.pool.IDLE_SECONDS", 3600.0)
    store = PostgresStore(location)
    store.put(DECISION)
    with ThreadPoolExecutor(24) as threads:
        assert all(found == DECISION for found in threads.map(lambda _: store.get(KEY), range(400)))
    ((count,),) = run(
        location,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tunewright'",
    )
    assert 1 <= count <= 4


def test_a_damaged_record_is_a_miss_and_a_fault_and_can_be_replaced(location, caplog) -> None:
    store = PostgresStore(location)
    store.put(DECISION)
    store.record(KEY, [TIMED, FAILED])
    store.keep("squares", "3", b"9")
    run(location, "UPDATE tunewright.decisions SET body = overlay(body placing 'x' from 30)")
    run(location, "UPDATE tunewright.trials SET body = substr(body, 1, 50) WHERE id = 1")
    run(location, "UPDATE tunewright.entries SET body = '8'")
    assert store.get(KEY) is None
    assert store.get_many([KEY]) == {}
    assert list(store.decisions()) == []
    assert list(store.trials(KEY)) == [FAILED]
    assert store.fetch("squares", ["3"]) == {}
    assert "skipping" in caplog.text
    found = list(store.faults())
    assert len(found) == 3
    assert all(any(word in line for line in found) for word in ("the decision", "trial 1", "'3' in the namespace"))
    assert store.put(DECISION, replace=False) == DECISION
    assert store.get(KEY) == DECISION
    assert store.keep("squares", "3", b"nine", replace=False) == b"nine"
    assert store.fetch("squares", ["3"]) == {"3": b"nine"}


def test_an_answer_to_another_key_is_not_believed(location) -> None:
    store, other = PostgresStore(location), other_key(kernel="conv")
    store.put(DECISION)
    run(location, "UPDATE tunewright.decisions SET digest = %s", (bytes.fromhex(other.digest),))
    assert store.get(other) is None
    assert any("checksum does not match" in line for line in store.faults())


def test_trials_of_a_kernel_on_a_device_lie_in_one_partition(location) -> None:
    store = PostgresStore(location)
    for number in range(40):
        device = msgspec.structs.replace(KEY.device, model=f"CPU {number}")
        store.record(other_key(device=device), [TIMED, FAILED])
        assert list(store.trials(other_key(device=device))) == [TIMED, FAILED]
    per_pair = "SELECT count(DISTINCT tableoid) FROM tunewright.trials GROUP BY kernel, device"
    assert set(run(location, per_pair)) == {(1,)}
    ((used,),) = run(location, "SELECT count(DISTINCT tableoid) FROM tunewright.trials")
    assert PARTS / 2 < used <= PARTS


def test_a_forked_child_opens_its_own_connection(location) -> None:
    store = PostgresStore(location)
    store.put(DECISION)
    child = os.fork()
    if child == 0:
        os._exit(0 if store.get(KEY) == DECISION else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get(KEY) == DECISION


def test_trimming_goes_on_while_others_write(location) -> None:
    store = PostgresStore(location)
    for _ in range(4):
        store.record(KEY, [TIMED] * 800)
    run(location, "UPDATE tunewright.trials SET at = at - 3600")
    before = store.stats()
    with ThreadPoolExecutor(2) as threads:
        writing = [threads.submit(store.record, other_key(kernel="conv"), [FAILED]) for _ in range(20)]
        gone = store.trim(RetentionLimits(age=1800))
        assert all(write.result() is None for write in writing)
    assert (gone.trials, gone.bytes) == (3200, before.bytes)
    assert sum(1 for _ in store.trials(other_key(kernel="conv"))) == 20


def connections(location: str) -> list[int]:
    """The processes of the server that serve us."""
    rows = run(location, "SELECT pid FROM pg_stat_activity WHERE application_name = 'tunewright' ORDER BY pid")
    return [pid for (pid,) in rows]


def settled(condition) -> None:
    """Wait until the server has taken note of something; a test that would hang is ended."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def crowd(location: str):
    """Take every connection that the server has; how to give them all back, and wait until there is room."""
    everyone: list[psycopg.Connection] = []

    def leave() -> None:
        while everyone:
            everyone.pop().close()
        settled(lambda: room(location))

    refusals = 0
    try:
        while refusals < 20:  # those that it is still closing become free a moment later
            try:
                everyone.append(psycopg.connect(location))
                refusals = 0
            except psycopg.OperationalError as error:
                assert "already" in str(error)  # noqa: PT017 - how often it is refused is not known before
                refusals += 1
                time.sleep(0.03)
        yield leave
    finally:  # or no later test finds room
        leave()


def room(location: str) -> bool:
    """Whether the server takes a few more connections."""
    try:
        with ExitStack() as stack:
            return all(stack.enter_context(psycopg.connect(location)) for _ in range(5))
    except psycopg.OperationalError:
        return False


def disconnected(location: str) -> None:
    """End what earlier tests left, and wait until nobody but ourselves is connected."""
    others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    run(location, f"SELECT pg_terminate_backend(pid) {others}")
    settled(lambda: run(location, f"SELECT count(*) {others}") == [(0,)])


class Beats:
    """Sleeps that end one by one, when they are told to."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._begun = self._ended = 0

    def sleep(self, seconds: float) -> None:
        with self._changed:
            self._begun += 1
            mine = self._begun
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._ended >= mine, 300)

    def one(self, last: bool = False) -> None:
        """End a sleep, and wait for the next to begin, unless there is none."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._begun > self._ended, 300)
            self._ended += 1
            self._changed.notify_all()
            assert last or self._changed.wait_for(lambda: self._begun > self._ended, 300)


def test_a_connection_that_idles_is_given_back(location, clock, monkeypatch) -> None:
    beats = Beats()
    disconnected(location)
    monkeypatch.setattr("tunewright.stores.postgres.pool.sleep", beats.sleep)
    store = PostgresStore(location)
    store.put(DECISION)
    clock.now += 0.9 * IDLE_SECONDS
    beats.one()
    assert len(connections(location)) == 1
    clock.now += 0.2 * IDLE_SECONDS
    beats.one(last=True)
    settled(lambda: connections(location) == [])
    assert store.get(KEY) == DECISION
    there = connections(location)
    assert len(there) == 1
    for _ in range(16):
        clock.now += IDLE_SECONDS / 4
        beats.one()
        assert store.get(KEY) == DECISION
    assert connections(location) == there, "who asks all the time stays connected"
    clock.now += 2 * IDLE_SECONDS
    beats.one(last=True)


def test_who_needs_many_keys_waits_longer_for_room_than_a_launch_and_gives_its_place_back(location, clock) -> None:
    keys = [other_key(mode={"size": str(i)}) for i in range(20)]
    PostgresStore(location).put(other_decision(key=keys[0]))
    disconnected(location)
    store = PostgresStore(location + "?tunewright_timeout=20")
    with crowd(location) as leave:
        assert "max_connections" in refused(lambda: store.get_many(keys[:2]))
        assert clock.slept < 20
        clock.slept, clock.meanwhile = 0.0, lambda slept: leave() if slept > 25 else None
        assert set(store.get_many(keys)) == {keys[0]}
        assert clock.slept > 25
    settled(lambda: connections(location) == [])  # the clock stands: it is not for idling that it is given back
