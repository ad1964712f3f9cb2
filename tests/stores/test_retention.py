"""What `store gc` may remove: every kind of record has a policy, and what is not declared stays."""

import ast
import sqlite3
from pathlib import Path

import pytest

import tunewright
from tunewright.service.tokens import Scope, TokenStore
from tunewright.stores import namespaces, retention
from tunewright.stores.namespaces import NAMESPACES, Retention
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.statistics import MissRecord, RetentionLimits
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key

SOURCES = Path(tunewright.__file__).parent
DAY = 86400.0
TABLES_WITH_AGES = {"trials": "at", "history": "since", "wants": "at", "entries": "at", "decisions": "since"}


@pytest.fixture(params=["sqlite", "postgres"])
def aged(request, tmp_path):
    """A store, and how to make all its records 100 days older."""
    if request.param == "sqlite":
        path = tmp_path / "store.sqlite"
        yield SqliteStore(path), lambda: _age_file(path)
        return
    import psycopg

    from tunewright.stores.postgres import PostgresStore

    location = request.getfixturevalue("postgres_location")

    def age() -> None:
        with psycopg.connect(location, autocommit=True) as raw:
            for table, column in TABLES_WITH_AGES.items():
                raw.execute(f"UPDATE tunewright.{table} SET {column} = {column} - {100 * DAY}")

    yield PostgresStore(location), age


def _age_file(path) -> None:
    with sqlite3.connect(path) as raw:
        for table, column in TABLES_WITH_AGES.items():
            raw.execute(f"UPDATE {table} SET {column} = {column} - {100 * DAY}")
    raw.close()


def namespace_of(kind) -> str:
    return kind.named("one") if kind.many else kind.name


def stays(store, kind) -> bool:
    return bool(store.fetch(namespace_of(kind), ["x"]))


@pytest.mark.parametrize("limits", [RetentionLimits(age=90 * DAY), RetentionLimits(bytes=0)], ids=["older", "larger"])
@pytest.mark.parametrize("requested", [(), namespaces.ON_REQUEST], ids=["plain", "also"])
def test_each_kind_of_entry_goes_by_its_policy(aged, limits, requested) -> None:
    store, age = aged
    for kind in NAMESPACES:
        store.keep(namespace_of(kind), "x", b"body")
    age()
    limits = RetentionLimits(limits.age, limits.bytes, decisions=True, kinds=requested)
    removed = store.trim(limits)
    gone = {kind.kind for kind in NAMESPACES if not stays(store, kind)}
    by_age = {kind.kind for kind in NAMESPACES if kind.retention is Retention.BY_AGE}
    assert gone == by_age | set(requested)
    assert removed.entries == len(gone)


@pytest.mark.parametrize(
    "name", ["squares", "service:", "memo", "memory", "Torch", "torch2", "races ", "Memo f", "x' OR 1=1"]
)
def test_a_namespace_that_nobody_declared_stays(aged, name) -> None:
    store, age = aged
    store.keep(name, "x", b"body")
    age()
    store.trim(RetentionLimits(age=1.0, bytes=0, decisions=True, kinds=namespaces.ON_REQUEST))
    assert store.fetch(name, ["x"]) == {"x": b"body"}


def test_the_records_of_tables_go_by_age_and_decisions_on_request(aged) -> None:
    store, age = aged
    store.put(DECISION)
    store.put(other_decision(config=DECISION.config))
    store.record(KEY, [TIMED])
    store.record_misses([MissRecord(other_key(kernel="missed"), 1, 0.5)])
    age()
    gone = store.trim(RetentionLimits(age=90 * DAY))
    assert (gone.trials, gone.wants, gone.decisions) == (1, 1, 0)
    assert store.get(KEY) is not None
    assert store.trim(RetentionLimits(age=90 * DAY, decisions=True)).decisions == 1


