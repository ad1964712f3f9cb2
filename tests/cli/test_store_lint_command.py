"""`tunewright store lint`: what is needless in keys, and what is missing."""

import json
import os
import subprocess
import sys
import time

import msgspec
import pytest

from tunewright.model.signature import Signature
from tunewright.model.trial import Timing, Trial
from tunewright.spaces.config import Config
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import EVIDENCE, KEY, other_decision, other_key

KERNEL = """
import numpy as np
import tunewright as tw

def work(units):
    for _ in range(int(units)):
        pass

@tw.tune(tw.Space(tw.Knob("way", ["plain", "other"])))
def zeros(x: tw.In("N"), *, way):
    work(3000 if way == "plain" else 30_000 if x.any() else 300)

@tw.tune(tw.Space(tw.Knob("way", ["plain", "other"])), shapes=[{"N": 64}])
def steady(x: tw.In("N"), *, way):
    work(600 if way == "plain" else 6000)
"""


@pytest.fixture
def here(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    return tmp_path


def lint(*args, cwd, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "tunewright", "store", "lint", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def sized(**dims):
    return other_key(signature=Signature(KEY.signature.args, {**KEY.signature.dims, **dims}))


def timed(tile, seconds, at=0.0):
    return Trial(Config(tile=tile), Timing((seconds,) * 12, "cpu"), 1.0, 2.0, at=at)


def filled(path, *, large_from=1 << 30):
    """A store in which M was varied over nine sizes; from some size on, large tiles win."""
    store = SqliteStore(path)
    for m in (1 << i for i in range(4, 13)):
        large = m >= large_from
        key = sized(M=m)
        store.record(key, [timed(32, 2.0 if large else 1.0), timed(64, 1.0 if large else 2.0)])
        evidence = msgspec.structs.replace(EVIDENCE, ties=())
        store.put(other_decision(key=key, config=Config(tile=64 if large else 32), evidence=evidence))
    return store


def test_a_needless_field_is_named_with_evidence_and_a_remedy(here) -> None:
    filled(here / "s.sqlite")
    said = lint("gemm", "--store", "s.sqlite", cwd=here, status=1).stdout
    assert "signature.dims.M" in said
    assert "8 of 8 pairs agree; with 95 % confidence it matters in less than 32 % of cases" in said
    assert "8 tunings and 48 s less. To do: let one decision serve them: buckets={'M': [4096]}" in said
    found = json.loads(lint("--json", "--store", "s.sqlite", cwd=here, status=1).stdout)
    assert found["needless"][0]["names"] == ["signature.dims.M"]
    assert found["needless"][0]["remedy"].startswith("let one decision")
    assert found["fields"][0]["verdict"] == "needless"
    assert found["contradictions"] == found["perturbed"] == []


def test_a_field_that_matters_is_shown_with_a_witness_and_is_no_finding(here) -> None:
    filled(here / "s.sqlite", large_from=256)
    said = lint("--store", "s.sqlite", cwd=here).stdout
    assert "matters" in said
    assert "takes 2.00x (2 to 2) as long" in said
    assert "9 decisions: 1 field varied alone, 0 needless" in said


def test_generations_that_exclude_each_other_are_named(here) -> None:
    store = SqliteStore(here / "s.sqlite")
    for tile, other in ((32, 64), (64, 32)):
        store.record(KEY, [timed(tile, 1.0, time.time()), timed(other, 1.5, time.time())])
        evidence = msgspec.structs.replace(EVIDENCE, ties=())
        store.put(other_decision(config=Config(tile=tile), evidence=evidence))
    said = lint("gemm", "--store", "s.sqlite", cwd=here, status=1).stdout
    assert "something is missing in the key" in said
    assert "tile=32 was 1.50x (1.5 to 1.5) faster than tile=64 when it was chosen" in said
    found = json.loads(lint("--json", "--store", "s.sqlite", cwd=here, status=1).stdout)
    assert [one["digest"] for one in found["contradictions"]] == [KEY.digest]


def test_an_empty_store_is_said_and_so_is_an_unknown_kernel(here) -> None:
    assert "nothing is decided yet" in lint("--store", "s.sqlite", cwd=here, status=1).stderr
    filled(here / "s.sqlite")
    assert "nothing is decided for 'conv'" in lint("conv", "--store", "s.sqlite", cwd=here, status=1).stderr


def test_a_perturbed_kernel_shows_what_its_key_misses(here) -> None:
    given = ("--perturb", "kernels.py:zeros", "--shape", "N=64", "--only", "zeros", "--only", "gaps")
    said = lint(*given, cwd=here, status=1).stdout
    assert "zeros (all values are 0) changes the winner, and the key does not" in said
    assert "to do: if both occur, add an argument to the kernel" in said
    assert "not tried: gaps: the key differs" in said
    assert "2 configs under 1 perturbation with the same key (zeros): 1 change of the winner, 0 failures" in said
    found = json.loads(lint(*given, "--json", cwd=here, status=1).stdout)
    (one,) = found["perturbed"]
    assert one["changes"][0]["gain"]["low"] > 1.05
    assert one["changes"][0]["other"] == {"way": "other"}


def test_a_sound_kernel_is_no_finding_and_what_is_stored_for_it_is_looked_at(here) -> None:
    said = lint("--perturb", "kernels.py:steady", "--only", "zeros", cwd=here).stdout
    assert "0 decisions: 0 fields varied alone, 0 needless" in said
    assert "0 changes of the winner" in said


def test_a_perturbation_that_does_not_exist_is_wrong_use(here) -> None:
    said = lint("--perturb", "kernels.py:steady", "--only", "sideways", cwd=here, status=2).stderr
    assert "no perturbation 'sideways'" in said
    assert "zeros" in said
    assert "--perturb" in lint("--only", "zeros", cwd=here, status=2).stderr
