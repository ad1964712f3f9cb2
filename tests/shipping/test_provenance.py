"""Statements of provenance: in-toto's form, SLSA's fields, what was really there, and no secret."""

import subprocess
from hashlib import sha256

import pytest
from releases import ALICE, public

from tunewright.errors import BundleError
from tunewright.shipping.provenance import BUILD_TYPE, make_statement
from tunewright.stores.bundle import BundleStore, verify_bundle
from tunewright.stores.bundle.build import Attachment, build, write
from tunewright.stores.bundle.statements import KIND, read_statements, summarize
from tunewright.testing.keys import DECISION, KEY

RACE = Attachment("race", KEY.digest, b"a transcript")
BUILT = Attachment("build", "ab.so", b"code")


def stated(folder, path, *attachments, by="https://ci.example.com/runs/7"):
    """The statement of a bundle that was tuned in a folder."""
    made = make_statement([DECISION], attachments, by, folder)
    write(path, build([DECISION], [*attachments, made]), ALICE)
    (found,) = read_statements(BundleStore(verify_bundle(path, signers=[public(ALICE)])))
    return found


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()

    def git(*arguments):
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        command = ["git", *identity, "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (folder / "kernel.py").write_text("one")
    git("add", ".")
    git("commit", "-q", "-m", "One")
    git("remote", "add", "origin", "https://me:secret@git.example.com/team/kernels.git")
    return folder, git


def test_a_statement_names_who_where_what_and_from_what(checkout, tmp_path) -> None:
    folder, git = checkout
    found = stated(folder, tmp_path / "x", RACE, BUILT)
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    names = {one["name"]: one["digest"]["sha256"] for one in found["subject"]}
    assert names["build/ab.so"] == sha256(b"code").hexdigest()
    assert names["choice"] == BundleStore(verify_bundle(tmp_path / "x", signers=[public(ALICE)])).manifest.choice
    definition, details = found["predicate"]["buildDefinition"], found["predicate"]["runDetails"]
    assert definition["buildType"] == BUILD_TYPE
    assert definition["externalParameters"] == {"kernels": ["gemm"]}
    commit, race = definition["resolvedDependencies"]
    assert commit == {"uri": "git+https://git.example.com/team/kernels.git",
                      "digest": {"gitCommit": git("rev-parse", "HEAD")}}  # fmt: skip
    assert race == {"name": f"race/{KEY.digest}", "digest": {"sha256": sha256(b"a transcript").hexdigest()}}
    assert details["builder"]["id"] == "https://ci.example.com/runs/7"
    assert details["metadata"]["finishedOn"] == DECISION.evidence.when
    assert "secret" not in str(found)
    assert "1 race transcripts" in summarize(found)


def test_local_changes_are_admitted(checkout, tmp_path) -> None:
    folder, _ = checkout
    (folder / "kernel.py").write_text("two")
    found = stated(folder, tmp_path / "x")
    assert found["predicate"]["buildDefinition"]["resolvedDependencies"][0]["annotations"] == {"dirty": True}
    assert "with local changes" in summarize(found)


def test_outside_of_a_checkout_no_commit_is_claimed(tmp_path) -> None:
    found = stated(tmp_path, tmp_path / "x", by="")
    assert found["predicate"]["buildDefinition"]["resolvedDependencies"] == []
    assert found["predicate"]["runDetails"]["builder"]["id"].startswith("ssh://")
    assert "from no commit" in summarize(found)


def test_equal_contents_still_make_equal_bytes(checkout, tmp_path) -> None:
    folder, _ = checkout
    for name in "xy":
        stated(folder, tmp_path / name, RACE)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


@pytest.mark.parametrize("body", [b"{}", b'{"predicate":[]}', b'{"predicate":{"buildDefinition":5}}'])
def test_a_statement_of_another_kind_is_shown_as_such(tmp_path, body) -> None:
    write(tmp_path / "x", build([DECISION], [Attachment(KIND, "x", body)]), ALICE)
    (found,) = read_statements(BundleStore(verify_bundle(tmp_path / "x", signers=[public(ALICE)])))
    assert summarize(found) == "a statement that is not SLSA provenance"


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 100_000, b"\xff"])
def test_a_statement_that_is_none_is_refused(tmp_path, body) -> None:
    write(tmp_path / "x", build([DECISION], [Attachment(KIND, "x", body)]), ALICE)
    with pytest.raises(BundleError, match="cannot be read"):
        read_statements(BundleStore(verify_bundle(tmp_path / "x", signers=[public(ALICE)])))
