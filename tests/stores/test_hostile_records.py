"""Sealed nonsense in a store, and records of another key: misses, told once, and healed by the next publication."""

import logging
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import tunewright as tw
from tunewright import Config
from tunewright.stores import locations, serialization, transcripts
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import PENDING, MirrorStore
from tunewright.stores.prior import collect_prior
from tunewright.stores.records import checksum, related_prefix, with_checksum
from tunewright.stores.redis import RedisStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key

CONV = other_decision(key=other_key(kernel="conv"))
KEY_JSON = KEY.record_end


def sealed(text: bytes) -> bytes:
    """A record that ends as one for KEY does."""
    return text + KEY_JSON


MALFORMED = {
    "not an object": b'{"decision":[1],' + KEY_JSON.replace(b"},", b",", 1),
    "nothing but the end": sealed(b'{"decision":{'),
    "a list as a value": sealed(b'{"decision":{"config":{"tile":[1]},'),
    "null as a value": sealed(b'{"decision":{"config":{"tile":null},'),
    "a list as a config": sealed(b'{"decision":{"config":[1],'),
    "no config": sealed(b'{"decision":{"evidence":null,'),
    "text as seconds": sealed(b'{"decision":{"config":{"tile":1},"evidence":{"seconds":"x","low":0,"high":0},'),
    "deep nesting": sealed(b'{"decision":{"config":' + b"[" * 50_000 + b"]" * 50_000 + b","),
    "a number that is too large": sealed(b'{"decision":{"config":{"tile":1e999999},'),
    "not text": sealed(b'{"decision":{"config":{"\xff\xfe":1},'),
    "two megabytes": sealed(b'{"decision":{"config":{"tile":"' + b"x" * (2 << 20) + b'","y":[]},'),
    "for another key": serialization.dump_decision(CONV),
}


def plant_sqlite(path, body: bytes) -> None:
    SqliteStore(path).get(KEY)  # which creates the tables
    digest = bytes.fromhex(KEY.digest)
    row = (digest, KEY.kernel, related_prefix(KEY), 1, 0.0, checksum(body, digest), body)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def plant_redis(location, body: bytes) -> None:
    import redis

    RedisStore.at(location).put(DECISION)  # for the sets
    with redis.Redis.from_url(location) as raw:
        raw.set(f"tunewright:1:decision:{KEY.digest}", with_checksum(body, bytes.fromhex(KEY.digest)))


def plant_postgres(location, body: bytes) -> None:
    import psycopg

    locations.open_single(location).put(DECISION)
    with psycopg.connect(location) as raw:
        values = (checksum(body, bytes.fromhex(KEY.digest)), body, bytes.fromhex(KEY.digest))
        raw.execute("UPDATE tunewright.decisions SET seal = %s, body = %s WHERE digest = %s", values)


KINDS = ("sqlite", "redis", "postgres", "mirror", "tiered", "memory")


@pytest.fixture
def planted(request, tmp_path):
    """Returns the store of a session in which a record was planted, and how to open it again."""

    def plant(kind: str, body: bytes):
        if kind in ("sqlite", "tiered", "mirror", "memory"):
            plant_sqlite(tmp_path / "store.sqlite", body)
            store = SqliteStore(tmp_path / "store.sqlite")
        elif kind == "redis":
            location = request.getfixturevalue("redis_location")
            plant_redis(location, body)
            store = RedisStore.at(location)
        else:
            location = request.getfixturevalue("postgres_location")
            plant_postgres(location, body)
            store = locations.open_single(location)
        if kind == "mirror":  # what was mirrored is nonsense, and the remote is down
            return MirrorStore(RedisStore.at("redis://127.0.0.1:1/0"), store)
        if kind == "memory":  # a cache that was filled with nonsense by a large batch
            memory = MemoryStore()
            memory.fill([serialization.load_decision_lazily(sealed(b'{"decision":{"config":[1],'), KEY)])
            return TieredStore(memory, MemoryStore())
        return TieredStore(store, MemoryStore()) if kind == "tiered" else TieredStore(MemoryStore(), store)

    return plant


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MALFORMED)
def test_it_is_a_miss_told_once_and_healed(planted, caplog, kind, name) -> None:
    store = planted(kind, MALFORMED[name])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert store.get(KEY) is None
            assert store.get_many([KEY]) == {}
            assert list(store.relatives(KEY)) == []
    assert sum("skipping a" in record.message for record in caplog.records) <= 2, "once for each layer"
    better = other_decision(config=Config(tile=8))
    assert store.put(better, replace=False) == better
    assert store.get(KEY) == better
    assert list(store.decisions()) == [better]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_cache_with_nonsense_is_passed_over(tmp_path, name) -> None:
    plant_sqlite(tmp_path / "near.sqlite", MALFORMED[name])
    far = MemoryStore()
    far.put(DECISION)
    store = TieredStore(SqliteStore(tmp_path / "near.sqlite"), far)
    assert store.get(KEY) == DECISION
    assert SqliteStore(tmp_path / "near.sqlite").get(KEY) == DECISION, "and repaired"


