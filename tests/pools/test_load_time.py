"""What a slow program costs in every worker is said once, with the remedy; imports are not the program's fault."""

import logging
import subprocess
import sys
import textwrap

import pytest

from tunewright.pools import load_time
from tunewright.pools.load_time import measured_load, warn_of_slow_load


@pytest.fixture(autouse=True)
def nothing_said_before(monkeypatch):
    monkeypatch.setattr(load_time, "_warned", set())


def test_statements_count_and_imports_do_not(tmp_path, monkeypatch) -> None:
    (tmp_path / "slow_inner.py").write_text("import time\ntime.sleep(0.2)\n")
    (tmp_path / "slow_outer.py").write_text("import slow_inner\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    original = __import__
    with measured_load() as load:
        exec("import slow_outer")
    assert load.seconds < 0.2
    with measured_load() as load:
        exec("import time\ntime.sleep(0.2)")
    assert load.seconds >= 0.2
    assert __import__ is original


def test_imports_work_again_after_a_module_that_raises() -> None:
    original = __import__

    def load():
        with measured_load():
            exec("import no_such_module_at_all")

    with pytest.raises(ModuleNotFoundError):
        load()
    assert __import__ is original


def test_it_is_said_once_for_each_program(caplog) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        warn_of_slow_load("/somewhere/top.py:kernel", 2.04)
        warn_of_slow_load("package.kernels:kernel", 1.5)
        warn_of_slow_load("/somewhere/quick.py:kernel", 0.9)
    script, module = (record.getMessage() for record in caplog.records)
    assert script.startswith("top.py takes 2.0 s to run up to its first call of a tuned kernel")
    assert 'under `if __name__ == "__main__":`' in script
    assert "__main__" not in module
    assert "/somewhere" not in script


@pytest.mark.slow
def test_a_program_with_a_costly_top_is_told_and_one_with_a_guard_is_not(tmp_path) -> None:
    top = textwrap.dedent("""
        import numpy as np, time, tunewright as tw
        WORK
        @tw.tune(tw.Space(tw.Knob("step", [1, 2])), reference=lambda x: 2 * x)
        def double(x: tw.In("N"), *, step): return 2 * x
        if __name__ == "__main__":
            double(np.ones(4))
    """)
    for work, times in (("time.sleep(1.1)", 1), ('if __name__ == "__main__": time.sleep(1.1)', 0)):
        (tmp_path / "top.py").write_text(top.replace("WORK", work))
        done = subprocess.run([sys.executable, "top.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr.count("top.py takes 1.1 s") == times, done.stderr
