"""Recording: a program's calls become shapes that a bench reads."""

import sys

from tunewright.bench.calls import OperatorCall, read_suite
from tunewright.bench.recording import as_toml, record

PROGRAM = """
import subprocess, sys
import numpy as np
import tunewright as tw
from tunewright.operators import dispatch

session = tw.Session(mode="off")
total = dispatch("reduce", only="numpy", threads=1, session=session)
softmax = dispatch("softmax", only="numpy", threads=1, session=session)

@tw.tune(tw.Space(tw.Knob("step", [1, 2])), session=session)
def scaled(x: tw.In("N"), *, step):
    return 2 * x

x = np.ones((4, 8), np.float32)
out = np.empty(4, np.float32)
for _ in range(int(sys.argv[1])):
    total(x)
    total.into(x, out)
softmax(np.ones((2, 3)))
scaled(np.ones(5))
if len(sys.argv) > 2:
    sys.exit(subprocess.run([sys.executable, __file__, "1"]).returncode + 3)
"""


def test_what_a_program_and_its_children_call_is_counted_and_read_again(tmp_path) -> None:
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    suite, status = record([sys.executable, str(program), "3", "more"])
    assert status == 3
    assert suite.call[0] == OperatorCall("reduce", {"M": 4, "N": 8}, "float32", 2 * (3 + 1))
    assert suite.call[1] == OperatorCall("softmax", {"M": 2, "N": 3}, "float64", 2)
    assert suite.kernel == ({"name": "scaled", "sizes": {"N": 5}, "dtype": "float64", "count": 2},)
    file = tmp_path / "calls.toml"
    file.write_text(as_toml(suite))
    assert read_suite(file) == suite


def test_a_program_that_calls_nothing_gives_an_empty_list(capfd) -> None:
    suite, status = record([sys.executable, "-c", "print()"])
    assert (suite.call, suite.kernel, status) == ((), (), 0)
    assert capfd.readouterr().err == ""


def test_a_site_of_the_users_own_is_still_run(tmp_path, monkeypatch, capfd) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('at the start')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    record([sys.executable, "-c", "print('the program')"])
    assert capfd.readouterr().out.split("\n")[:2] == ["at the start", "the program"]
