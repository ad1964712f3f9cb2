"""From the machine that tuned to another one: nothing is measured there, nothing compiled, nothing believed that is not
meant for it."""

import json
import os
import shutil
import subprocess
import sys

import msgspec
import numpy as np
import pytest

import tunewright
from tunewright import C, In, Knob, NoDecision, Out, Session, Space, tune
from tunewright.backends import c as c_backend
from tunewright.errors import BackendError, Sealed
from tunewright.shipping import pack
from tunewright.stores import artifacts
from tunewright.stores.bundle import BundleStore, signing, verify_bundle
from tunewright.stores.bundle.build import Attachment, build, write
from tunewright.testing.keys import DECISION

SOURCE = """void scale(const double *x, double *y) {
    for (long i = 0; i < N; i += WIDE) for (long j = i; j < i + WIDE && j < N; j++) y[j] = 2 * x[j];
}
"""

PROGRAM = """import json, sys
import numpy as np
import tunewright as tw

@tw.tune(tw.Space(tw.Knob("WIDE", [1, 2, 4])), backend=tw.C("scale.c", flags="-O2"), dtype="float64")
def scale(x: tw.In("N"), y: tw.Out("N")): ...

if __name__ == "__main__":
    counts = tw.seal(raises=False)
    y = np.zeros(64)
    scale(np.ones(64), y)
    print(json.dumps({"sum": y.sum(), "counts": tw.current_session().counts, "sealed": counts}))
"""


def declared(folder, session):
    @tune(Space(Knob("WIDE", [1, 2, 4])), backend=C(folder / "scale.c", flags="-O2"), dtype="float64", session=session)
    def scale(x: In("N"), y: Out("N")) -> None: ...

    return scale


