"""A service as a store: the contracts that every store keeps, through a real server."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tunewright.stores import locations
from tunewright.stores.capabilities import (
    KeepsNamespaces,
    KeepsRevisions,
    RecordsMisses,
    SupportsFill,
    SupportsLeases,
    SupportsMaintenance,
)
from tunewright.testing import servers
from tunewright.testing.capability_kit import LeaseContract, MissContract, NamespaceContract, RevisionContract
from tunewright.testing.store_kit import StoreContract


def emptied(service):
    """A service whose SQLite file is made empty behind its back: starting one for each test takes seconds."""
    import sqlite3

    with sqlite3.connect(service.place, timeout=120) as file:
        for table in ("decisions", "history", "problems", "trials", "wants", "leases"):
            file.execute(f"DELETE FROM {table}")
        file.execute("DELETE FROM entries WHERE shelf NOT LIKE 'service:%'")
    file.close()


@pytest.fixture(scope="module")
def cold(serve):
    """One that keeps nothing warm, since its file is emptied by us."""
    return serve("--fresh", "0")


class TestHttp(StoreContract, LeaseContract, MissContract, RevisionContract, NamespaceContract):
    @pytest.fixture
    def store(self, cold):
        emptied(cold)
        return cold.store()


@pytest.fixture(scope="module")
def before_postgres(serve):
    """A service before PostgreSQL, and how to empty that."""
    psycopg = pytest.importorskip("psycopg")
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # the server is not run by root
        with servers.postgres(Path(name) / "server", fsync=False) as server:

            def empty():
                with psycopg.connect(server.location) as link:
                    link.execute("SET search_path = tunewright")
                    link.execute("TRUNCATE decisions, history, problems, trials, wants, leases")
                    link.execute("DELETE FROM entries WHERE shelf NOT LIKE 'service:%'")

            yield serve("--fresh", "0", store=f"{server.location}?tunewright_timeout=120"), empty


@pytest.mark.slow
class TestHttpBeforePostgres(StoreContract, LeaseContract, MissContract, RevisionContract, NamespaceContract):
    @pytest.fixture
    def store(self, before_postgres):
        service, empty = before_postgres
        store = service.store()
        empty()
        return store


@pytest.fixture(scope="module")
def before_redis(serve, tmp_path_factory):
    """A service before Redis, and how to empty that."""
    redis = pytest.importorskip("redis")
    with servers.redis(tmp_path_factory.mktemp("redis")) as server:
        patient = f"{server.location}?socket_timeout=120&socket_connect_timeout=120"
        service = serve("--fresh", "0", store=patient)
        with redis.Redis.from_url(server.location) as raw:
            yield service, raw.flushall


@pytest.mark.slow
class TestHttpBeforeRedis(StoreContract, LeaseContract, MissContract, NamespaceContract):
    @pytest.fixture
    def store(self, before_redis):
        service, empty = before_redis
        empty()
        return service.store()


def test_it_offers_what_it_says(cold) -> None:
    store = cold.store()
    for offer in (SupportsLeases, RecordsMisses, KeepsRevisions, KeepsNamespaces):
        assert isinstance(store, offer)
    for offer in (SupportsFill, SupportsMaintenance):
        assert not isinstance(store, offer)


def test_a_location_in_words_opens_it(cold) -> None:
    assert list(locations.open_single(cold.at()).decisions("no such kernel")) == []
