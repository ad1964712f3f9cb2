"""Kernels that look suspicious and are right are not refused, and find their arguments as they should be (rung 2)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import corpus
import tunewright as tw

launches = corpus.load("triton_launches")
CASES = corpus.cases("triton", cheats=False)


@pytest.mark.parametrize("name", CASES)
def test_one_that_is_honest_is_not_refused_and_its_call_stores_what_is_right(name):
    kernel = launches.tune_call(CASES[name].kernel)  # raises if the caller finds something else
    store = tw.current_session().store
    (key,) = store.keys()
    trials = list(store.trials(key))
    assert [trial.outcome.reason for trial in trials if not trial.works] == []
    assert len(trials) == 3
    assert kernel.best_config.kwargs == {"BLOCK": launches.BLOCKS[-1]}


INTERPRETED = """
import importlib, json, sys
from pathlib import Path
import tunewright as tw, tunewright.triton
tunewright.triton.install()
sys.path.insert(0, sys.argv[1])
session = tw.configure(store="memory:", mode="tune")

def bench(call, quantiles):
    call()
    return [1.0] * 3

def tuner_of(kernel):
    while not hasattr(kernel, "configs"):
        kernel = kernel.fn
    return kernel

unsupported = []
for name in sys.argv[2:]:
    for kernel, grid, args, given in importlib.import_module(name).calls():
        tuner_of(kernel)._do_bench = bench
        try:
            kernel[grid](*args, **given)
        except tw.NothingWorked as error:
            assert "InterpreterError: ValueError('mask has unsupported dtype')" in str(error), error
            unsupported.append(tuner_of(kernel).base_fn.__name__)
trials = [(key.kernel, trial) for key in list(session.store.keys()) for trial in session.store.trials(key)]
failed = [str(trial) for kernel, trial in trials if not trial.works and kernel not in unsupported]
print(json.dumps([len(trials), unsupported, failed]))
"""


@pytest.mark.slow
def test_real_kernels_are_not_refused(tmp_path):
    """Rung 3: in the interpreter every config really computes, and is compared with the default."""
    kernels = Path(__file__).parent / "kernels"
    names = sorted(path.stem for path in kernels.glob("*.py"))
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", INTERPRETED, str(kernels), *names]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, unsupported, failed = json.loads(done.stdout.splitlines()[-1])
    assert failed == []
    assert count > 2 * len(names)
    assert unsupported == ["backward"]  # which Triton's interpreter cannot run
