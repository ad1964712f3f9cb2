"""Tests with JAX, in a process of their own: its threads do not survive a fork, and it warns of every one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = ("backends/test_callables.py", "cases/test_foreign_arrays.py")


@pytest.mark.slow
def test_arrays_and_kernels_of_jax_pass_the_tests_of_all_others() -> None:
    pytest.importorskip("jaxlib")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "jax or Jax or serves", "-m", "not slow"]
    done = subprocess.run(
        [*command, *(str(TESTS / file) for file in FILES)],
        cwd=TESTS.parent,
        env={**os.environ, "WITH_JAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= 16, done.stdout
