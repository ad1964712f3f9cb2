"""A bundle on the machine it came to, as a person meets it: another compiler, a planted regression, the way back."""

import json
import os
import subprocess
import sys

import msgspec
import numpy as np
import pytest

import tunewright as tw
from tunewright.cli.bundle_verify import check_contents
from tunewright.cli.targets import load_kernel
from tunewright.model.decision import Decision
from tunewright.session import Session
from tunewright.spaces.config import Config
from tunewright.stores.bundle import BundleStore, verify_bundle
from tunewright.stores.bundle.build import Attachment, build, write
from tunewright.stores.memory import MemoryStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.transcripts import encode_for_bundle

SOURCE = """
void spin(const float *x, float *y) {
    for (int r = 0; r < REPEAT; r++)
        for (int i = 0; i < N; i++) { y[i] = 2 * x[i]; __asm__ volatile("" ::: "memory"); }
}
"""
COMPILER = '#!/bin/sh\nif [ "$1" = --version ]; then echo "cc of vendor {version}"; else exec cc "$@"; fi\n'
KERNEL = """
import os
from pathlib import Path
import tunewright as tw

CC = str(Path(__file__).parent / os.environ.get("CC_HERE", "cc-1"))

@tw.tune(
    tw.Space(tw.Knob("REPEAT", [20, 1, 2, 4, 100, 200])),
    backend=tw.C("spin.c", compiler=CC, flags="-O1"),
    reference=lambda x: 2 * x,
    shapes=[{"N": 2000}, {"N": 3000}],
)
def spin(x: tw.In("N"), y: tw.Out("N")): ...
"""


def tunewright(*args, cwd, status=0, **environ):
    command = [sys.executable, "-m", "tunewright", *map(str, args)]
    env = {**os.environ, **environ}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False, env=env)
    assert done.returncode == status, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def here(tmp_path):
    (tmp_path / "spin.c").write_text(SOURCE)
    (tmp_path / "kernels.py").write_text(KERNEL)
    for version in ("1", "2"):
        script = tmp_path / f"cc-{version}"
        script.write_text(COMPILER.format(version=version))
        script.chmod(0o755)
    return tmp_path


def key_of(folder, size):
    kernel = load_kernel(f"{folder}/kernels.py:spin")
    kernel.using(Session(store=str(folder / "unused.sqlite")))
    x = np.ones(size, np.float32)
    return kernel.problem([x, x]).key


def built(folder, *decisions):
    """A bundle of what was put into a store, as decisions without evidence; its digest."""
    for decision in decisions:
        SqliteStore(folder / "team.sqlite").put(decision)
    made = tunewright("bundle", "build", "some.bundle", "--store", "team.sqlite", "--json", cwd=folder).stdout
    return json.loads(made)["digest"]


@pytest.mark.slow
def test_on_a_new_toolchain_few_are_raced_and_what_is_found_is_kept(here) -> None:
    pin = built(here, *(Decision(key_of(here, size), Config(REPEAT=1)) for size in (2000, 3000)))
    told = json.loads(
        tunewright(
            "bundle", "verify", "some.bundle", "kernels.py:spin", "--pin", pin, "--here", "--json",
            "--store", "local.sqlite", cwd=here, CC_HERE="cc-2",
        ).stdout
    )  # fmt: skip
    assert [(one["fate"], one["configs"], one["config"]) for one in told["raced"]] == [("stands", 2, {"REPEAT": 1})] * 2
    found = list(SqliteStore(here / "local.sqlite").decisions())
    assert {decision.key.toolchain["compiler"] for decision in found} == {"cc of vendor 2"}
    assert {decision.config["REPEAT"] for decision in found} == {1}
    same = tunewright(
        "bundle", "verify", "some.bundle", "kernels.py:spin", "--pin", pin, "--here", "--json", cwd=here
    ).stdout
    assert json.loads(same)["raced"] == []  # with the old compiler there is nothing to race


@pytest.mark.slow
def test_a_regression_is_quarantined_healed_and_can_be_rolled_back(here, own_cache) -> None:
    slow = Decision(key_of(here, 2000), Config(REPEAT=200))
    pin = built(here, slow, Decision(key_of(here, 3000), Config(REPEAT=1)))
    SqliteStore(here / "local.sqlite").put(slow)
    verify = ("bundle", "verify", "some.bundle", "kernels.py:spin", "--pin", pin, "--budget", "60s")
    done = tunewright(*verify, "--store", "local.sqlite", cwd=here, status=1)
    assert "and longer than the default" in done.stdout
    assert "2 entries raced again, 1 in quarantine" in done.stdout
    assert "2 of 2 entries raced again, 1 bad: at most 50 % of all entries are bad (95 % confidence)" in done.stdout
    (held,) = own_cache.glob("quarantine/*.json")
    assert held.stem == pin
    assert json.loads(held.read_text())[slow.key.digest]["config"] == {"REPEAT": 200}
    local = SqliteStore(here / "local.sqlite")
    assert local.get(slow.key).config["REPEAT"] == 20
    assert Session(store=f"bundle:{here}/some.bundle?pin={pin}").store.get(slow.key) is None
    applied = tunewright("bundle", "apply", "some.bundle", "--pin", pin, "--store", "new.sqlite", "--json", cwd=here)
    assert json.loads(applied.stdout)["changed"] == 1
    tunewright("store", "rollback", "spin", "--store", "local.sqlite", "--yes", cwd=here)
    assert local.get(slow.key).config["REPEAT"] == 200


def test_transcripts_that_do_not_lead_to_what_was_decided_are_named(tmp_path, capsys) -> None:
    session = Session(store=MemoryStore(), pool="serial", strategy="exhaustive")

    @tw.tune(tw.Space(tw.Knob("step", [1, 2, 40])), session=session, default={"step": 40})
    def total(x: tw.In("N"), *, step: int):
        return sum(float(x[i::step].sum()) for i in range(step))

    decided = [total.decide(np.ones(size)) for size in (900, 1000)]
    forged = decided[1].replace(config=Config(step=40))

    races = [Attachment("race", one.key.digest, encode_for_bundle(session.store, one)) for one in decided]
    content = build([decided[0], forged, Decision(key_like(forged, "other"), Config(step=1))], races)
    pin = write(tmp_path / "some.bundle", content)
    bundle = BundleStore(verify_bundle(tmp_path / "some.bundle", pin=pin))
    told = check_contents(bundle, list(bundle.decisions()), {"here": False, "budget": None}, verbose=True)
    assert told == {"transcripts": 2, "objections": {forged.key.digest: "in its race step=1 was chosen"}}
    assert "2 transcripts: 1 of them lead to what was decided" in capsys.readouterr().out


def key_like(decision, kernel):
    return msgspec.structs.replace(decision.key, kernel=kernel)


def test_what_cannot_be_raced_is_listed_with_the_reason(here) -> None:
    pin = built(here, Decision(key_of(here, 2000), Config(REPEAT=1)))
    told = tunewright("bundle", "verify", "some.bundle", "--pin", pin, "--here", "--store", "local.sqlite", cwd=here)
    assert "give it as FILE.py:NAME" in told.stdout
    assert "0 entries raced again" in told.stdout


def test_what_is_found_needs_a_store_that_takes_it(here) -> None:
    pin = built(here, Decision(key_of(here, 2000), Config(REPEAT=1)))
    refused = tunewright(
        "bundle", "verify", "some.bundle", "--pin", pin, "--here", "--store", f"bundle:some.bundle?pin={pin}",
        cwd=here, status=2,
    )  # fmt: skip
    assert "a bundle cannot store what is found here" in refused.stderr
