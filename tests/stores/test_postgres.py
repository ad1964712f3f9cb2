import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import msgspec
import psycopg
import pytest

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.sharing.records import Bounds, Want
from tunewright.stores.postgres import PostgresStore
from tunewright.stores.postgres.link import Link
from tunewright.stores.postgres.pool import IDLE_SECONDS
from tunewright.stores.postgres.schema import PARTS
from tunewright.stores.postgres.target import SECONDS
from tunewright.testing import servers
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED, other_decision, other_key
from tunewright.testing.offer_kit import (
    GenerationContract,
    LeaseContract,
    ShelfContract,
    TallyContract,
    UpkeepContract,
    WantContract,
)
from tunewright.testing.store_kit import StoreContract


class TestPostgres(
    StoreContract, LeaseContract, WantContract, TallyContract, GenerationContract, ShelfContract, UpkeepContract
):
    @pytest.fixture
    def store(self, location):
        return PostgresStore(location)


def refused(call, within: float = 4.0) -> str:
    """What the StoreError says that `call` must raise in time."""
    began = time.monotonic()
    with pytest.raises(StoreError) as said:
        call()
    took = time.monotonic() - began
    assert took < within, took
    return str(said.value)


def run(location: str, sql: str, given=()) -> list:
    with psycopg.connect(location, autocommit=True) as connection:
        cursor = connection.execute(sql, given)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def server(open_folder):
    """A server of our own, since we kill it; it need not survive a power cut, and is back the sooner."""
    with servers.postgres(open_folder / "killed", fsync=False) as server:
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
    wait = Link.wait
    monkeypatch.setattr(Link, "wait", lambda *given: exchanges.append(given) or wait(*given))
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


def test_a_killed_server_is_an_error_in_time_and_works_again_when_it_is_back(server, location) -> None:
    store = PostgresStore(location)
    store.put(DECISION)
    store.record(KEY, [TIMED])
    server.kill()
    for call in (lambda: store.get(KEY), lambda: store.put(DECISION), lambda: store.record(KEY, [TIMED])):
        said = refused(call, within=1.0)
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
            store.want([Want(KEY, 1, 1.0)])
        assert store.get(KEY) == DECISION
    assert list(store.trials(KEY)) == [TIMED]


def test_a_server_that_is_stopped_is_an_error_in_time(server, location) -> None:
    store, fresh = (PostgresStore(f"{location}?tunewright_timeout={seconds}") for seconds in (SECONDS, 0.5))
    store.put(DECISION)
    server.freeze()
    try:
        assert "nothing came within 2 s" in refused(lambda: store.get(KEY), within=3.0)
        assert "nothing came within 2 s" in refused(lambda: store.record(KEY, [TIMED] * 3000), within=3.0)
        assert "nothing came within 0.5 s" in refused(lambda: fresh.get(KEY), within=1.5)
    finally:
        server.thaw()
    assert store.get(KEY) == DECISION
    assert fresh.get(KEY) == DECISION
    assert len(list(store.trials(KEY))) in (0, 3000), "all of them, or none"


def test_a_port_that_says_nothing_is_an_error_in_time() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        store = PostgresStore(f"postgresql://me:opensesame@127.0.0.1:{port}/tuning?tunewright_timeout=0.5")
        said = refused(lambda: store.get(KEY), within=1.5)
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
    words = f"host={host} port={port} user=postgres dbname={database} tunewright_timeout=5"
    for place in (location, location.replace("postgresql:", "postgres:"), f"postgres:{words}", f"postgresql:{words}"):
        assert PostgresStore.at(place).put(DECISION) == DECISION
    with pytest.raises(StoreError, match="number of seconds"):
        PostgresStore(location + "?tunewright_timeout=soon")


def test_many_who_start_at_once_make_the_tables_once(location) -> None:
    code = (
        "import sys, time\nfrom tunewright.stores.postgres import PostgresStore\n"
        "from tunewright.testing.keys import DECISION\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time())); PostgresStore(sys.argv[1]).put(DECISION)"
    )
    command = [sys.executable, "-c", code, location + "?tunewright_timeout=20", str(time.time() + 3)]
    processes = [subprocess.Popen(command) for _ in range(8)]
    assert [process.wait(60) for process in processes] == [0] * 8
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
    assert "the next call makes it anew" in refused(lambda: store.get(KEY))
    assert store.get(KEY) is None
    assert store.put(DECISION) == DECISION


