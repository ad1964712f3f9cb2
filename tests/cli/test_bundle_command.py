"""From a store to a signed file and back, as a person does it."""

import json
import subprocess
import sys

import pytest

from tunewright.spaces.config import Config
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

CONV = other_decision(key=other_key(kernel="conv"), config=Config(tile=2))


def tunewright(*args, cwd, status=0):
    command = [sys.executable, "-m", "tunewright", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False)
    assert done.returncode == status, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def here(tmp_path):
    SqliteStore(tmp_path / "one.sqlite").put(DECISION)
    SqliteStore(tmp_path / "one.sqlite").put(CONV)
    SqliteStore(tmp_path / "two.sqlite").put(other_decision(config=Config(tile=8), evidence=None))
    public = tunewright("bundle", "key", "team.pem", cwd=tmp_path).stdout
    (tmp_path / "signers").write_text(public)
    for name in ("one", "two"):
        tunewright("bundle", "build", f"{name}.bundle", "--store", f"{name}.sqlite", "--sign", "team.pem", cwd=tmp_path)
    return tmp_path


def test_a_bundle_is_built_verified_shown_and_applied(here) -> None:
    trust = ("--signers", "signers")
    assert "signed by team, 2 decisions" in tunewright("bundle", "verify", "one.bundle", *trust, cwd=here).stdout
    assert "conv" in tunewright("bundle", "show", "one.bundle", *trust, cwd=here).stdout
    applied = tunewright("bundle", "apply", "one.bundle", *trust, "--store", "new.sqlite", "--json", cwd=here).stdout
    assert json.loads(applied) == {"decisions": 2, "changed": 2, "builds": 0}
    assert SqliteStore(here / "new.sqlite").get(KEY) == DECISION
    again = tunewright("bundle", "apply", "one.bundle", *trust, "--store", "new.sqlite", "--json", cwd=here).stdout
    assert json.loads(again)["changed"] == 0
    shown = tunewright("show", "gemm", "--store", "bundle:one.bundle?signers=signers", cwd=here).stdout
    assert "tile=64" in shown


def test_a_new_generation_can_be_rolled_back(here) -> None:
    trust = ("--signers", "signers", "--store", "new.sqlite")
    tunewright("bundle", "apply", "one.bundle", *trust, cwd=here)
    tunewright("bundle", "apply", "two.bundle", *trust, cwd=here)
    store = SqliteStore(here / "new.sqlite")
    assert store.get(KEY).config["tile"] == 8
    tunewright("store", "rollback", "gemm", "--store", "new.sqlite", cwd=here)
    assert store.get(KEY) == DECISION


def test_what_differs_is_named(here) -> None:
    told = tunewright("bundle", "diff", "one.bundle", "two.bundle", "--signers", "signers", cwd=here, status=1).stdout
    assert "changed" in told
    assert "gone" in told
    assert "2 differences" in told
    same = tunewright("bundle", "diff", "one.bundle", "one.bundle", "--signers", "signers", cwd=here).stdout
    assert "0 differences" in same


def test_a_conflict_is_settled_by_evidence_and_said(here) -> None:
    merge = ("bundle", "merge", "both.bundle", "two.bundle", "one.bundle", "--signers", "signers", "--sign", "team.pem")
    told = json.loads(tunewright(*merge, "--json", cwd=here).stdout)
    assert told["decisions"] == 2
    assert [conflict["reason"] for conflict in told["conflicts"]] == ["the other has no evidence"]
    tunewright("bundle", "apply", "both.bundle", "--signers", "signers", "--store", "new.sqlite", cwd=here)
    assert SqliteStore(here / "new.sqlite").get(KEY) == DECISION


def test_what_is_not_trusted_is_refused_and_says_what_to_do(here) -> None:
    assert "say whom you trust" in tunewright("bundle", "verify", "one.bundle", cwd=here, status=2).stderr
    tunewright("bundle", "build", "bare.bundle", "--store", "one.sqlite", cwd=here)
    refused = tunewright("bundle", "verify", "bare.bundle", "--signers", "signers", cwd=here, status=2)
    assert "is not signed" in refused.stderr
    (here / "one.bundle").write_bytes((here / "one.bundle").read_bytes().replace(b"ikj", b"kij"))
    spoilt = tunewright("bundle", "verify", "one.bundle", "--signers", "signers", cwd=here, status=2)
    assert "it was changed" in spoilt.stderr
    assert "already" in tunewright("bundle", "key", "team.pem", cwd=here, status=2).stderr
    assert "nothing is decided" in tunewright("bundle", "build", "x", "--store", "no.sqlite", cwd=here, status=1).stderr


def test_without_the_package_for_signatures_it_is_said_what_to_install(tmp_path) -> None:
    program = "import sys; sys.modules['cryptography'] = None; from tunewright.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "bundle", "key", "team.pem"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 2
    assert "pip install 'tunewright[bundle]'" in done.stderr
    assert "Traceback" not in done.stderr
