"""`tunewright explain NAME` needs no file; `--dtype` makes other arguments."""

import json

import pytest
from click.testing import CliRunner

from tunewright import Config
from tunewright.cli.main import command
from tunewright.model.decision import Decision
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, KEY, other_key

FILE = """
import numpy as np
import tunewright as tw

@tw.tune(tw.Space(tw.Knob("step", [1, 2])), reference=lambda x: 2 * x, shapes=[{"N": 8}])
def double(x: tw.In("N"), *, step):
    return 2 * x

@tw.tune(tw.Space(tw.Knob("step", [1, 2])), inputs=lambda N: [np.ones(N)])
def own(x: tw.In("N"), *, step):
    return 2 * x
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(FILE)
    monkeypatch.setenv("TUNEWRIGHT_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setenv("TUNEWRIGHT_POOL", "serial")

    def run(*words: str, status: int = 0) -> str:
        result = CliRunner().invoke(command, words, catch_exceptions=True)
        said = result.output + (str(result.exception) if result.exception else "")
        assert (result.exit_code != 0) is bool(status), said
        return said

    return run


def stored(tmp_path, *decisions: Decision) -> None:
    store = SqliteStore.at(str(tmp_path / "store.sqlite"))
    for decision in decisions:
        store.put(decision)


def test_the_name_alone_explains_every_decision_of_a_kernel(run, tmp_path) -> None:
    signature = KEY.signature
    other = other_key(signature=type(signature)(signature.args, {**signature.dims, "M": 64}))
    stored(tmp_path, DECISION, Decision(other, Config(tile=1), DECISION.evidence))
    said = run("explain", "gemm")
    assert said.count("gemm  K=256") == 2
    assert "found by random" in said
    assert "M=64" not in run("explain", "gemm", "--shape", "512,256,128")
    assert "M=64" in run("explain", "gemm", "--shape", "M=64,K=256,N=128")
    answer = json.loads(run("explain", "gemm", "--shape", "M=64,K=256,N=128", "--json"))
    assert answer["decision"]["config"] == {"tile": 1}


def test_a_name_that_nobody_stored_says_what_there_is(run, tmp_path) -> None:
    stored(tmp_path, DECISION)
    assert "the store has gemm" in run("explain", "gem", status=1)
    missing = run("explain", "gemm", "--shape", "M=1,K=1,N=1", status=1)
    assert "decided: K=256 M=512 N=128" in missing
    assert "FILE.py:NAME" in missing
    assert "float32" in run("explain", "gemm", "--dtype", "float64", status=1)


def test_a_module_is_still_a_target(run) -> None:
    assert "2 tuned kernels (double, own)" in run("explain", "kernels", status=1)
    assert "nothing is decided for this key" in run("explain", "kernels:double")


def test_dtype_tunes_and_explains_other_arguments(run) -> None:
    run("tune", "kernels.py:double", "--dtype", "float64", "--budget", "2")
    assert "N=8 (float64[N])" in run("explain", "double")
    assert "exact" in run("explain", "kernels.py:double", "--dtype", "float64")
    missed = run("explain", "kernels.py:double", "--dtype", "int32")
    assert "signature.args.0: int32[N] here, float64[N] stored" in missed
    assert "tune it with: tunewright tune kernels.py:double --shape N=8 --dtype int32" in missed
    assert "float64[N]" in run("race", "--kernel", "kernels.py:double", "--dtype", "f8", "default", "decided")


def test_a_dtype_that_cannot_be_used_is_refused(run) -> None:
    assert "no dtype 'flaot64'" in run("tune", "kernels.py:double", "--dtype", "flaot64", status=2)
    assert "makes its own arguments" in run("tune", "kernels.py:own", "--shape", "3", "--dtype", "float64", status=2)
    assert "--dtype" in run("race", "true", "true", "--dtype", "float64", status=2)
