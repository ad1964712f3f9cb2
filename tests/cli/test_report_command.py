"""`tunewright report`, as a person types it."""

import json
import subprocess
import sys

import pytest

from tunewright.dashboard import Views
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED


def tunewright(*args, cwd, status=0):
    command = [sys.executable, "-m", "tunewright", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False)
    assert done.returncode == status, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def here(tmp_path):
    store = SqliteStore(tmp_path / "one.sqlite")
    store.put(DECISION)
    store.record(KEY, [TIMED, FAILED])
    steps = [{"name": name, "script": "", "code": name} for name in ("payload", "tile")]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    (tmp_path / "nonsense.json").write_text("{}")
    return tmp_path


def test_a_store_becomes_one_file(here) -> None:
    said = tunewright("report", "--store", "one.sqlite", "--out", "out.html", "--with", "steps.json", cwd=here).stdout
    assert said.startswith("out.html: 1 decision, 1 kernel")
    text = (here / "out.html").read_text()
    assert KEY.digest in text
    assert "/schedules?name=" in text
    tunewright("report", "--store", "one.sqlite", "--out", "folder", cwd=here)
    assert (here / "folder" / "report.html").is_file()


def test_a_bundle_becomes_one_file(here) -> None:
    (here / "signers").write_text(tunewright("bundle", "key", "team.pem", cwd=here).stdout)
    tunewright("bundle", "build", "one.bundle", "--store", "one.sqlite", "--sign", "team.pem", cwd=here)
    tunewright("report", "--bundle", "one.bundle", "--signers", "signers", "--out", "out.html", cwd=here)
    assert "Signed by <strong>team</strong>" in (here / "out.html").read_text()


def test_reports_of_other_commands_are_filed(here) -> None:
    said = tunewright("report", "keep", "steps.json", "--store", "one.sqlite", cwd=here).stdout
    assert "steps: a report of schedule" in said
    assert [one.title for one in Views(SqliteStore(here / "one.sqlite")).saved_reports("schedule")] == ["steps"]


def test_what_is_missing_or_wrong_is_said(here) -> None:
    assert "--out report.html" in tunewright("report", cwd=here, status=2).stderr
    assert "is not a known report" in tunewright("report", "keep", "nonsense.json", cwd=here, status=2).stderr
    assert "whom you trust" in tunewright("report", "--bundle", "one.sqlite", "--out", "x", cwd=here, status=2).stderr
