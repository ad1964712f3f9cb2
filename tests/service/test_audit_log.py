"""The audit log: written with what it records, nothing for what changes nothing, chained, exported and checked."""

import json
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from tunewright.cli.main import command
from tunewright.errors import StoreError
from tunewright.service import audit_export
from tunewright.service.audit_log import AUDIT_LOG, UNCHAINED_LOG, read_record
from tunewright.service.publishing import Publisher
from tunewright.service.responses import record_tag
from tunewright.service.storage import ServiceStorage, open_primary
from tunewright.spaces.config import Config
from tunewright.stores import serialization
from tunewright.testing.keys import DECISION, other_decision, other_key

ORIGIN = {"token": "t", "request": "r"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


@pytest.fixture
def storage(path):
    return ServiceStorage(str(path))


def tag(decision) -> str:
    return record_tag(serialization.dump_decision(decision))


def fill(storage, count: int) -> None:
    """Publishes decisions of as many keys."""
    publisher = Publisher(storage)
    for i in range(count):
        publisher.publish(other_decision(key=other_key(kernel=f"kernel {i}")), None, ORIGIN)


def records(storage):
    return [read_record(body) for _, body in storage.primary.entries(AUDIT_LOG)]


def change(path, sql: str, *given) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        assert raw.execute(sql, given).rowcount == 1


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, words)
    return result.exit_code, result.output


def test_a_publication_that_changes_nothing_is_not_recorded(storage) -> None:
    publisher = Publisher(storage)
    better = other_decision(config=Config(tile=8))
    assert publisher.publish(DECISION, None, ORIGIN)[1].number == 1
    for _ in range(50):
        assert publisher.publish(DECISION, None, ORIGIN) == (DECISION, None)
        assert publisher.publish(DECISION, tag(DECISION), ORIGIN) == (DECISION, None)
        assert publisher.publish(better, None, ORIGIN) == (DECISION, None)
        assert publisher.publish(better, "0" * 64, ORIGIN) == (DECISION, None)
    assert publisher.publish(better, tag(DECISION), ORIGIN)[1].number == 2
    first = DECISION.config.plain()
    assert [(one.before, one.after) for one in records(storage)] == [(None, first), (first, {"tile": 8})]


def test_a_decision_is_not_published_if_its_record_cannot_be_written(storage, path) -> None:
    fill(storage, 1)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'no space'); END")
    with pytest.raises(StoreError, match="no space"):
        Publisher(storage).publish(DECISION, None, ORIGIN)
    assert open_primary(str(path)).get(DECISION.key) is None


def test_publishers_of_several_processes_make_one_chain(path) -> None:
    publishers = [Publisher(ServiceStorage(str(path))) for _ in range(3)]
    for i in range(9):
        publishers[i % 3].publish(other_decision(key=other_key(kernel=f"kernel {i}")), None, ORIGIN)
    assert audit_export.verify(open_primary(str(path)), []) == ((9, records(ServiceStorage(str(path)))[-1].entry), "")


@pytest.mark.parametrize(
    ("sql", "given", "problem"),
    [
        ("UPDATE entries SET body = ?, seal = ? WHERE name LIKE '%3'", "changed", "entry 3 was changed"),
        ("DELETE FROM entries WHERE name LIKE '%3'", "", "entry 3 is missing"),
        ("DELETE FROM entries WHERE name LIKE '%1'", "", "entry 1 is missing"),
        ("UPDATE entries SET seal = 0 WHERE name LIKE '%4'", "", "entry 4 is missing"),
    ],
)
def test_the_first_broken_entry_is_named(storage, path, sql, given, problem) -> None:
    fill(storage, 6)
    parameters = ()
    if given:
        from tunewright.stores.records import checksum, entry_context

        body = dict(storage.primary.entries(AUDIT_LOG))[f"{3:020d}"].replace(b'"token":"t"', b'"token":"x"')
        parameters = body, checksum(body, entry_context(AUDIT_LOG, f"{3:020d}"))
    change(path, sql, *parameters)
    assert audit_export.verify(open_primary(str(path)), []).problem.startswith(problem)
    status, said = run("service", "audit", "verify", "--store", str(path))
    assert status == 1
    assert problem in said


