"""A release from a store to another machine by way of a registry, as people do it."""

import json

import pytest
from click.testing import CliRunner

from tunewright.cli.bundle import bundle as command
from tunewright.errors import TunewrightError
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing import servers
from tunewright.testing.keys import DECISION


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with servers.registry(tmp_path_factory.mktemp("registry")) as server:
        yield server.location


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command line of a machine: `tunewright bundle ...`."""
    monkeypatch.chdir(tmp_path)

    def bundle(*args, fails=False, machine="target"):
        environ = {"TUNEWRIGHT_CACHE": str(tmp_path / machine), "DOCKER_CONFIG": str(tmp_path)}
        done = CliRunner().invoke(command, [*map(str, args)], env=environ)
        if not fails:
            assert done.exit_code == 0, done.exception or done.output
            return done.output
        assert done.exit_code
        assert isinstance(done.exception, TunewrightError | SystemExit)
        return str(done.exception) if isinstance(done.exception, TunewrightError) else done.output

    SqliteStore(tmp_path / "one.sqlite").put(DECISION)
    (tmp_path / "signers").write_text(bundle("key", "team.pem"))
    return bundle


RELEASE = ("--store", "one.sqlite", "--sign", "team.pem", "--channel", "prod", "--expires", "90d")


def test_a_release_is_built_pushed_pulled_and_rolled_back(run, registry) -> None:
    for version in (7, 8):
        run("build", f"{version}.bundle", *RELEASE, "--version", version, "--provenance")
        assert f"{version}.bundle is at {registry}" in run("push", f"{version}.bundle", f"{registry}/k:{version}")
    trust = ("in.bundle", "--signers", "signers")
    told = json.loads(run("pull", f"{registry}/k:8", *trust, "--channel", "prod", "--json"))
    assert (told["version"], told["signer"], told["channel"]) == (8, "team", "prod")
    assert "--allow 7" in run("pull", f"{registry}/k:7", *trust, fails=True)
    assert "version 7 of prod, signed by team, 1 decision" in run("pull", f"{registry}/k:7", *trust, "--allow", 7)
    assert "on purpose" in run("pull", f"{registry}/k:8", *trust, fails=True)
    shown = run("show", *trust)
    assert "version 7 of channel prod" in shown
    assert "tuned by ssh://" in shown
    statement = json.loads(run("show", *trust, "--json"))["provenance"][0]
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    onto = ("--signers", "signers", "--store", "new.sqlite")
    run("apply", "8.bundle", *onto, machine="other")
    assert "older than 8" in run("apply", "7.bundle", *onto, machine="other", fails=True)
    assert "older than 8" in run("verify", "7.bundle", "--signers", "signers", machine="other", fails=True)
    run("apply", "7.bundle", *onto, "--allow", 7, machine="other")


def test_two_sign_and_keys_are_rotated(run, registry, tmp_path) -> None:
    second = run("key", "second.pem")
    first = (tmp_path / "signers").read_text()
    (tmp_path / "next").write_text(f"version 1\nthreshold 2\n{first}{second}")
    for key in ("team.pem", "second.pem"):
        run("sign", "next", "--sign", key)
    run("build", "1.bundle", *RELEASE, "--version", 1)
    run("push", "1.bundle", f"{registry}/two:prod")
    assert "version 1: 2 signers, 2 of them must sign" in run("rotate", "signers", "next")
    assert "1 of the 2 signatures" in run("pull", f"{registry}/two:prod", "in", "--signers", "signers", fails=True)
    run("sign", "1.bundle", "--sign", "second.pem")
    run("push", "1.bundle", f"{registry}/two:prod")
    assert "signed by" in run("pull", f"{registry}/two:prod", "in", "--signers", "signers")
    assert "higher version" in run("rotate", "signers", "next", fails=True)


def test_half_a_release_is_refused(run) -> None:
    told = run("build", "x", "--store", "one.sqlite", "--channel", "prod", fails=True)
    assert "give --channel, --version, --expires" in told
    assert "is not a date" in run("build", "x", *RELEASE[:-1], "soon", "--version", 1, fails=True)
    assert "write oci://HOST/REPO:TAG" in run("push", "x", "oci://", fails=True)
