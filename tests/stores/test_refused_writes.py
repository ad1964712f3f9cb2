"""A write that is refused is not one that cannot be sent: it is listed, and the rest goes on."""

import json

import pytest
from click.testing import CliRunner

from tunewright.cli.main import command
from tunewright.errors import StoreError, WriteRefused
from tunewright.stores import locations, mirror
from tunewright.stores.circuit_breaker import CircuitBreakerStore
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import MirrorStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key


class Service(MemoryStore):
    """A service whose token may record and not publish."""

    is_up = True

    def put(self, decision, *, replace=True):
        if not self.is_up:
            raise StoreError("down")
        raise WriteRefused("403 this token lacks the scope publish")

    def record(self, key, trials):
        if not self.is_up:
            raise StoreError("down")
        super().record(key, trials)

    def get(self, key):
        if not self.is_up:
            raise StoreError("down")
        return super().get(key)


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def store(service, tmp_path):
    return MirrorStore(CircuitBreakerStore(service), SqliteStore(tmp_path / "mirror.sqlite"))


def key(number: int):
    return other_key(mode={"number": str(number)})


def test_it_raises_and_opens_no_breaker(store, service) -> None:
    with pytest.raises(WriteRefused, match="lacks the scope publish"):
        store.put(DECISION)
    assert store._remote.get(KEY) is None, "the remote is still called"
    assert [(write.key, write.decision) for write in store.refused_writes()] == [(KEY, DECISION)]


def test_pending_writes_go_on_behind_a_refused_one(store, service) -> None:
    store._remote = service  # without a breaker, whose clock is not ours
    service.is_up = False
    for number in range(10):
        store.put(other_decision(key=key(number)))
        store.record(key(number), [TIMED])
    service.is_up = True
    assert store.send_pending() == 10
    assert all(list(service.trials(key(number))) == [TIMED] for number in range(10))
    assert len(store.refused_writes()) == 10
    assert store.send_pending() == 0


def test_they_are_bounded_and_can_be_sent_again_or_dropped(store, service, monkeypatch) -> None:
    monkeypatch.setattr(mirror, "MAX_REFUSED", 3)
    for number in range(5):
        with pytest.raises(WriteRefused):
            store.put(other_decision(key=key(number)))
    assert [write.key for write in store.refused_writes()] == [key(2), key(3), key(4)]
    monkeypatch.setattr(Service, "put", MemoryStore.put)
    assert store.retry_refused() == 3
    assert store.refused_writes() == []
    assert store.send_pending() == 3
    assert set(service.keys()) == {key(2), key(3), key(4)}
    monkeypatch.undo()
    with pytest.raises(WriteRefused):
        store.put(DECISION)
    assert store.drop_refused() == 1
    assert store.refused_writes() == []


def test_a_signature_survives_an_outage(store, service, monkeypatch) -> None:
    from tunewright.stores import serialization

    record = serialization.with_author(serialization.dump_decision(DECISION), "A" * 128)
    store._remote = service
    service.is_up = False
    store.put(serialization.load_decision(record))
    service.is_up = True
    monkeypatch.setattr(Service, "put", MemoryStore.put)
    store.send_pending()
    assert service.get(KEY).body == record


def test_a_database_without_rights_refuses(postgres_location) -> None:
    import psycopg

    store = locations.open_single(postgres_location)
    store.put(DECISION)
    with psycopg.connect(postgres_location, autocommit=True) as raw:
        raw.execute("DROP ROLE IF EXISTS reader")
        raw.execute("CREATE ROLE reader LOGIN")
        raw.execute("GRANT USAGE ON SCHEMA tunewright TO reader")
        raw.execute("GRANT SELECT ON ALL TABLES IN SCHEMA tunewright TO reader")
    scheme, _, rest = postgres_location.partition("://")
    reader = locations.open_single(f"{scheme}://reader@{rest.rpartition('@')[2]}")
    with pytest.raises(WriteRefused, match="permission denied"):
        reader.put(other_decision(key=key(1)))
    assert reader.get(KEY) == DECISION


def test_the_command_lists_and_drops_them(tmp_path, monkeypatch) -> None:
    location, cache = "redis://127.0.0.1:1/0", tmp_path / "cache"
    monkeypatch.setenv("TUNEWRIGHT_CACHE", str(cache))
    local = SqliteStore(locations.mirror_path(location, cache))
    with pytest.raises(WriteRefused):
        MirrorStore(Service(), local).put(DECISION)

    def run(*options):
        said = CliRunner().invoke(command, ["store", "refused", "--store", location, *options])
        assert said.exit_code == 0, said.output
        return said.output

    listed = json.loads(run("--json"))
    assert [row["digest"] for row in listed["refused"]] == [KEY.digest]
    assert "lacks the scope publish" in listed["refused"][0]["reason"]
    assert "gemm" in run()
    assert json.loads(run("--drop", "--json"))["dropped"] == 1
    assert json.loads(run("--json"))["refused"] == []