def tunewright_command(*args, cwd, env):
    command = [sys.executable, "-m", "tunewright", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def environ(home, path=os.environ["PATH"], **more):
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TUNEWRIGHT")}
    return {**ours, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PATH": path, **more}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A kernel tuned in one folder and home, with a bundle of it."""
    folder = tmp_path_factory.mktemp("tuning")
    (folder / "scale.c").write_text(SOURCE)
    (folder / "scale.py").write_text(PROGRAM)
    env = environ(folder)
    tunewright_command("tune", "scale.py:scale", "--shape", "N=64", "--budget", "3", cwd=folder, env=env)
    public = tunewright_command("bundle", "key", "team.pem", cwd=folder, env=env)
    (folder / "signers").write_text(public)
    made = tunewright_command(
        "bundle", "build", "scale.bundle", "scale.py:scale", "--sign", "team.pem", "--json", cwd=folder, env=env
    )
    assert json.loads(made)["builds"] >= 1
    return folder


@pytest.fixture
def elsewhere(shipped, tmp_path):
    """Another machine: another home, another path, no compiler."""
    there = tmp_path / "some where else"
    there.mkdir()
    for name in ("scale.c", "scale.py", "scale.bundle", "signers"):
        shutil.copy(shipped / name, there / name)
    return there


def run(folder, **settings):
    env = environ(folder, path="/nonexistent", **settings)
    return subprocess.run(
        [sys.executable, "scale.py"], capture_output=True, text=True, cwd=folder, env=env, timeout=300, check=False
    )


def test_a_second_machine_measures_and_compiles_nothing(elsewhere) -> None:
    done = run(elsewhere, TUNEWRIGHT_MODE="strict", TUNEWRIGHT_STORE="bundle:scale.bundle?signers=signers")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == {"sum": 128.0, "counts": {"exact": 1}, "sealed": {}}


def test_a_bundle_that_was_applied_needs_no_compiler_either(elsewhere) -> None:
    env = environ(elsewhere)
    told = tunewright_command("bundle", "apply", "scale.bundle", "--signers", "signers", cwd=elsewhere, env=env)
    assert "build" in told
    (elsewhere / "scale.bundle").unlink()
    done = run(elsewhere, TUNEWRIGHT_MODE="strict")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"exact": 1}


def test_what_the_bundle_does_not_bring_is_counted_or_refused(elsewhere, monkeypatch) -> None:
    """Another size: the nearest config, said so, and compiled here."""
    monkeypatch.chdir(elsewhere)
    store = "bundle:scale.bundle?signers=signers"
    kernel = declared(elsewhere, Session(mode="frozen", store=store))
    counts = tunewright.seal(raises=False)
    try:
        y = np.zeros(65)
        kernel(np.ones(65), y)
        assert y.sum() == 130
        assert counts == {"misses": 1, "compiles": 1}
        assert kernel.session.counts == {"nearest shape": 1, "compiles": 1}
        tunewright.seal(raises=True)
        with pytest.raises(Sealed, match="nearest"):
            kernel(np.ones(66), np.zeros(66))
        with pytest.raises(Sealed, match="tuned"):
            kernel.tune(np.ones(66), np.zeros(66))
    finally:
        tunewright.unseal()


def test_another_instruction_set_never_gets_code_that_was_built_for_this_one(elsewhere, monkeypatch, caplog) -> None:
    monkeypatch.chdir(elsewhere)
    store = "bundle:scale.bundle?signers=signers"
    real = c_backend.cpu()
    other = msgspec.structs.replace(real, features=("sse4_2",), model="An older processor")
    monkeypatch.setattr(c_backend, "cpu", lambda: other)
    strict = declared(elsewhere, Session(mode="strict", store=store))
    with pytest.raises(NoDecision, match="older processor"):
        strict(np.ones(64), np.zeros(64))
    frozen = declared(elsewhere, Session(mode="frozen", store=store))
    y = np.zeros(64)
    frozen(np.ones(64), y)
    assert frozen.session.counts == {"architecture": 1, "compiles": 1}
    assert "architecture" in caplog.text
    monkeypatch.setenv("PATH", "/nonexistent")
    without = declared(elsewhere, Session(mode="frozen", store=store, cache=str(elsewhere / "empty")))
    with pytest.raises(BackendError, match="no compiler"):
        without(np.ones(64), np.zeros(64))


def test_code_by_another_compiler_is_used_if_it_is_brought_and_said_if_it_is_not(
    elsewhere, monkeypatch, caplog
) -> None:
    """What was raced is what runs, whatever compiler is found on the machine it runs on."""
    monkeypatch.chdir(elsewhere)
    newer = elsewhere / "gcc-99"
    newer.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo "gcc 99.0"; else exec cc "$@"; fi\n')
    newer.chmod(0o755)

    def kernel(mode):
        session = Session(mode=mode, store="bundle:scale.bundle?signers=signers")
        backend = C(elsewhere / "scale.c", flags="-O2", compiler=str(newer))

        @tune(Space(Knob("WIDE", [1, 2, 4])), backend=backend, dtype="float64", session=session)
        def scale(x: In("N"), y: Out("N")) -> None: ...

        return scale

    frozen = kernel("frozen")
    frozen(np.ones(64), np.zeros(64))
    assert frozen.session.counts == {"exact": 1}
    assert frozen.problem([np.ones(64), np.zeros(64)]).key.toolchain["compiler"] != "gcc 99.0"
    frozen(np.ones(100), np.zeros(100))
    assert "built here by gcc 99.0, with which no config was raced" in caplog.text
    tuning = kernel("tune")
    assert tuning.problem([np.ones(64), np.zeros(64)]).key.toolchain["compiler"] == "gcc 99.0"


def test_a_name_from_a_bundle_is_no_path(tmp_path) -> None:
    label = artifacts.ArtifactLabel("../../evil.so", "scale", "", DECISION.config, DECISION.key.signature, {})
    with pytest.raises(tunewright.TunewrightError, match="not the name of an artifact"):
        artifacts.unpack(tmp_path / "cache", b"code", label)
    assert not list(tmp_path.rglob("evil*"))


def test_merging_keeps_what_both_enclose(tmp_path) -> None:
    secret = signing.generate_key(tmp_path / "key.pem"), signing.load_private_key(tmp_path / "key.pem")
    (tmp_path / "signers").write_text(secret[0])
    for name, text in (("one", b"1"), ("two", b"2")):
        write(tmp_path / f"{name}.bundle", build([DECISION], [Attachment("race", name, text)]), secret[1])
    merged = ("merge", "all.bundle", "one.bundle", "two.bundle", "--signers", "signers", "--sign", "key.pem")
    tunewright_command("bundle", *merged, cwd=tmp_path, env=environ(tmp_path))
    store = BundleStore(verify_bundle(tmp_path / "all.bundle", signers=[secret[0]]))
    assert [store.read_attachment("race", name) for name in ("one", "two", "three")] == [b"1", b"2", None]


def test_only_what_is_decided_is_packed(tmp_path) -> None:
    (tmp_path / "scale.c").write_text(SOURCE)
    kernel = declared(tmp_path, Session(mode="tune", pool="serial", trials=3, cache=str(tmp_path / "cache")))
    decision = kernel.tune(np.ones(64), np.zeros(64))
    found = list(pack.attachments(kernel.session, [decision]))
    builds = [one for one in found if one.kind == "build"]
    assert [one.label.config for one in builds] == [decision.config]
    pack.build_all(kernel, [decision])
    found = list(pack.attachments(kernel.session, [decision], [kernel]))
    configs = {one.label.config for one in found if one.kind == "build"}
    assert configs == {decision.config, kernel.default}


def test_bundles_are_packed_without_the_triton_extension(tmp_path) -> None:
    program = """
import sys
sys.modules["tunewright.triton"] = None  # as if its folder were absent
from tunewright import Session
from tunewright.shipping import pack
print(list(pack.triton_artifacts(Session(cache=sys.argv[1]), ())))
"""
    run = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
