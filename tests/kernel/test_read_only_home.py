"""A cache that cannot be written: kernels run all the same, and it is said once."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np, tunewright as tw
@tw.tune(tw.Space(tw.Knob("UNROLL", [1, 2])), backend=tw.C("saxpy.c", flags="-O1"), reference=lambda x, y: y + 2 * x)
def saxpy(x: tw.In("N"), y: tw.InOut("N")): ...
x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
saxpy(x, y)
saxpy(x, y)
counts = tw.current_session().counts
print(y[0], saxpy.decide(x, y).tier, "measured" if counts["measurements"] else "not measured")
"""
SOURCE = """void saxpy(const float *x, float *y) {
    for (long i = 0; i < N; i += UNROLL) for (long j = 0; j < UNROLL; j++) y[i + j] += 2.0f * x[i + j];
}
"""


@pytest.fixture
def run(tmp_path):
    """Run the program in a mode; its home is a read-only file system, or a file is where the cache should be."""
    (tmp_path / "saxpy.c").write_text(SOURCE)
    (tmp_path / "saxpy.py").write_text(PROGRAM)
    home = tmp_path / "home"
    home.mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TUNEWRIGHT_", "XDG_"))}
    clean |= {"TMPDIR": str(tmp_path / "scratch")}
    (tmp_path / "scratch").mkdir()

    def start(mode: str, *, mounted: bool = False, **environ: str) -> tuple[list[str], list[str]]:
        command = [sys.executable, "saxpy.py"]
        if mounted:
            bind = f"mount --bind {shlex.quote(str(home))} {shlex.quote(str(home))}"
            remount = f"mount -o remount,ro,bind {shlex.quote(str(home))}"
            command = ["unshare", "-m", "sh", "-c", f"{bind} && {remount} && exec {shlex.join(command)}"]
        env = {**clean, "HOME": str(home), "TUNEWRIGHT_MODE": mode, **environ}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not list((tmp_path / "scratch").glob("tunewright-*")), "temporary folders are removed"
        said = [line for line in done.stderr.splitlines() if "cannot" in line or "rror" in line]
        return done.stdout.split(), said

    return start


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="needs the right to mount")
PLACES = [pytest.param(False, id="a file is in the way"), pytest.param(True, id="read-only", marks=needs_mounts)]


@pytest.mark.parametrize("mounted", PLACES)
def test_frozen_serves_the_default_and_says_why(run, tmp_path, mounted) -> None:
    environ = {} if mounted else {"TUNEWRIGHT_CACHE": str(tmp_path / "saxpy.c" / "cache")}
    printed, said = run("frozen", mounted=mounted, **environ)
    assert printed == ["4.0", "default", "not", "measured"]
    assert len(said) == 1, said
    assert "set `cache` or TUNEWRIGHT_CACHE" in said[0]
    assert environ.get("TUNEWRIGHT_CACHE", str(tmp_path / "home")) in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("mounted", PLACES)
def test_tune_works_and_says_once_that_nothing_is_kept(run, tmp_path, mounted) -> None:
    environ = {} if mounted else {"TUNEWRIGHT_CACHE": str(tmp_path / "saxpy.c" / "cache")}
    printed, said = run("tune", mounted=mounted, **environ)
    assert printed == ["4.0", "exact", "measured"]
    assert len(said) == 1, said
    assert "nothing is kept" in said[0]


@pytest.mark.slow
@needs_mounts
def test_what_is_in_a_read_only_home_is_used_and_nothing_is_said(run) -> None:
    assert run("tune") == (["4.0", "exact", "measured"], [])
    for mode in ("frozen", "tune"):
        assert run(mode, mounted=True) == (["4.0", "exact", "not", "measured"], [])


def test_a_home_that_is_not_there_and_cannot_be_made_is_no_obstacle(run) -> None:
    printed, said = run("frozen", HOME="/proc/nohome")
    assert printed == ["4.0", "default", "not", "measured"]
    assert any("cannot be written" in line for line in said)
