import sqlite3
import threading

import pytest

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.stores.memory import MemoryStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing.capability_kit import FillContract, LogContract, TrialCountContract
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key
from tunewright.testing.store_kit import StoreContract


class TestMemory(StoreContract, FillContract, TrialCountContract, LogContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestSqlite(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return SqliteStore(tmp_path / "deep" / "store.sqlite")


class TestLayers(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return TieredStore(MemoryStore(), SqliteStore(tmp_path / "store.sqlite"))


class TestLayersWithADeadRemote(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return TieredStore(MemoryStore(), SqliteStore(tmp_path / "store.sqlite"), Down())


class Down(MemoryStore):
    def get(self, *args, **options):
        raise StoreError("down")

    get_many = put = decisions = record = trials = keys = get


def test_a_far_hit_fills_the_nearer_layers(tmp_path) -> None:
    near, far = MemoryStore(), SqliteStore(tmp_path / "store.sqlite")
    far.put(DECISION)
    assert TieredStore(near, far).get(KEY) == DECISION
    assert near.get(KEY) == DECISION


def test_a_dead_remote_is_a_miss_not_a_crash(caplog) -> None:
    store = TieredStore(MemoryStore(), Down())
    assert store.get(KEY) is None
    assert "Down is skipped: down" in caplog.text
    store.put(DECISION)
    assert store.get(KEY) == DECISION


def test_what_no_layer_keeps_is_an_error() -> None:
    store = TieredStore(Down())
    with pytest.raises(StoreError, match="no tier stored the decision"):
        store.put(DECISION)
    with pytest.raises(StoreError, match="no tier stored 1 trials"):
        store.record(KEY, [TIMED])


def test_what_stands_in_the_farthest_layer_stands_for_all(tmp_path) -> None:
    near, far = MemoryStore(), SqliteStore(tmp_path / "store.sqlite")
    far.put(DECISION)
    mine = other_decision(config=Config(tile=8))
    assert TieredStore(near, far).put(mine, replace=False) == DECISION
    assert near.get(KEY) == DECISION


def test_a_second_process_finds_what_the_first_has_put(tmp_path) -> None:
    SqliteStore(tmp_path / "s").put(DECISION)
    assert SqliteStore.at(f"sqlite:{tmp_path / 's'}").get(KEY) == DECISION


def test_a_damaged_or_foreign_record_is_a_miss(tmp_path, caplog) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore(path)
    store.put(DECISION)
    store.record(KEY, [TIMED])
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE decisions SET body = substr(body, 1, 100)")
        raw.execute("UPDATE trials SET body = replace(body, '\"schema\":1', '\"schema\":9')")
    raw.close()
    assert store.get(KEY) is None
    assert store.get_many([KEY]) == {}
    assert list(store.decisions()) == []
    assert list(store.trials(KEY)) == []
    assert "skipping" in caplog.text
    assert store.put(DECISION, replace=False) == DECISION
    assert store.get(KEY) == DECISION


def test_an_answer_to_another_key_is_not_believed(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore(path)
    other = other_key(kernel="conv")
    store.put(DECISION)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE decisions SET digest = ?", (bytes.fromhex(other.digest),))
    raw.close()
    assert store.get(other) is None


def test_a_store_of_a_later_version_is_left_alone(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StoreError, match="has schema 99"):
        SqliteStore(path).get(KEY)


def test_a_path_that_cannot_be_written_says_what_to_do(tmp_path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(StoreError, match="set another `store`"):
        SqliteStore(blocker / "store.sqlite").put(DECISION)
    (tmp_path / "not.sqlite").write_text("this is no database, but it is long enough to be taken for one" * 9)
    with pytest.raises(StoreError, match="cannot read"):
        SqliteStore(tmp_path / "not.sqlite").get(KEY)


def test_threads_share_a_store(tmp_path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    kept = []

    def work(number):
        kept.append(store.put(other_decision(config=Config(tile=number)), replace=False))
        store.record(KEY, [TIMED])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({decision.config for decision in kept}) == 1
    assert sum(1 for _ in store.trials(KEY)) == 16


def test_many_open_a_fresh_file_at_once(tmp_path, together) -> None:
    needs = "from tunewright.stores.sqlite import SqliteStore\nfrom tunewright.testing.keys import DECISION"
    paths = [tmp_path / f"{turn}.sqlite" for turn in range(3)]
    assert together(needs, "SqliteStore(given).put(DECISION)", *paths) == [0] * 8
    assert [len(SqliteStore(path).history(KEY)) for path in paths] == [1, 1, 1]


def test_the_old_names_of_the_contracts_still_work_with_a_warning() -> None:
    from tunewright.testing import capability_kit, offer_kit

    with pytest.warns(DeprecationWarning, match=r"capability_kit\.MissContract"):
        assert offer_kit.WantContract is capability_kit.MissContract
    with pytest.raises(AttributeError, match="NoContract"):
        _ = offer_kit.NoContract