@pytest.mark.parametrize("mode", ["tune", "frozen", "strict"])
def test_a_kernel_runs_in_every_mode(tmp_path, mode) -> None:
    def make(session):
        @tw.tune(tw.Space(tw.Knob("step", [1, 2])), session=session)
        def double(x: tw.In("N"), *, step: int):
            return 2 * x

        return double

    location = tmp_path / "store.sqlite"
    session = tw.Session(mode=mode, store=location, cache=tmp_path / "cache", pool="serial", trials=2)
    key = make(session).problem((np.ones(3),)).key
    body = b'{"decision":{"config":{"step":[1]},' + key.record_end
    SqliteStore(location).get(key)
    digest = bytes.fromhex(key.digest)
    with closing(sqlite3.connect(location)) as raw, raw:
        row = (digest, key.kernel, related_prefix(key), 1, 0.0, checksum(body, digest), body)
        raw.execute("INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    for _ in range(2):
        session = tw.Session(mode=mode, store=location, cache=tmp_path / "cache", pool="serial", trials=2)
        if mode == "strict":
            with pytest.raises(tw.NoDecision):
                make(session)(np.ones(3))
        else:
            assert make(session)(np.ones(3)).tolist() == [2, 2, 2]
    stored = SqliteStore(location).get(key)
    assert mode != "tune" or stored.config["step"] in (1, 2)


def test_verify_lists_what_is_malformed_and_what_is_for_another_key(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    for name in ("a list as a value", "for another key"):
        plant_sqlite(path, MALFORMED[name])
        assert len(list(SqliteStore(path).faults())) == 1, name


TRIALS = {
    "no samples": b'{"schema":1,"trial":{"config":{"tile":1},"outcome":{"is":"timing","samples":[]}}}',
    "text as a sample": b'{"schema":1,"trial":{"config":{"tile":1},"outcome":{"is":"timing","samples":["x"]}}}',
    "a list as a value": b'{"schema":1,"trial":{"config":{"tile":[1]},"outcome":{"is":"timing","samples":[1]}}}',
    "no outcome": b'{"schema":1,"trial":{"config":{"tile":1}}}',
    "another kind of outcome": b'{"schema":1,"trial":{"config":{"tile":1},"outcome":{"is":"joke"}}}',
    "deep nesting": b'{"schema":1,"trial":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
}


@pytest.mark.parametrize("name", TRIALS)
def test_a_malformed_trial_is_skipped(tmp_path, name) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore(path)
    store.record(KEY, [TIMED])
    body = TRIALS[name]
    with closing(sqlite3.connect(path)) as raw, raw:
        row = (1, 0.0, checksum(body, bytes.fromhex(KEY.digest)), body)
        raw.execute("INSERT INTO trials (problem, at, seal, body) VALUES (?, ?, ?, ?)", row)
    store.record(KEY, [TIMED])
    assert list(store.trials(KEY)) == [TIMED, TIMED]


def test_a_malformed_batch_of_trials_is_skipped_in_redis(redis_location) -> None:
    import redis

    store = RedisStore.at(redis_location)
    store.record(KEY, [TIMED])
    with redis.Redis.from_url(redis_location) as raw:
        for body in (b'{"schema":1,"trials":7}', *TRIALS.values()):
            raw.rpush(f"tunewright:1:journal:{KEY.digest}", with_checksum(body, bytes.fromhex(KEY.digest)))
    assert list(store.trials(KEY)) == [TIMED]


def test_malformed_misses_are_skipped_in_redis(redis_location) -> None:
    import redis

    from tunewright.stores.statistics import MissRecord

    store = RedisStore.at(redis_location)
    store.record_misses([MissRecord(KEY, 1, 1.0)])
    with redis.Redis.from_url(redis_location) as raw:
        raw.hset("tunewright:1:wants:calls", CONV.key.digest, "many")
        for digest, body in (("\xff", b"{"), (CONV.key.digest, serialization.encode(MissRecord(KEY)))):
            raw.zadd("tunewright:1:wants:seconds", {digest: 2.0})
            raw.hset("tunewright:1:wants", digest, body)
    assert [miss.key for miss in store.misses()] == [KEY]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"key":7}',
        serialization.encode(
            transcripts.Transcript(
                key=CONV.key.digest, configs=(), chosen=0, counts=(), left=(), samples=b"", margin=0.0
            )
        ),
    ],
)
def test_a_malformed_transcript_or_one_of_another_key_is_none(body) -> None:
    store = MemoryStore()
    store.keep(transcripts.NAMESPACE, KEY.digest, body)
    assert transcripts.load_transcript(store, KEY) is None


def test_a_malformed_prior_is_left_out(tmp_path) -> None:
    plant_sqlite(tmp_path / "store.sqlite", MALFORMED["a list as a value"])
    store = SqliteStore(tmp_path / "store.sqlite")
    space = tw.Space(tw.Knob("tile", [8, 64]))
    problem = tw.model.decision.Problem(other_key(source="else"), space, Config(tile=8))
    assert collect_prior(store, problem)[1:] == ((), ())


def test_a_malformed_pending_write_holds_up_no_other(caplog) -> None:
    remote, local = MemoryStore(), MemoryStore()
    for number, body in enumerate((b"{", b"[]", b'{"key":1,"schema":1}')):
        local.keep(PENDING, str(number), body)
    store = MirrorStore(remote, local)
    for number in range(5):
        store.put(other_decision(key=other_key(mode={"number": str(number)})))
    assert len(list(remote.decisions())) == 5
    assert sum("pending write is skipped" in record.message for record in caplog.records) == 1


def test_a_lease_that_is_no_lease_delays_nobody_for_ever(redis_location) -> None:
    import redis

    from tunewright.stores.singleflight import SingleFlight

    with redis.Redis.from_url(redis_location) as raw:
        raw.lpush("tunewright:1:lease:tune", "nonsense")
    flight = SingleFlight(RedisStore.at(redis_location), "tune", max_wait=60)
    assert flight.run(lambda: "worked", lambda: None) == "worked"
