"""What scripts/release refuses, and what it writes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("releasing", PROJECT / "scripts" / "releasing.py")
assert _spec is not None
assert _spec.loader is not None
releasing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(releasing)

LOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-01\n\n- The first.\n"


def test_the_unreleased_changes_become_those_of_the_version() -> None:
    made = releasing.cut(LOG, "0.2.0", "2026-11-16")
    assert made.replace("\n\n## [0.2.0] - 2026-11-16\n", "\n", 1) == LOG
    assert releasing.section(made, "0.2.0") == "### Added\n\n- A thing."
    assert releasing.section(made, "Unreleased") == ""
    assert releasing.section(made, "0.1.0") == "- The first."


def test_a_changelog_is_not_cut_twice() -> None:
    with pytest.raises(releasing.Refused, match=r"nothing under \[Unreleased\]: describe"):
        releasing.cut(releasing.cut(LOG, "0.2.0", "2026-11-16"), "0.3.0", "2026-11-17")


def test_headings_alone_are_no_changes() -> None:
    with pytest.raises(releasing.Refused, match="nothing under"):
        releasing.cut(LOG.replace("- A thing.\n", ""), "0.2.0", "2026-11-16")


def test_a_version_has_one_section() -> None:
    with pytest.raises(releasing.Refused, match="choose another version"):
        releasing.cut(LOG, "0.1.0", "2026-11-16")


def test_a_changelog_without_a_place_for_changes_is_refused() -> None:
    with pytest.raises(releasing.Refused, match="add it above"):
        releasing.cut("# Changelog\n", "0.2.0", "2026-11-16")


def test_our_own_changelog_can_be_read() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text()
    assert text.count(f"{releasing.UNRELEASED}\n") == 1


@pytest.mark.parametrize("version", ["v0.2.0", "0.2", "0.2.0.1", "0.2.0-rc1", "0.2.0rc", "next", "", "0.2.0 "])
def test_what_is_no_version_is_refused_with_an_example(version: str) -> None:
    with pytest.raises(releasing.Refused, match=r"write 1\.2\.3"):
        releasing.numbers(version)


def test_versions_are_ordered_as_pip_orders_them() -> None:
    ordered = ["0.1.0", "0.2.0a1", "0.2.0a2", "0.2.0b1", "0.2.0rc1", "0.2.0", "0.2.1", "0.10.0", "1.0.0rc1", "1.0.0"]
    assert sorted(reversed(ordered), key=releasing.numbers) == ordered
    releasing.newer("0.2.0", "0.2.0rc1")
    for version in ("0.1.9", "0.2.0"):
        with pytest.raises(releasing.Refused, match="choose a later version"):
            releasing.newer(version, "0.2.0")


def test_the_version_is_found_where_it_is_set() -> None:
    text = (PROJECT / "src" / "tunewright" / "version.py").read_text()
    assert releasing.numbers(releasing.current(text))
    changed = releasing.IS_SET.sub('__version__ = "9.8.7"', text)
    assert releasing.current(changed) == "9.8.7"


def test_the_citation_names_the_version_and_the_day() -> None:
    made = releasing.cited((PROJECT / "CITATION.cff").read_text(), "9.8.7", "2030-01-02")
    assert "\nversion: 9.8.7\n" in made
    assert "\ndate-released: 2030-01-02\n" in made
    assert "\ncff-version: 1.2.0\n" in "\n" + made
    with pytest.raises(releasing.Refused, match="add them"):
        releasing.cited("title: Tunewright\n", "9.8.7", "2030-01-02")


def test_the_supported_pythons_are_those_of_the_classifiers() -> None:
    assert "3.11" in releasing.supported((PROJECT / "pyproject.toml").read_text())


def test_a_python_is_found_by_what_it_is_and_not_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONS", sys.executable)
    here = "{}.{}".format(*sys.version_info[:2])
    assert releasing.pythons([here, "2.6"])[here] is not None
    assert releasing.pythons([here, "2.6"])["2.6"] is None
    monkeypatch.setenv("PYTHONS", "no-such-python")
    assert releasing.pythons([here]) == {here: None}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a release to be made, of which `releasing` thinks that it is this project's."""
    files = {
        "CHANGELOG.md": LOG,
        "CITATION.cff": "version: 0.1.0\ndate-released: 2026-01-01\n",
        "src/tunewright/version.py": '__version__ = "0.1.0"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(releasing, "PROJECT", tmp_path)
    monkeypatch.setattr(releasing.run, "__kwdefaults__", {**releasing.run.__kwdefaults__, "cwd": tmp_path})
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "somebody@example.org")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_a_tree_with_changes_is_refused(repository: Path) -> None:
    releasing.refuse_early("0.2.0", tagged=False)
    (repository / "new.txt").write_text("")
    with pytest.raises(releasing.Refused, match=r"commit or stash them first:\n\?\? new.txt"):
        releasing.refuse_early("0.2.0", tagged=False)


def test_a_tag_that_exists_is_refused_unless_it_is_to_be_built(repository: Path) -> None:
    with pytest.raises(releasing.Refused, match=r"run git checkout v0\.2\.0 first"):
        releasing.refuse_early("0.2.0", tagged=True)
    subprocess.run(["git", "tag", "v0.2.0"], cwd=repository, check=True)
    with pytest.raises(releasing.Refused, match="choose another version, or build it with --tagged"):
        releasing.refuse_early("0.2.0", tagged=False)
    releasing.refuse_early("0.2.0", tagged=True)
    with pytest.raises(releasing.Refused, match=r"holds version 0\.1\.0"):
        releasing.refuse_uncut("0.2.0")


def test_a_release_is_a_commit_that_no_branch_has_yet(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = releasing.run("git", "rev-parse", "HEAD")
    commit = releasing.committed("0.2.0", tmp_path_factory.mktemp("release") / "cut")
    assert releasing.run("git", "rev-parse", "HEAD", f"{commit}^").splitlines() == [before, before]
    assert releasing.run("git", "log", "-1", "--format=%s", commit) == "Release 0.2.0"
    assert releasing.run("git", "show", f"{commit}:src/tunewright/version.py") == '__version__ = "0.2.0"'
    assert len(releasing.run("git", "worktree", "list").splitlines()) == 1
    assert not releasing.run("git", "status", "--porcelain")
    releasing.run("git", "merge", "--quiet", "--ff-only", commit)
    releasing.refuse_uncut("0.2.0")
    with pytest.raises(releasing.Refused, match="does not come after"):
        releasing.committed("0.2.0", tmp_path_factory.mktemp("release") / "cut")
