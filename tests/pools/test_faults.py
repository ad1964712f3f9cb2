"""Candidates that misbehave: the search completes, each is recorded with its stage and reason, we are untouched."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import BackendError
from tunewright.model.trial import Failure
from tunewright.pools.kernel_loader import load_target

KERNELS = Path(__file__).parent.parent / "kernels"
LIMITS = {"run_seconds": 300, "build_seconds": 300, "memory_mb": 256, "strategy": "exhaustive"}


@pytest.fixture
def kernels():
    sys.path.insert(0, str(KERNELS))
    yield __import__
    sys.path.remove(str(KERNELS))


@pytest.fixture
def faulty(kernels):
    return kernels("faulty")


@pytest.mark.parametrize("pool", ["process:1", "process:2"])
def test_every_fault_is_a_result(faulty, pool) -> None:
    every_fault_is_a_result(faulty, tw.Session(pool=pool, **LIMITS))


@pytest.mark.clock("who hangs is ended after 3 s; the honest default must not take that long in any stage")
def test_who_does_not_end_is_ended(kernels) -> None:
    every_fault_is_a_result(kernels("hanging"), tw.Session(pool="process:2", **{**LIMITS, "run_seconds": 3}))


def every_fault_is_a_result(faulty, session) -> None:
    faulty.twice.using(session)
    x, y = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    before = x.copy()
    faulty.twice(x, y)
    assert np.array_equal(x, before)
    assert np.array_equal(y, 2 * x)
    key = faulty.twice.problem([x, y]).key
    trials = {int(trial.config["CASE"]): trial.outcome for trial in session.store.trials(key)}
    assert set(trials) == set(faulty.CASES)
    for case, wanted in faulty.CASES.items():
        outcome = trials[case]
        if wanted is None:
            assert not isinstance(outcome, Failure)
            continue
        assert isinstance(outcome, Failure), case
        stage, kind, reason = wanted
        assert (str(outcome.stage), str(outcome.kind)) == (stage, kind), (case, outcome)
        assert reason in outcome.reason, (case, outcome)
    decision = session.store.get(key)
    assert decision.config == tw.Config(CASE=0)
    assert decision.evidence.failures == len(faulty.CASES) - 1


def test_python_faults_without_a_name_to_find_them_by_are_contained_too() -> None:
    def kernel(x: tw.InOut("N"), *, case: int):
        if case == 1:
            import os

            os.kill(os.getpid(), 9)
        if case == 2:
            raise RuntimeError("no such instruction")
        if case == 3:
            np.ones(1 << 28)
        if case == 4:
            import tempfile

            with tempfile.TemporaryFile() as file:
                file.truncate(257 << 20)
        x *= 2

    session = tw.Session(**LIMITS)
    tuned = tw.tune(tw.Space(tw.Knob("case", range(5))), session=session, reference=lambda x: 2 * x)(kernel)
    x = np.ones(10)
    tuned(x)
    assert np.array_equal(x, 2 * np.ones(10))
    failures = {t.config["case"]: t.outcome for t in session.store.trials(tuned.problem([x]).key)}
    assert "SIGKILL" in failures[1].reason
    assert "RuntimeError: no such instruction" in failures[2].reason
    assert str(failures[3].kind) == "memory"
    assert "a file of more than 256 MiB, which `memory_mb` allows" in failures[4].reason


def test_a_reference_that_raises_is_a_broken_program_and_says_so() -> None:
    def broken(x):
        raise ZeroDivisionError("oops")

    tuned = tw.tune(tw.Space(tw.Knob("k", [1])), session=tw.Session(), reference=broken)(lambda x, k: x)
    with pytest.raises(BackendError, match="the reference raised ZeroDivisionError: oops"):
        tuned(np.ones(3))


def test_a_default_that_crashes_without_a_reference_is_said_plainly() -> None:
    def kernel(x, *, k):
        import os

        os.abort()

    tuned = tw.tune(tw.Space(tw.Knob("k", [1])), session=tw.Session())(kernel)
    with pytest.raises(BackendError, match=r"SIGABRT.*the default config crashes"):
        tuned(np.ones(3))


def test_all_failing_is_said_plainly(faulty) -> None:
    bad = tw.tune(tw.Space(tw.Knob("CASE", [4, 5])), backend=tw.C(KERNELS / "faulty.c", "twice"), session=tw.Session(),
                  reference=lambda x: 2 * x)(lambda x, y: None)  # fmt: skip

    def twice(x: tw.In("N"), y: tw.Out("N")): ...

    bad = tw.tune(bad.space, backend=bad.backend, session=tw.Session(), reference=lambda x: 2 * x)(twice)
    with pytest.raises(tw.NothingWorked, match=r"all 2 configs tried failed \(1 refused, 1 wrong\)"):
        bad(np.ones(4, np.float32), np.ones(4, np.float32))


def test_a_script_that_tunes_at_top_level_works_as_pasted() -> None:
    run = [sys.executable, str(KERNELS / "scripted.py")]
    first = subprocess.run(run, capture_output=True, text=True, check=True, timeout=300)
    assert first.stdout == "1000.0 3\n"
    second = subprocess.run(run, capture_output=True, text=True, check=True, timeout=300)
    assert second.stdout == "1000.0 0\n"


def test_a_kernel_defined_after_the_first_call_is_said_plainly() -> None:
    with pytest.raises(BackendError, match="before its first call of a tuned kernel"):
        load_target(f"{KERNELS / 'scripted.py'}:later")