def test_an_entry_that_was_rewritten_with_a_digest_of_its_own_is_found_by_the_next(storage, path) -> None:
    from hashlib import sha256

    from tunewright.stores.records import checksum, entry_context

    fill(storage, 4)
    name = f"{2:020d}"
    content = b"{" + dict(storage.primary.entries(AUDIT_LOG))[name][76:].replace(b'"token":"t"', b'"token":"x"')
    body = b'{"entry":"%b",%b' % (sha256(content).hexdigest().encode(), content[1:])
    sql = "UPDATE entries SET body = ?, seal = ? WHERE name = ?"
    change(path, sql, body, checksum(body, entry_context(AUDIT_LOG, name)), name)
    report = audit_export.verify(open_primary(str(path)), [])
    assert report.problem.startswith("entry 3 does not follow entry 2")


def test_old_entries_are_moved_to_a_file_that_is_checked_with_the_store(storage, path, tmp_path) -> None:
    fill(storage, 10)
    file = tmp_path / "audit" / "old.ndjson"
    before = [body for _, body in storage.primary.entries(AUDIT_LOG)]
    assert run("service", "audit", "export", str(file), "--keep", "4", "--store", str(path)) == (
        0,
        f"6 entries moved to {file}\n",
    )
    assert file.read_bytes().splitlines() == before[:6]
    assert [one.number for one in records(storage)] == [7, 8, 9, 10]
    fill_again = Publisher(storage)
    fill_again.publish(DECISION, None, ORIGIN)
    assert run("service", "audit", "export", str(file), "--keep", "0", "--store", str(path))[0] == 0
    assert [one.number for one in records(storage)] == [11], "the next entry refers to it"
    for files in ([], [str(file)]):
        status, said = run("service", "audit", "verify", *files, "--store", str(path), "--json")
        assert (status, json.loads(said)["entries"]) == (0, 11)
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"kernel 2", b"kernel 3"))
    status, said = run("service", "audit", "verify", str(file), "--store", str(path))
    assert status == 1
    assert "entry 3 was changed" in said
    file.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1])
    assert "give all of them" in run("service", "audit", "verify", str(file), "--store", str(path))[1]


def test_an_export_that_was_cut_off_is_finished_and_nothing_is_written_twice(storage, path, tmp_path) -> None:
    fill(storage, 8)
    file, store = tmp_path / "old.ndjson", open_primary(str(path))
    bodies = [body for _, body in store.entries(AUDIT_LOG)]
    lines = b"".join(body + b"\n" for body in bodies[:5])
    for left in (lines, lines[:-7], lines[:-1], lines.replace(bodies[3], b"\0" * len(bodies[3])), b"\0\n", b""):
        file.write_bytes(left)
        assert audit_export.export(store, file, keep=2) == 6
        assert file.read_bytes() == b"".join(body + b"\n" for body in bodies[:6])
        with closing(sqlite3.connect(path)) as raw, raw:  # as if nothing had been removed
            raw.execute("DELETE FROM entries WHERE shelf IN (?, ?)", (audit_export.EXPORTS, AUDIT_LOG))
        for number, body in enumerate(bodies, 1):
            store.keep(AUDIT_LOG, f"{number:020d}", body)


def test_a_log_is_not_exported_behind_another_one(storage, path, tmp_path) -> None:
    fill(storage, 4)
    other = ServiceStorage(str(tmp_path / "other.sqlite"))
    fill(other, 6)
    file = tmp_path / "old.ndjson"
    audit_export.export(other.primary, file, keep=1)
    with pytest.raises(StoreError, match="name another file"):
        audit_export.export(storage.primary, file, keep=1)
    assert len(records(storage)) == 4


def test_records_of_earlier_versions_are_listed_first(storage, path) -> None:
    legacy = {"at": 1.0, "token": "old", "request": "", "digest": "0" * 64, "kernel": "gemm"}
    legacy |= {"asked": {}, "after": {}, "stands": False}
    storage.primary.keep(UNCHAINED_LOG, "00001-ab", json.dumps(legacy).encode())
    fill(storage, 1)
    status, said = run("service", "audit", "--store", str(path), "--json")
    assert status == 0
    assert [one["token"] for one in json.loads(said)] == ["old", "t"]
    assert run("service", "audit", "verify", "--store", str(path))[0] == 0
