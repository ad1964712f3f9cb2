"""What stands behind a service: PostgreSQL as the record of truth, Redis before it, either of them away."""

import itertools
import tempfile
from pathlib import Path

import httpx
import pytest

from tunewright.errors import StoreError
from tunewright.service.publishing import Publisher
from tunewright.service.responses import record_tag
from tunewright.service.storage import ServiceStorage, key_from_digest
from tunewright.spaces.config import Config
from tunewright.stores import locations, serialization
from tunewright.stores.circuit_breaker import MIN_PAUSE, CircuitBreakerStore
from tunewright.testing import servers
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

_numbers = itertools.count()

PATIENT, PATIENT_REDIS = "tunewright_timeout=120", "socket_timeout=120&socket_connect_timeout=120"
"""A server that a busy machine holds up is not one that is away."""


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("tunewright.stores.postgres.location.SECONDS", 120.0)
    monkeypatch.setattr("tunewright.stores.redis.TIMEOUT_SECONDS", 120.0)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def redis_server(folder):
    with servers.redis(folder / "redis") as server:
        yield server


@pytest.fixture(scope="module")
def postgres_server(folder):
    with servers.postgres(folder / "postgres", fsync=False) as server:
        yield server


def publish(storage, decision) -> None:
    """Publishes a decision, whatever is current."""
    current = storage.primary.get(decision.key)
    over = None if current is None else record_tag(serialization.dump_decision(current))
    assert Publisher(storage).publish(decision, over, {"token": "t", "request": "r"})[0] == decision


def test_a_key_is_found_by_its_digest_alone_wherever_it_is_kept(redis_server, postgres_server, tmp_path) -> None:
    for location in (redis_server.location, postgres_server.location, str(tmp_path / "a.sqlite"), "memory:"):
        storage = ServiceStorage(location)
        publish(storage, DECISION)
        assert set(storage.records([KEY.digest, "0" * 64])) == {KEY.digest}
        assert storage.primary.get(key_from_digest(KEY.digest)) is not None


def test_a_cache_is_filled_with_whole_keys_and_told_of_changes(redis_server, postgres_server) -> None:
    location = f"{redis_server.location} {postgres_server.location}"
    key = other_key(kernel="cached")
    locations.open_single(postgres_server.location).put(other_decision(key=key))
    storage, cache = ServiceStorage(location), locations.open_single(redis_server.location)
    assert cache.get(key) is None
    assert set(storage.records([key.digest])) == {key.digest}
    assert list(cache.decisions("cached")) == [other_decision(key=key)], "under its kernel, though a digest was asked"
    better = other_decision(key=key, config=Config(tile=8))
    publish(storage, better)
    assert cache.get(key) == better


def test_a_cache_that_missed_a_change_is_not_believed_until_it_has_it(folder, postgres_server) -> None:
    key = other_key(kernel="missed")
    with servers.redis(folder / "lasting", fsync=True) as lasting:
        now = [0.0]
        storage, cache = (
            ServiceStorage(f"{lasting.location} {postgres_server.location}"),
            locations.open_single(lasting.location),
        )
        storage.caches[0]._store = CircuitBreakerStore(locations.open_single(lasting.location), clock=lambda: now[0])
        publish(storage, other_decision(key=key))
        lasting.kill()
        better = other_decision(key=key, config=Config(tile=8))
        publish(storage, better)
        lasting.start()
        assert cache.get(key) == other_decision(key=key), "it still has the one before"
        assert b'"tile":8' in storage.records([key.digest])[key.digest]
        now[0] += MIN_PAUSE  # until the breaker lets a call through
        storage.records([key.digest])
        assert cache.get(key) == better


@pytest.mark.slow
def test_a_record_of_truth_that_is_away_is_an_error_never_a_miss(
    serve, postgres_server, redis_server, wait_until
) -> None:
    name = f"service_{next(_numbers)}"
    import psycopg

    with psycopg.connect(postgres_server.location, autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name}")
    truth = postgres_server.location.rpartition("/")[0] + f"/{name}"
    service = serve(store=f"{redis_server.location}?{PATIENT_REDIS} {truth}?{PATIENT}")
    service.tokens = type(service.tokens)(locations.open_single(truth))
    store, known = service.store(), other_key(kernel="known")
    store.put(other_decision(key=known))
    assert store.get(known) is not None

    def status(name: str) -> int:
        return httpx.get(f"{service.location}/v1/{name}", trust_env=False, timeout=300).status_code

    postgres_server.kill()
    try:
        assert store.get(known) is not None, "warm, or from the cache"
        with pytest.raises(StoreError, match="503"):
            store.get(other_key(kernel="unknown"))
        with pytest.raises(StoreError, match="503"):
            store.put(other_decision(key=other_key(kernel="unknown")))
        assert status("ready") == 503
        assert status("health") == 200
    finally:
        postgres_server.start()
    wait_until(lambda: status("ready") == 200, "a service that is ready")
    assert store.get(other_key(kernel="unknown")) is None
    assert store.put(DECISION) == DECISION


def test_a_store_without_shelves_cannot_stand_behind_a_service(tmp_path) -> None:
    from tunewright.stores.bundle import build, signing

    signing.generate_key(tmp_path / "key")
    digest = build.write(tmp_path / "a.bundle", build.build([DECISION]), signing.load_private_key(tmp_path / "key"))
    with pytest.raises(StoreError, match="cannot keep the tokens"):
        ServiceStorage(f"bundle:{tmp_path / 'a.bundle'}?pin={digest}")
