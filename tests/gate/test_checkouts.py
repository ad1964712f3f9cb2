"""Two checkouts raced in one run: which code runs where, and nothing left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tunewright.errors import BackendError, SettingsError
from tunewright.gate.checkouts import baseline_checkout, resolve_revision, top_folder
from tunewright.gate.function_process import FunctionProcess, NothingToCompare
from tunewright.gate.sides import Side, SideKind, in_checkouts, open_sides, parse_side

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(folder, *words):
    done = subprocess.run(["git", *IDENTITY, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def project(tmp_path):
    """A project whose work tree differs from its first commit, which is tagged."""
    top = tmp_path / "project"
    (top / "src" / "pkg").mkdir(parents=True)
    (top / "src" / "pkg" / "__init__.py").write_text("def which(): return 'old'\ndef gone(): pass\n")
    (top / "sums.py").write_text("def total(): sum(range(100))\n")
    git(tmp_path, "init", "-q", "project")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "old")
    git(top, "tag", "v1")
    (top / "src" / "pkg" / "__init__.py").write_text("def which(): return 'new'\ndef fresh(): pass\n")
    (top / "sums.py").write_text("def total(): sum(range(200))\ndef added(): pass\n")
    return top.resolve()


def loads(side) -> None:
    process = FunctionProcess(side.place())
    try:
        process.start()
    finally:
        process.close()


def test_a_revision_is_checked_out_and_removed(project) -> None:
    before = git(project, "worktree", "list")
    with baseline_checkout("v1", project) as checkout:
        assert "range(100)" in (checkout / "sums.py").read_text()
        assert checkout != project
    assert not checkout.exists()
    assert git(project, "worktree", "list") == before
    assert "range(200)" in (project / "sums.py").read_text()


def test_it_is_removed_if_the_race_fails(project) -> None:
    with pytest.raises(ZeroDivisionError), baseline_checkout("v1", project) as checkout:
        raise ZeroDivisionError
    assert not checkout.exists()


def test_no_hook_of_the_repository_runs(project, tmp_path) -> None:
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    with baseline_checkout("v1", project):
        pass
    assert not (tmp_path / "hooked").exists()


def test_another_checkout_can_be_named(project, tmp_path) -> None:
    git(tmp_path, "clone", "-q", "project", "other")
    with baseline_checkout(str(tmp_path / "other"), project) as checkout:
        assert checkout == (tmp_path / "other").resolve()
    assert checkout.exists()


def test_a_branch_that_only_origin_has_is_found(project, tmp_path) -> None:
    git(project, "branch", "feature", "v1")
    git(tmp_path, "clone", "-q", "project", "other")
    assert resolve_revision("feature", tmp_path / "other") == git(project, "rev-parse", "v1").strip()


@pytest.mark.parametrize("revision", ["nonesuch", "--upload-pack=touch x", "-x", ""])
def test_what_is_no_revision_is_refused(project, revision) -> None:
    with pytest.raises(SettingsError, match="revision"):
        resolve_revision(revision, project)


def test_a_folder_without_git_is_refused(tmp_path) -> None:
    with pytest.raises(SettingsError, match="in no git work tree"):
        top_folder(tmp_path)


def test_each_side_runs_the_code_of_its_checkout(project) -> None:
    (project / "case.py").write_text(
        "from pkg import which\nfrom pathlib import Path\ndef record(): Path('ran').write_text(which())\n"
    )
    with baseline_checkout("v1", project) as checkout:
        side = Side(str(project / "case.py") + ":record", SideKind.FUNCTION, project, harness=True)
        for number, each in enumerate(in_checkouts(side, project, checkout)):
            loads(each)
            assert (each.folder / "ran").read_text() == ["old", "new"][number]


def test_a_module_is_imported_from_each_checkout(project) -> None:
    with baseline_checkout("v1", project) as checkout:
        before, after = in_checkouts(parse_side("pkg:gone", project), project, checkout)
        loads(before)
        with pytest.raises(NothingToCompare, match="defines no 'gone'"):
            loads(after)
        before, after = in_checkouts(parse_side("pkg:fresh", project), project, checkout)
        loads(after)
        with pytest.raises(NothingToCompare, match="defines no 'fresh'"):
            loads(before)


def test_code_of_the_other_checkout_is_noticed(project) -> None:
    """A path that is put first by the code itself would make both sides run the same."""
    (project / "case.py").write_text(
        f"import sys\nsys.path.insert(0, {str(project / 'src')!r})\nimport pkg\ndef f(): pkg.which()\n"
    )
    with baseline_checkout("v1", project) as checkout:
        side = Side(str(project / "case.py") + ":f", SideKind.FUNCTION, project, harness=True)
        before, after = in_checkouts(side, project, checkout)
        with pytest.raises(BackendError, match="in the other checkout"):
            loads(before)
        loads(after)


def test_commands_run_in_their_checkout(project) -> None:
    script = "import pkg, pathlib; pathlib.Path('ran').write_text(pkg.which())"
    (project / "run.py").write_text(script)
    with baseline_checkout("v1", project) as checkout:
        (checkout / "run.py").write_text(script)
        sides = in_checkouts(parse_side(f"{sys.executable} run.py", project), project, checkout)
        with open_sides(*sides) as contest:
            (pair,) = contest.draw(False, 1.0)
        assert [(side.folder / "ran").read_text() for side in sides] == ["old", "new"]
    assert all(times.wall > 0 for times in pair)


def test_a_subfolder_that_the_baseline_lacks_is_said(project) -> None:
    (project / "new").mkdir()
    (project / "new" / "a.py").write_text("def f(): pass\n")
    with baseline_checkout("v1", project) as checkout, pytest.raises(SettingsError, match="no folder new"):
        in_checkouts(parse_side("a.py:f", project / "new"), project, checkout)


def test_the_repository_is_left_as_it_was(project) -> None:
    status = git(project, "status", "--porcelain")
    with baseline_checkout("v1", project):
        pass
    assert git(project, "status", "--porcelain") == status
    assert not list(Path(project / ".git" / "worktrees").glob("*"))
