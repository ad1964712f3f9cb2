"""What a store recorded selects among the kernels that the operator names; it never names what runs."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tunewright.cli import misses
from tunewright.cli.targets import load_tunables
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.statistics import MissRecord
from tunewright.testing.keys import KEY, other_key

KERNEL = """
import numpy as np
import tunewright as tw

@tw.tune(tw.Space(tw.Knob("step", [1, 2])), reference=lambda x: x.sum())
def total(x: tw.In("N"), *, step):
    return sum(x[i::step].sum() for i in range(step))

if __name__ == "__main__":
    total(np.ones(64, np.float32))
"""
PLANTED = "open('planted', 'w').close()\n"


@pytest.fixture
def here(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "evil.py").write_text(PLANTED + KERNEL)
    (tmp_path / "evil_module.py").write_text(PLANTED + KERNEL)
    return tmp_path


def tunewright(here, *args, status=0, **environ):
    command = [sys.executable, "-m", "tunewright", *args, "--store", "s.sqlite"]
    environ = {**os.environ, **environ}
    done = subprocess.run(command, capture_output=True, text=True, cwd=here, timeout=300, check=False, env=environ)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def record(here, *misses: MissRecord) -> SqliteStore:
    store = SqliteStore(here / "s.sqlite")
    store.record_misses(misses)
    return store


def recorded_call(here) -> MissRecord:
    """A miss as mode=record writes it."""
    environ = {**os.environ, "TUNEWRIGHT_MODE": "record", "TUNEWRIGHT_STORE": "s.sqlite"}
    subprocess.run([sys.executable, "kernels.py"], cwd=here, check=True, env=environ)
    (miss,) = SqliteStore(here / "s.sqlite").misses()
    return miss


TARGETS = (
    *("./evil.py:total", "evil.py:total", "evil_module:total", "{here}/evil.py:total", "evil.py", "evil_module", ""),
    *("tunewright.operators/../evil.py:total", "tunewright.operators:__builtins__.exec", "tunewright.operators:"),
)


@pytest.mark.parametrize("named", [(), ("kernels.py",), ("kernels.py:total",)], ids=["none", "file", "kernel"])
def test_what_a_record_names_never_runs(here, named) -> None:
    record(here, *(
        MissRecord(other_key(kernel=f"gemm{number}"), 5, 1e6, target.format(here=here), "{}")
        for number, target in enumerate(TARGETS)
    ))  # fmt: skip
    said = tunewright(here, "tune", "--recorded", *named, "--pool", "serial", status=1).stderr
    assert not (here / "planted").exists()
    assert "name the files or modules" in said
    assert "--recorded FILE.py" in said


def test_a_record_of_a_named_kernel_cannot_point_elsewhere(here) -> None:
    """The record is of a kernel that the operator named, but says that it is defined in another file."""
    miss = recorded_call(here)
    record(here, MissRecord(miss.key, 5, 1e6, "evil.py:total", miss.recipe))
    done = tunewright(here, "tune", "--recorded", "kernels.py", "--pool", "serial", "--json")
    assert not (here / "planted").exists()
    assert json.loads(done.stdout)["decision"]["key"]["kernel"] == miss.key.kernel


@pytest.mark.parametrize("recipe", [
    '{"args":[{"type":"array","shape":[1000000000000],"dtype":"float32"}],"dims":{"N":1000000000000}}',
    '{"args":[{"type":"array","shape":[-4]}]}', '{"args":[{"type":"array","shape":[4],"dtype":"no such"}]}',
    '{"args":[{"type":"array","shape":[4],"order":[7]}]}', '{"case":9}', '{"seed":-1}', '{}', "no json", "[]",
])  # fmt: skip
def test_a_recipe_that_makes_no_sense_is_passed_over(here, recipe, monkeypatch, capsys) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (kernel,) = load_tunables("kernels.py")
    key = kernel.problem([np.ones(64, np.float32)]).key
    record(here, MissRecord(key, 5, 1e6, "kernels.py:total", recipe))
    assert list(misses.recorded_calls(["kernels.py"], "s.sqlite")) == []
    assert "skipped: " in capsys.readouterr().err


def test_the_key_is_checked_before_arguments_are_made(here) -> None:
    made = "def made(N):\n    open('made', 'w').close()\n    return [np.ones(N, np.float32)]\n\n"
    (here / "kernels.py").write_text(KERNEL.replace("@tw.tune(", f"{made}@tw.tune(inputs=made, name='sum', space="))
    record(here, MissRecord(other_key(kernel="sum"), 5, 1e6, "kernels.py:total", '{"dims":{"N":64}}'))
    said = tunewright(here, "tune", "--recorded", "kernels.py", "--pool", "serial").stderr
    assert "recorded for another key" in said
    assert not (here / "made").exists()


@pytest.mark.parametrize("named", ["kernels.py", "kernels:total"])
def test_named_kernels_are_tuned(here, named) -> None:
    recorded_call(here)
    done = tunewright(here, "tune", "--recorded", named, "--pool", "serial", "--json")
    assert json.loads(done.stdout)["decision"]["key"]["kernel"]


def test_names_in_records_do_not_reach_the_terminal_as_commands(here) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07"
    record(here, MissRecord(other_key(kernel=f"gemm{evil}"), 5, 1e6, f"evil{evil}.py:x", "{}"))
    said = tunewright(here, "tune", "--recorded", status=1).stderr
    assert "\x1b" not in said
    assert KEY.kernel in said
