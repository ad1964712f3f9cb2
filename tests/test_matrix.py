"""The matrix of versions: what it installs, how it counts, and what it says of versions that are not supported yet."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import matrix_run  # noqa: E402
from matrix_run import Environment, Unavailable  # noqa: E402


@pytest.fixture
def tested(tmp_path, monkeypatch):
    """Run tests as the matrix does, in this environment; the row."""
    monkeypatch.setattr(matrix_run, "made", lambda environment: Path(sys.executable))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts sooner
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")

    def test(code: str, limit: float = 600.0):
        (tmp_path / "test_some.py").write_text(code)
        environment = Environment("torch", "0.1.2", (), (str(tmp_path / "test_some.py"),), limit=limit)
        return matrix_run.test(environment, folder=tmp_path)

    return test


GOOD = "def test_one(): pass\n"
BAD = GOOD + "import pytest\ndef test_two(): assert 0\n@pytest.mark.skip\ndef test_three(): pass\n"


def test_passed_failed_and_skipped_tests_are_counted(tested) -> None:
    row = tested(BAD)
    assert (row.name, row.version, row.status) == ("torch-0.1", "0.1.2", "failed")
    assert (row.passed, row.failed, row.skipped) == (1, 1, 1)
    assert "torch-0.1.log" in row.reason
    assert tested(GOOD).status == "passed"


def test_tests_that_cannot_be_collected_have_failed(tested) -> None:
    row = tested("import no_such_module\n")
    assert row.status == "failed"
    assert row.failed == 1


def test_tests_that_hang_are_stopped_at_the_limit(tested) -> None:
    row = tested("def test_one():\n    import time\n    time.sleep(600)\n", limit=1.0)
    assert row.status == "failed"
    assert "limit of 1 s" in row.reason


def test_a_version_that_is_not_supported_yet_may_fail_and_is_told_to_be_listed_no_longer(tested, monkeypatch) -> None:
    monkeypatch.setitem(matrix_run.NOT_SUPPORTED_YET, "torch-0.1", "it has another cache")
    row = tested(BAD)
    assert (row.status, row.reason) == ("expected", "it has another cache")
    row = tested(GOOD)
    assert row.status == "unexpected"
    assert "remove torch-0.1" in row.reason


def test_an_environment_that_cannot_be_made_says_why(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(matrix_run.shutil, "which", lambda name: None)
    row = matrix_run.test(Environment("python", "3.99", (), ("tests/model",), "3.99"), folder=tmp_path)
    assert row.status == "unavailable"
    assert "put python3.99 on the PATH" in row.reason
    with pytest.raises(Unavailable, match="failed: no such thing"):
        matrix_run._run([sys.executable, "-c", "raise SystemExit('no such thing')"])


def test_packages_come_from_where_pip_finds_them(monkeypatch) -> None:
    said = """global.cert='/certificates'
global.extra-index-url='https://one.example/simple https://two.example/simple'
global.find-links='wheels'
:env:.find-links='wheels'
"""
    monkeypatch.setattr(matrix_run, "_run", lambda command: said)
    options = matrix_run.index_options.__wrapped__()
    assert options[2:] == [
        "--extra-index-url", "https://one.example/simple", "--extra-index-url", "https://two.example/simple",
        "--find-links", "wheels",
    ]  # fmt: skip


def test_every_environment_has_a_name_of_its_own_and_tests_that_exist() -> None:
    known = matrix_run.environments()
    names = {one.name for one in known}
    assert len(names) == len(known)
    assert names >= matrix_run.NOT_SUPPORTED_YET.keys()
    assert {"python-3.11", "python-3.12", "python-3.13"} <= names
    paths = {word.removeprefix("--ignore=") for one in known for word in one.tests}
    assert all((ROOT / path).exists() for path in paths)


def test_the_core_and_what_tests_need_is_installed_everywhere() -> None:
    wanted = matrix_run.requirements(Environment("torch", "0.1.2", ("torch==0.1.2",), ()))
    assert {"numpy", "msgspec", "hypothesis", "pytest", "torch"} <= {matrix_run._distribution(one) for one in wanted}


def test_rows_are_written_as_json_and_an_unknown_name_is_refused(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(matrix_run, "test", lambda one, folder: matrix_run.Row(one.name, one.version, "passed", 3))
    monkeypatch.setattr(matrix_run, "LOGS", tmp_path)
    assert matrix_run.main(["--only", "python-3.12", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["passed"] == 3
    with pytest.raises(SystemExit):
        matrix_run.main(["--only", "python-2.7"])
    assert "scripts/matrix --list" in capsys.readouterr().err