def test_old_tokens_still_open_the_service(tmp_path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    TokenStore(store).add("ci", [Scope.READ])
    _age_file(tmp_path / "store.sqlite")
    store.trim(RetentionLimits(age=DAY, bytes=0, decisions=True, kinds=namespaces.ON_REQUEST))
    assert [token.name for token in TokenStore(store).all()] == ["ci"]


def test_what_must_stay_does_not_end_the_search_for_what_may_go(tmp_path) -> None:
    """Protected entries that are older than all others fill no window of records to examine."""
    store = SqliteStore(tmp_path / "store.sqlite")
    for number in range(30):
        store.keep(namespaces.TOKENS.name, str(number), b"x" * 100)
    store.keep(namespaces.TORCH_CACHE.name, "x", b"x" * 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "WINDOW", 5)
        assert store.trim(RetentionLimits(bytes=0)).entries == 1


def test_every_table_of_records_is_trimmed_by_a_policy(tmp_path) -> None:
    """A new table is either listed for retention, or here as one that has no records of its own."""
    bookkeeping = {"problems", "leases", "boots"}
    SqliteStore(tmp_path / "store.sqlite").stats()
    with sqlite3.connect(tmp_path / "store.sqlite") as raw:
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    raw.close()
    assert tables - bookkeeping == {table.table for table in retention.ALL_TABLES}


# Who writes entries: found in the sources, so that a new kind without a policy fails here.


def _written_namespaces(text: str) -> list[str]:
    """The expression of the namespace in each call of `keep` that writes an entry."""
    return [
        ast.unparse(node.args[0])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "keep" and len(node.args) >= 3
    ]


def _assigned(text: str, target: str) -> list[str]:
    """What is assigned to a name or an attribute in a module; of several names, the value in the same place."""
    values = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Assign):
            continue
        names = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
        found = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        values += [ast.unparse(value) for name, value in zip(names, found, strict=False) if ast.unparse(name) == target]
    return values


def _is_declared(text: str, expression: str) -> bool:
    """Whether a namespace comes from the registry, or from whoever calls: a store or the service passes it on."""
    if expression == "namespace":
        return True
    values = [expression, *_assigned(text, expression)]
    if any(value.startswith("namespaces.") for value in values):
        return True
    imported = [
        (SOURCES.parent / f"{node.module.replace('.', '/')}.py").read_text()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and any(alias.name == expression for alias in node.names)
    ]
    module, _, name = expression.partition(".")
    if name:
        imported += [path.read_text() for path in (SOURCES / "stores").glob(f"{module}.py")]
    return any(_is_declared(other, name or expression) for other in imported)


def test_every_writer_of_entries_takes_its_namespace_from_the_registry() -> None:
    found = {
        (path.relative_to(SOURCES).as_posix(), expression)
        for path in SOURCES.rglob("*.py")
        for expression in _written_namespaces(path.read_text())
        if "testing" not in path.parts
    }
    assert len(found) >= 10
    assert sorted((path, name) for path, name in found if not _is_declared((SOURCES / path).read_text(), name)) == []


def test_a_writer_without_a_policy_is_found() -> None:
    assert _written_namespaces("store.keep('new kind', name, body)") == ["'new kind'"]
    assert not _is_declared("", "'new kind'")
    assert not _is_declared("NEW = 'new kind'", "NEW")
    assert _is_declared("NEW = namespaces.TOKENS.name", "NEW")


def test_kinds_have_names_of_their_own() -> None:
    declared = [value for value in vars(namespaces).values() if isinstance(value, namespaces.Namespace)]
    assert sorted(declared) == sorted(NAMESPACES)
    assert len({kind.kind for kind in NAMESPACES}) == len({kind.name for kind in NAMESPACES}) == len(NAMESPACES)
    beginnings = [kind.name for kind in NAMESPACES if kind.many]
    assert [kind for kind in NAMESPACES if not kind.many and kind.name.startswith(tuple(beginnings))] == []
