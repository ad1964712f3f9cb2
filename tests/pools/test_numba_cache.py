"""Numba's cache: what a script's functions are compiled to under another module name is not found by the script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunewright.pools.kernel_loader import load_target

SCRIPT = """
import os
from pathlib import Path
import numpy as np
import tunewright as tw

@tw.tune(space=tw.Space(tw.Knob("step", [1, 2])))
def total(x: tw.In("N"), *, step=1):
    Path(__file__).with_suffix(".folder").write_text(os.environ.get("NUMBA_CACHE_DIR", ""))
    return x.sum()

if __name__ == "__main__":
    session = tw.configure(trials=2, store="memory:")
    total.tune(np.ones(8))
"""

COMPILED = """
import numba

@numba.njit(cache=True)
def twice(x):
    return 2 * x

if __name__ == "__main__":
    print(twice(4))
"""


def run(*words, **variables) -> str:
    environ = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, *words], env={**environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.slow
def test_a_worker_has_a_cache_of_its_own_below_ours_or_below_the_users(tmp_path, given) -> None:
    script, cache, own = tmp_path / "k.py", tmp_path / "cache", tmp_path / "own"
    script.write_text(SCRIPT)
    variables = {"NUMBA_CACHE_DIR": str(own)} if given else {}
    run(str(script), TUNEWRIGHT_CACHE=str(cache), **variables)
    folder = own / "tunewright" / "script" if given else cache / "numba" / "script"
    assert Path(script.with_suffix(".folder").read_text()) == folder


@pytest.mark.slow
def test_a_script_runs_after_its_function_was_compiled_under_another_name(tmp_path) -> None:
    pytest.importorskip("numba")
    script = tmp_path / "k.py"
    script.write_text(COMPILED)
    load = "import sys; from tunewright.pools.kernel_loader import load_target as l; print(l(sys.argv[1])(4))"
    (temporary := tmp_path / "temporary").mkdir()
    assert run("-c", load, f"{script}:twice", TMPDIR=str(temporary)) == "8\n"
    assert not list(tmp_path.rglob("*.nbi"))
    assert not list(temporary.iterdir())
    assert run(str(script)) == "8\n"
    assert list(tmp_path.rglob("*.nbi"))  # the script keeps its own


@pytest.mark.parametrize("before", ["somewhere", None])
def test_the_variable_is_as_before_when_a_script_is_loaded(tmp_path, monkeypatch, before) -> None:
    script = tmp_path / "k.py"
    script.write_text("import os\nfolder = os.environ['NUMBA_CACHE_DIR']\n")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    if before:
        monkeypatch.setenv("NUMBA_CACHE_DIR", before)
    folder = load_target(f"{script}:folder")
    assert folder not in ("", before)
    assert not Path(folder).exists()  # nothing is left of a kernel that Numba does not compile, even by a kill
    assert os.environ.get("NUMBA_CACHE_DIR") == before
