"""The numbers of docs/versions.md are those of the code."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import tunewright
from tunewright.bench import results as bench
from tunewright.memoization import storage as memo
from tunewright.model import key
from tunewright.stores.bundle import layout
from tunewright.stores.sqlite import schema as sqlite

PROJECT = Path(__file__).parent.parent
PAGE = (PROJECT / "docs" / "versions.md").read_text()
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())


def row(name: str) -> list[str]:
    """The cells of the row of a table that begins with `name`."""
    found = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", PAGE, re.MULTILINE)
    assert found, f"docs/versions.md has no row {name!r}"
    return [cell.strip() for cell in found[1].split("|")]


def source(path: str) -> str:
    return (PROJECT / "src" / "tunewright" / path).read_text()


def versions_in(path: str) -> list[str]:
    """The releases that an adapter was tested on, the oldest first."""
    (listed,) = re.findall(r"^TESTED_VERSIONS = \((.+)\)$", source(path), re.MULTILINE)
    return re.findall(r'"(.+?)"', listed)


def torches() -> list[str]:
    return versions_in("torch/inductor/adapter.py")


def tritons() -> list[str]:
    return versions_in("triton/releases.py")


def minor(version: str) -> str:
    """The first two numbers of a version."""
    return version.rpartition(".")[0]


def test_the_pythons_are_those_of_the_metadata() -> None:
    named = [one.rpartition(" ")[2] for one in PYPROJECT["project"]["classifiers"] if ":: Python :: 3." in one]
    assert row("Python")[0].split(", ") == named
    assert PYPROJECT["project"]["requires-python"] == f">={named[0]}"


def test_torch_and_triton_are_those_that_the_adapters_were_checked_on() -> None:
    for name, versions in (("torch", torches()), ("Triton", tritons())):
        assert f"{name} {', '.join(versions[:-1])} and {versions[-1]}" in PAGE
        assert row(name)[0] == f"{minor(versions[0])} to {minor(versions[-1])}"


def test_torch_and_triton_are_those_that_pip_installs() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    (requirement,) = re.findall(r'^REQUIREMENT = "(.+)"$', source("triton/releases.py"), re.MULTILINE)
    first, last = tritons()[0], minor(tritons()[-1])
    assert extras["triton"] == [requirement]
    assert requirement == f"triton>={minor(first)},<3.{int(last.removeprefix('3.')) + 1}"
    assert f"triton=={tritons()[-1]}" in PYPROJECT["dependency-groups"]["peers"]
    (least,) = (one.removeprefix("torch>=") for one in extras["torch"] if one.startswith("torch"))
    assert f"accepts torch {least} and later" in PAGE
    (installed,) = (one for one in PYPROJECT["dependency-groups"]["peers"] if one.startswith("torch=="))
    assert installed.removeprefix("torch==") in torches()


def test_what_is_tested_every_night_is_what_the_matrix_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT / "scripts"))
    import matrix_run

    try:
        environments = matrix_run.environments()
    finally:
        for name in ("matrix_run", "processes"):
            sys.modules.pop(name, None)
    tested = {kind: [one.version for one in environments if one.kind == kind] for kind in ("python", "torch", "triton")}
    assert row("Python")[0].split(", ") == tested["python"]
    for name, title in (("torch", "torch"), ("triton", "Triton")):
        said = row(title)[1].partition("with ")[2]
        assert said.split(", ") == tested[name]
    assert tested["triton"] == tritons()
    assert set(torches()) < set(tested["torch"])
    failing = {f"torch-{minor(one)}" for one in tested["torch"] if one not in torches()}
    assert failing == set(matrix_run.NOT_SUPPORTED_YET)


@pytest.mark.parametrize(
    ("format", "number"),
    [
        ("records: keys, decisions, trials", key.SCHEMA),
        ("tables of a SQLite store", sqlite.VERSION),
        ("layout of a bundle", layout.VERSION),
        ("results of `memo`", int(memo.SCHEMA.removeprefix("memo "))),
        ("saved runs of `tunewright bench`", bench.SCHEMA),
    ],
)
def test_the_number_of_a_format_is_that_of_the_code(format: str, number: int) -> None:
    assert int(row(format)[0]) == number
    assert int(row(format)[1].split(", ")[-1]) == number


def test_the_number_of_postgresql_is_how_many_steps_there_are() -> None:
    schema = pytest.importorskip("tunewright.stores.postgres.schema")
    assert int(row("tables of a PostgreSQL store")[0]) == len(schema.MIGRATIONS)


def test_the_number_of_redis_is_in_its_keys() -> None:
    redis = pytest.importorskip("tunewright.stores.redis")
    assert redis.PREFIX.split(":") == ["tunewright", row("keys of a Redis store")[0], ""]


def test_every_public_name_of_the_core_is_in_the_reference() -> None:
    reference = (PROJECT / "docs" / "reference" / "python.md").read_text()
    listed = set(re.findall(r"^::: .*\.(\w+)$", reference, re.MULTILINE))
    assert set(tunewright.__all__) - {"__version__"} <= listed


def test_the_groups_of_entry_points_are_those_of_the_metadata() -> None:
    groups = set(re.findall(r"`(tunewright\.\w+)`", PAGE[PAGE.index("**Entry points:**") : PAGE.index("**Command")]))
    declared = set(PYPROJECT["project"]["entry-points"])
    assert groups == {group for group in declared if group.startswith("tunewright.")}
