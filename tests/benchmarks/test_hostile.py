"""The corpus of attacks is well-formed, and the benchmark counts what it says it counts."""

import json
import os
import sys
from pathlib import Path

import pytest

from tunewright.errors import StoreError

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def hostile(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hostile

    yield hostile
    for name in [name for name in sys.modules if name.split(".")[0] in ("hostile", "hostile_corpus", "figures")]:
        del sys.modules[name]


def runs_code(workspace):
    exec(workspace.python)
    return ("held", "")


def loads_code(workspace):
    (workspace.folder / "planted.sh").write_text(workspace.shell)
    workspace.run("sh", "planted.sh")
    return ("held", "")


def prints_a_secret(workspace):
    workspace.run("python", "-c", "print('hunter2-do-not-print')")
    return ("held", "")


def raises_a_secret(workspace):
    raise StoreError("the password hunter2-do-not-print is wrong")


def dies(workspace):
    os.abort()


def starts_what_dies(workspace):
    workspace.run("python", "-c", "import os; os.abort()")
    return ("held", "")


def raises_another_error(workspace):
    raise KeyError("x")


def refuses(workspace):
    raise StoreError("no")


def loses(workspace):
    return ("loss", "a token")


@pytest.mark.parametrize(("function", "attacked", "used"), [
    (runs_code, "code_run", "code_run"), (loads_code, "code_run", "code_run"), (prints_a_secret, "leak", "leak"),
    (raises_a_secret, "leak", "leak"), (dies, "crash", "crash"), (starts_what_dies, "crash", "refused"),
    (raises_another_error, "crash", "refused"), (refuses, "held", "refused"), (loses, "loss", "refused"),
])  # fmt: skip
def test_what_a_case_does_is_found(hostile, function, attacked, used) -> None:
    from hostile_corpus.case import Case

    cases = [Case(function.__name__, "test", honest, True, function) for honest in (False, True)]
    assert [verdict.outcome for verdict in hostile.run(cases, 1)] == [attacked, used]


def test_a_case_that_hangs_is_a_crash(hostile, monkeypatch) -> None:
    from hostile_corpus.case import Case

    monkeypatch.setattr(hostile, "MAX_SECONDS", 0.5)
    case = Case("hangs", "test", False, True, lambda workspace: workspace.run("sleep", "600"))
    (verdict,) = hostile.run([case], 1)
    assert verdict.outcome == "crash"
    assert "hung" in verdict.reason


def test_a_case_starts_with_nothing(hostile, monkeypatch) -> None:
    from hostile_corpus.case import Case, Finding

    monkeypatch.setenv("TUNEWRIGHT_TOKEN", "tw_1")

    def look(workspace):
        found = [*workspace.folder.iterdir(), *Path.home().iterdir(), *(n for n in os.environ if "TUNEWRIGHT" in n)]
        return Finding("held", f"{found} {Path.cwd() == workspace.folder}")

    (verdict,) = hostile.run([Case("looks", "test", True, True, look)], 1)
    assert (verdict.outcome, verdict.reason) == ("held", "[] True")


def test_every_case_has_a_name_of_its_own_and_says_what_it_plants(hostile) -> None:
    cases = hostile.load_cases()
    assert {case.honest for case in cases} == {True, False}
    assert len({(case.module, case.name) for case in cases}) == len(cases)
    assert [
        case.name for case in cases if not (case.function.__doc__ or "").strip().partition("\n")[0].endswith(".")
    ] == []


def test_figures_are_counted_and_have_goals(hostile, capsys) -> None:
    name = "a_setting_in_the_current_folder_is_read"
    assert hostile.main(["--quick", "--json", "--only", name]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["cases"], said["honest"], said["refused"]) == (0, 1, 0)
    assert set(said["goals"]) == set(hostile.COUNTS)
    assert all(goal["met"] for goal in said["goals"].values())


@pytest.mark.slow
def test_no_attack_on_the_configuration_succeeds(hostile, capsys) -> None:
    hostile.main(["--quick", "--json", "--module", "configuration"])
    said = json.loads(capsys.readouterr().out)
    assert [row for row in said["rows"] if row["outcome"] not in ("held", "skipped")] == []


@pytest.mark.slow
def test_without_the_checks_the_attacks_succeed(hostile, monkeypatch) -> None:
    """What is planted works: it is the library that refuses it."""
    from tunewright.stores import namespaces, trust, user_file

    for name in ("check_file", "check_folder"):
        monkeypatch.setattr(trust, name, lambda *_: None)
    monkeypatch.setattr(user_file, "require_bound_token", lambda *_: None)
    monkeypatch.setattr(user_file, "_token_hosts", lambda _: [])
    monkeypatch.setattr(namespaces.Namespace, "condition", "1 = 1")
    cases = [
        case
        for case in hostile.load_cases()
        if case.module == "configuration"
        and not case.honest
        and case.name.startswith(("token_", "retention_", "settings_of_another", "settings_that_every"))
    ]
    verdicts = list(hostile.run(cases, 1))
    assert len(verdicts) >= 12
    assert [verdict.name for verdict in verdicts if verdict.outcome == "held"] == []
