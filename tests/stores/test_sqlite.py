import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import pytest

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.stores import serialization
from tunewright.stores.sqlite import SqliteStore, store
from tunewright.stores.sqlite import connection as file
from tunewright.stores.sqlite import maintenance as upkeep_of_a_file
from tunewright.stores.statistics import MissRecord, RetentionLimits
from tunewright.testing.capability_kit import (
    FillContract,
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

YEAR = 365 * 86400.0
CONV = other_key(kernel="conv")


class TestSqlite(
    StoreContract,
    LeaseContract,
    MissContract,
    TrialCountContract,
    RevisionContract,
    LogContract,
    NamespaceContract,
    MaintenanceContract,
    FillContract,
):
    @pytest.fixture
    def store(self, tmp_path):
        return SqliteStore(tmp_path / "deep" / "store.sqlite")


def test_a_durable_store_waits_for_the_disk_and_another_does_not(tmp_path) -> None:
    relaxed = SqliteStore(tmp_path / "store.sqlite")
    levels = [store._file.row("PRAGMA synchronous")[0] for store in (relaxed, relaxed.durable())]
    assert levels == [1, 2], "NORMAL, FULL"


def test_to_sync_a_store_that_nobody_wrote_to_makes_no_folder(tmp_path) -> None:
    SqliteStore(tmp_path / "none" / "store.sqlite").sync()
    assert not (tmp_path / "none").exists()


def run(path, sql: str, given=()) -> list:
    with closing(sqlite3.connect(path, timeout=120)) as raw, raw:
        return raw.execute(sql, given).fetchall()


def filled(path) -> SqliteStore:
    """A store with something of everything in it."""
    kept = SqliteStore(path)
    for key in (KEY, CONV):
        kept.put(other_decision(key=key, config=Config(tile=8)))
        kept.put(other_decision(key=key))
        kept.record(key, [TIMED, FAILED] * 20)
    kept.record_misses([MissRecord(other_key(mode={}), 3, 0.5)])
    kept.keep("squares", "3", b"9")
    return kept


# Files of version 1, as they were written.

VERSION_1 = """
CREATE TABLE decisions (digest BLOB PRIMARY KEY, kernel TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX decisions_by_kernel ON decisions (kernel);
CREATE TABLE problems (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, kernel TEXT NOT NULL, key BLOB NOT NULL);
CREATE INDEX problems_by_kernel ON problems (kernel);
CREATE TABLE trials (id INTEGER PRIMARY KEY, problem INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX trials_by_problem ON trials (problem, id);
PRAGMA user_version = 1;
"""


def write_version_1(path, decisions: int = 1) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.executescript(VERSION_1)
        digest = bytes.fromhex(KEY.digest)
        for number in range(decisions):
            key = other_key(mode={"number": str(number)}) if number else KEY
            row = (bytes.fromhex(key.digest), key.kernel, serialization.dump_decision(other_decision(key=key)))
            raw.execute("INSERT INTO decisions VALUES (?, ?, ?)", row)
        raw.execute("INSERT INTO decisions VALUES (?, 'conv', ?)", (bytes.fromhex(CONV.digest), b"damaged"))
        raw.execute("INSERT INTO problems VALUES (7, ?, 'gemm', ?)", (digest, serialization.dump_key(KEY)))
        for trial in (TIMED, FAILED):
            raw.execute("INSERT INTO trials (problem, body) VALUES (7, ?)", (serialization.dump_trial(trial),))


def test_a_file_of_version_1_is_taken_over_with_all_that_is_in_it(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    write_version_1(path)
    old = SqliteStore(path)
    assert old.get(KEY) == DECISION
    assert old.get(CONV) is None
    assert list(old.trials(KEY)) == [TIMED, FAILED]
    assert list(old.relatives(KEY)) == [DECISION]
    assert [revision.number for revision in old.history(KEY)] == [1]
    assert set(old.keys()) == {KEY}
    assert run(path, "PRAGMA user_version") == [(2,)]
    assert [line.split(":")[0] for line in old.faults()] == [f"the decision {CONV.digest[:12]} of conv"]
    old.put(other_decision(config=Config(tile=8)))
    old.record(KEY, [TIMED])
    assert [revision.number for revision in old.history(KEY)] == [1, 2]
    assert list(old.trials(KEY)) == [TIMED, FAILED, TIMED]
    assert old.trim(RetentionLimits(age=3600)).trials == 0, "what is taken over is taken to begin now"
    old.trim(RetentionLimits(age=0))
    assert run(path, "PRAGMA auto_vacuum") == [(2,)]


def test_an_interrupted_take_over_leaves_the_file_as_it_was(tmp_path, monkeypatch) -> None:
    path = tmp_path / "store.sqlite"
    write_version_1(path)
    before = run(path, "SELECT sql FROM sqlite_master ORDER BY name")

    def broken(*given: object) -> None:
        raise sqlite3.OperationalError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr("tunewright.stores.sqlite.schema._old_trials", broken)
        with pytest.raises(StoreError, match="out of luck"):
            SqliteStore(path).get(KEY)
    assert run(path, "SELECT sql FROM sqlite_master ORDER BY name") == before
    assert SqliteStore(path).get(KEY) == DECISION


def test_many_who_open_an_old_file_at_once_take_it_over_once(tmp_path, together) -> None:
    path = tmp_path / "store.sqlite"
    write_version_1(path, decisions=300)
    needs = "from tunewright.stores.sqlite import SqliteStore\nfrom tunewright.testing.keys import DECISION, KEY, TIMED"
    work = "store = SqliteStore(given); assert store.get(KEY) == DECISION; store.record(KEY, [TIMED])"
    assert together(needs, work, path) == [0] * 8
    assert len(list(SqliteStore(path).decisions())) == 300
    assert len(list(SqliteStore(path).trials(KEY))) == 10


# Time.


def test_a_clock_that_jumps_neither_ends_nor_prolongs_a_lease(tmp_path, monkeypatch) -> None:
    kept = SqliteStore(tmp_path / "store.sqlite")
    now, up = time.time(), [1000.0]
    monkeypatch.setattr(store, "uptime", lambda: up[0])
    assert kept.claim("gemm", "me", 0.5)
    for jump in (YEAR, -YEAR):
        monkeypatch.setattr(time, "time", lambda jump=jump: now + jump)
        assert not kept.claim("gemm", "you", 60)
    up[0] += 0.49
    assert not kept.claim("gemm", "you", 60)
    up[0] += 0.02
    assert kept.claim("gemm", "you", 60)


def test_a_lease_of_another_boot_has_ended(tmp_path, monkeypatch) -> None:
    kept = SqliteStore(tmp_path / "store.sqlite")
    assert kept.claim("gemm", "me", 3600)
    monkeypatch.setattr(store, "boot_id", lambda: "another")
    assert kept.claim("gemm", "you", 3600)
    assert not kept.claim("gemm", "me", 3600)


def test_a_clock_that_jumps_neither_expires_nor_prolongs_an_entry(tmp_path, monkeypatch) -> None:
    path = tmp_path / "store.sqlite"
    SqliteStore(path).keep("squares", "3", b"9", seconds=60)
    now, up = time.time(), file.uptime()
    for jump in (YEAR, -YEAR):
        monkeypatch.setattr(time, "time", lambda jump=jump: now + jump)
        assert SqliteStore(path).fetch("squares", ["3"]) == {"3": b"9"}
    monkeypatch.setattr(file, "uptime", lambda: up + 61)
    assert SqliteStore(path).fetch("squares", ["3"]) == {}


def test_an_entry_outlives_a_boot_and_still_expires(tmp_path, monkeypatch) -> None:
    path = tmp_path / "store.sqlite"
    SqliteStore(path).keep("squares", "3", b"9", seconds=60)
    now = time.time()
    monkeypatch.setattr(file, "boot_id", lambda: "another")
    monkeypatch.setattr(file, "uptime", lambda: 10.0)
    assert SqliteStore(path).fetch("squares", ["3"]) == {"3": b"9"}
    monkeypatch.setattr(file, "boot_id", lambda: "a third")
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert SqliteStore(path).fetch("squares", ["3"]) == {}


def test_a_clock_that_jumps_ahead_and_back_drops_nothing(tmp_path, monkeypatch) -> None:
    path = tmp_path / "store.sqlite"
    kept, now = filled(path), time.time()
    before = kept.stats()
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now + 10 * YEAR)
        assert SqliteStore(path).trim(RetentionLimits(age=86400, decisions=True)).bytes == 0
        kept.put(other_decision(config=Config(tile=16)))
        kept.record(KEY, [TIMED])
        assert kept.trim(RetentionLimits(age=86400, decisions=True)).bytes == 0
    assert kept.trim(RetentionLimits(age=86400, decisions=True)).bytes == 0
    kept.put(DECISION)
    assert kept.stats().trials == before.trials + 1
    since = [generation.since for generation in kept.history(KEY)]
    assert len(since) == 4
    assert since == sorted(since), "time does not go back from one generation to the next"


# Damage.


def test_what_is_damaged_is_a_miss_and_a_fault(tmp_path, caplog) -> None:
    path = tmp_path / "store.sqlite"
    kept = filled(path)
    assert list(kept.faults()) == []
    run(path, "UPDATE trials SET body = replace(body, 'tile', 'tale') WHERE id = 1")
    run(path, "UPDATE trials SET problem = 2 WHERE id = 2")
    run(path, "UPDATE history SET seal = 0 WHERE id = 1")
    run(path, "UPDATE wants SET key = x'00'")
    run(path, "UPDATE entries SET body = x'38'")
    run(path, "UPDATE problems SET digest = ? WHERE id = 2", (bytes.fromhex(other_key(source="x").digest),))
    run(path, "DROP TRIGGER decisions_become_history")
    run(path, "UPDATE decisions SET body = replace(body, ':64', ':65') WHERE kernel = 'gemm'")
    assert kept.get(KEY) is None, "valid JSON that says something else"
    assert len(list(kept.trials(KEY))) == 38
    assert [revision.number for revision in kept.history(CONV)] == [1, 2]
    assert list(kept.history(KEY)) == []
    assert list(kept.misses()) == []
    assert kept.fetch("squares", ["3"]) == {}
    assert caplog.text.count("skipping") == 1, "said once"
    found = [line.partition(":")[0] for line in kept.faults()]
    for what in ("the decision", "revision 1", "the key", "trial 1 ", "trial 2 ", "the entry '3'"):
        assert any(line.startswith(what) for line in found), what
    assert kept.put(DECISION, replace=False) == DECISION
    assert kept.keep("squares", "3", b"nine", replace=False) == b"nine"
    assert kept.get(KEY) == DECISION


CONFIGS = {DECISION.config, Config(tile=8)}


def look_up(kept: SqliteStore) -> None:
    assert kept.get(KEY) in (None, DECISION)
    many = kept.get_many([KEY, CONV])
    assert all(many[key] == other_decision(key=key) for key in many)


def listing(kept: SqliteStore) -> None:
    for decision in [*kept.decisions(), *kept.decisions("conv"), *kept.relatives(KEY)]:
        assert decision.key in (KEY, CONV)
        assert decision.config in CONFIGS
    assert set(kept.keys()) <= {KEY, CONV}


def journal(kept: SqliteStore) -> None:
    assert all(trial in (TIMED, FAILED) for trial in kept.trials(KEY))


def offers(kept: SqliteStore) -> None:
    assert all(generation.decision.config in CONFIGS for generation in kept.history(KEY))
    assert all(want.key == other_key(mode={}) for want in kept.misses())


def shelf(kept: SqliteStore) -> None:
    assert set(kept.fetch("squares", ["3"]).values()) <= {b"9"}
    assert set(kept.entries("squares")) <= {("3", b"9")}
    assert kept.keep("squares", "4", b"16", replace=False) == b"16"


def write(kept: SqliteStore) -> None:
    assert kept.put(DECISION, replace=False) == DECISION
    kept.put(DECISION)
    kept.record(CONV, [TIMED])
    kept.claim("gemm", "me", 60)
    kept.record_misses([MissRecord(other_key(mode={}), 1, 0.1)])


def upkeep(kept: SqliteStore) -> None:
    list(kept.faults())
    kept.stats()
    kept.trim(RetentionLimits(age=3600, bytes=1000, decisions=True))


@pytest.mark.slow
def test_a_file_with_flipped_bits_or_cut_short_never_lies_and_never_crashes(tmp_path) -> None:
    whole = tmp_path / "whole.sqlite"
    filled(whole)
    run(whole, "PRAGMA wal_checkpoint(TRUNCATE)")
    content, rng = whole.read_bytes(), random.Random(7)
    survived = refused = 0
    for turn in range(200):
        path = tmp_path / f"{turn}.sqlite"
        damaged = bytearray(content)
        if turn % 4 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            for _ in range(rng.choice((1, 1, 8, 64))):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        kept = SqliteStore(path)
        for use in (look_up, listing, journal, offers, shelf, upkeep, write, look_up):
            try:
                use(kept)
                survived += 1
            except StoreError:
                refused += 1
        for rest in tmp_path.glob(f"{turn}.sqlite*"):
            rest.unlink()
    assert survived > 100
    assert refused > 100


def test_a_damaged_file_says_what_to_do_and_the_store_is_made_anew(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    filled(path)
    run(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    os.truncate(path, 4096)
    kept = SqliteStore(path)
    with pytest.raises(StoreError, match="damaged: move it away"):
        kept.get(KEY)
    assert any("damaged" in line for line in kept.faults())
    path.write_bytes(b"this is no database, but it is long enough to be taken for one" * 9)
    with pytest.raises(StoreError, match="not a store: move it away"):
        kept.get(KEY)
    for part in tmp_path.glob("store.sqlite*"):
        part.unlink()
    assert kept.get(KEY) is None
    assert kept.put(DECISION) == DECISION


def test_a_full_disk_is_an_error_that_says_so_and_what_was_kept_can_be_read(tmp_path) -> None:
    kept = filled(tmp_path / "store.sqlite")
    connection = kept._file._connection()
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.raises(StoreError, match="free some space"):
        kept.record(KEY, [TIMED] * 5000)
    more = [other_decision(key=other_key(mode={"number": str(number)})) for number in range(500)]
    with pytest.raises(StoreError, match="free some space"):
        list(map(kept.put, more))
    assert kept.get(KEY) == DECISION
    assert len(list(kept.trials(KEY))) == 40, "none of them"
    kept.trim(RetentionLimits(age=0))
    assert kept.put(other_decision(key=other_key(mode={"late": "yes"})))


LIMITED = """
import resource, signal, sys
from tunewright.errors import StoreError
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, KEY, TIMED
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SqliteStore(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
kept = 0
try:
    while True:
        store.record(KEY, [TIMED] * 50)
        kept += 50
except StoreError as error:
    assert "store.sqlite" in str(error)
assert store.get(KEY) == DECISION
print(kept)
"""


def test_a_disk_that_takes_no_more_loses_nothing_that_was_acknowledged(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    SqliteStore(path).put(DECISION)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    assert len(list(SqliteStore(path).trials(KEY))) == int(done.stdout)


READ_ONLY = """
import logging, os, sys
from tunewright.errors import StoreError
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, KEY
KEY.digest, KEY.related_digest
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    store = SqliteStore(path)
    try:
        assert store.get(KEY) == DECISION, "what is there is read"
    except StoreError as error:
        assert not os.path.exists(path), error
        assert "set another `store`" in str(error), error
    try:
        store.put(DECISION)
    except StoreError as error:
        assert "set another `store`" in str(error), error
    else:
        raise SystemExit("written to what is read-only")
"""


def test_a_read_only_home_is_an_error_that_says_what_to_do(tmp_path_factory) -> None:
    # Under /tmp itself, since pytest's folders cannot be entered by another user.
    folder = tmp_path_factory.getbasetemp().parent.parent / f"tunewright-read-only-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        filled(folder / "store.sqlite")._file._connection().close()
        assert [part.name for part in folder.iterdir()] == ["store.sqlite"]
        for part in (*folder.iterdir(), folder):
            part.chmod(0o555 if part == folder else 0o444)
        paths = [str(folder / "store.sqlite"), str(folder / "new.sqlite"), str(folder / "deep" / "new.sqlite")]
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, *paths], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


# Upkeep.


def test_space_is_given_back(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    kept = SqliteStore(path)
    kept.put(DECISION)
    kept.record(KEY, [TIMED] * 20_000)
    run(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.stat().st_size
    assert kept.trim(RetentionLimits(bytes=100_000)).trials > 15_000
    assert path.stat().st_size < before / 4
    assert list(kept.faults()) == []
    assert kept.get(KEY) == DECISION


@pytest.fixture
def old(tmp_path):
    """A store with 5000 trials that are an hour old."""
    kept = SqliteStore(tmp_path / "store.sqlite")
    kept.record(KEY, [TIMED] * 5000)
    run(tmp_path / "store.sqlite", "UPDATE trials SET at = at - 3600")
    return kept


@contextmanager
def writing(kept: SqliteStore):
    """Another thread that writes all the time; how long each of its writes took, as they are done."""
    took, stop = [], threading.Event()

    def keep_writing() -> None:
        while not stop.is_set():
            began = time.monotonic()
            kept.record(CONV, [FAILED])
            took.append(time.monotonic() - began)

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


def test_trimming_lets_others_write_between_its_steps(old, monkeypatch, wait_until) -> None:
    steps, dropped = [], upkeep_of_a_file.SqliteTables.drop_older

    def drop_older(*given: object) -> object:
        sizes, before = dropped(*given), len(written)
        wait_until(lambda: len(written) > before + 1, "a write between two steps")
        steps.append(len(sizes))
        return sizes

    monkeypatch.setattr(upkeep_of_a_file.SqliteTables, "drop_older", drop_older)
    with writing(old) as written:
        gone = old.trim(RetentionLimits(age=1800))
    assert gone.trials == 5000
    assert len([step for step in steps if step]) == 10, "in steps"
    assert sum(1 for _ in old.trials(CONV)) == len(written)


@pytest.mark.clock("no write takes over 5 s while 5000 trials are dropped")
def test_nobody_waits_for_long_while_a_file_is_trimmed(old, wait_until) -> None:
    with writing(old) as written:
        wait_until(lambda: written, "the first write")
        old.trim(RetentionLimits(age=1800))
    assert max(written) < 5


def test_a_decision_goes_last_and_with_its_history(tmp_path) -> None:
    kept = filled(tmp_path / "store.sqlite")
    gone = kept.trim(RetentionLimits(bytes=0))
    assert (gone.decisions, gone.generations, gone.trials, gone.wants, gone.entries) == (0, 2, 80, 1, 0)
    assert kept.trim(RetentionLimits(bytes=0, decisions=True)).decisions == 2
    assert kept.stats().bytes == len(b"9"), "a namespace that nobody declared stays"
    assert list(kept.keys()) == []


def test_a_forked_child_opens_its_own_connection(tmp_path) -> None:
    kept = filled(tmp_path / "store.sqlite")
    child = os.fork()
    if child == 0:
        kept.record(KEY, [TIMED])
        os._exit(0 if kept.get(KEY) == DECISION else 1)
    assert os.waitpid(child, 0)[1] == 0
    kept.record(KEY, [TIMED])
    assert sum(1 for _ in kept.trials(KEY)) == 42