def test_who_finds_no_room_on_the_server_waits_for_it(location) -> None:
    PostgresStore(location).put(DECISION)
    everyone = crowd(location)
    try:
        said = refused(lambda: PostgresStore(location + "?tunewright_timeout=0.5").get(KEY), within=1.5)
        assert "max_connections" in said
    finally:  # or no later test finds room
        threading.Timer(0.3, lambda: [one.close() for one in everyone]).start()
    assert PostgresStore(location).get(KEY) == DECISION


def test_threads_wait_for_the_few_connections_there_are(location) -> None:
    run(location, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tunewright'")
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
    assert "is passed over" in caplog.text
    found = list(store.faults())
    assert len(found) == 3
    assert all(any(word in line for line in found) for word in ("the decision", "trial 1", "'3' on the shelf"))
    assert store.put(DECISION, replace=False) == DECISION
    assert store.get(KEY) == DECISION
    assert store.keep("squares", "3", b"nine", replace=False) == b"nine"
    assert store.fetch("squares", ["3"]) == {"3": b"nine"}


def test_an_answer_to_another_key_is_not_believed(location) -> None:
    store, other = PostgresStore(location), other_key(kernel="conv")
    store.put(DECISION)
    run(location, "UPDATE tunewright.decisions SET digest = %s", (bytes.fromhex(other.digest),))
    assert store.get(other) is None
    assert any("were written there" in line for line in store.faults())


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
    time.sleep(0.2)
    before = store.stats()
    with ThreadPoolExecutor(2) as threads:
        writing = [threads.submit(store.record, other_key(kernel="conv"), [FAILED]) for _ in range(20)]
        gone = store.trim(Bounds(age=0.1))
        assert all(write.result() is None for write in writing)
    assert gone.trials >= 3200
    assert gone.bytes >= before.bytes
    assert sum(1 for _ in store.trials(other_key(kernel="conv"))) + gone.trials == 3220


def connected(location: str, count: int, seconds: float = 1.0) -> bool:
    """Whether there are so many connections of ours, or will be in a moment: a server takes note of an end in time."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tunewright'"
    deadline = time.monotonic() + seconds
    while run(location, asked) != [(count,)]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def crowd(location: str) -> list[psycopg.Connection]:
    """Every connection that the server has; those that it is still closing become free a moment later."""
    everyone: list[psycopg.Connection] = []
    refusals = 0
    while refusals < 20:
        try:
            everyone.append(psycopg.connect(location))
            refusals = 0
        except psycopg.OperationalError as error:
            assert "already" in str(error)  # noqa: PT017 - how often it is refused is not known before
            refusals += 1
            time.sleep(0.03)
    return everyone


def disconnected(location: str) -> None:
    """End what earlier tests left."""
    run(location, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tunewright'")
    assert connected(location, 0, seconds=5)


def test_a_connection_that_idles_is_given_back(location) -> None:
    disconnected(location)
    store = PostgresStore(location)
    store.put(DECISION)
    assert connected(location, 1, seconds=0)
    assert connected(location, 0, seconds=5 * IDLE_SECONDS)
    assert store.get(KEY) == DECISION
    for _ in range(8):
        time.sleep(IDLE_SECONDS / 8)
        assert store.get(KEY) == DECISION
    ((age,),) = run(
        location,
        "SELECT extract(epoch FROM now() - backend_start) FROM pg_stat_activity WHERE application_name = 'tunewright'",
    )
    assert age > IDLE_SECONDS, "who asks all the time stays connected"


def test_who_needs_many_keys_waits_longer_for_room_than_a_launch_and_gives_its_place_back(
    location, monkeypatch
) -> None:
    keys = [other_key(mode={"size": str(i)}) for i in range(20)]
    PostgresStore(location).put(other_decision(key=keys[0]))
    disconnected(location)
    monkeypatch.setattr("tunewright.stores.postgres.pool.IDLE_SECONDS", 60.0)
    everyone = crowd(location)
    store = PostgresStore(location + "?tunewright_timeout=1")
    try:
        assert "max_connections" in refused(lambda: store.get_many(keys[:2]), within=2.0)
    finally:
        threading.Timer(2.0, lambda: [one.close() for one in everyone]).start()
    assert set(store.get_many(keys)) == {keys[0]}
    assert connected(location, 0, seconds=5.0), "others may still wait"
