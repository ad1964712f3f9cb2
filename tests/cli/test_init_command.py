"""`tunewright init` writes files that run as they are, and overwrites nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunewright.cli.init import FILES
from tunewright.cli.main import command


def run(words, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TUNEWRIGHT_TRIALS": "3"}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=env)


@pytest.mark.parametrize("kind", ["c", "python"])
def test_what_is_written_runs_as_the_command_says(kind, tmp_path) -> None:
    done = run([sys.executable, "-m", "tunewright", "init", "mine", "--kind", kind], tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"mine{suffix}" for suffix in FILES[kind]}
    lines = re.findall(r"^  (.*?)  +# ", done.stdout, re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["tunewright", "tunewright", "python"]
    for line in lines:
        step = run(line.replace("tunewright ", f"{sys.executable} -m tunewright ").split(), tmp_path)
        assert step.returncode == 0, step.stderr
    assert "=" in step.stdout, "the config that was chosen"


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_is_valid_python(kind, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(command, ["init", "--kind", kind]).exit_code == 0
    compile((tmp_path / "kernel.py").read_text(), "kernel.py", "exec")
    assert "NAME" not in (tmp_path / "kernel.py").read_text()


def test_the_triton_kernel_is_one_that_prebuild_takes(tmp_path, monkeypatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(command, ["init", "scale", "--kind", "triton"])
    from tunewright.pools.kernel_loader import load_target
    from tunewright.triton.static.kernels import unwrap_kernel

    kernel = unwrap_kernel(load_target(f"{tmp_path / 'scale.py'}:scale"))
    assert kernel.name.endswith("scale")


def test_nothing_is_overwritten(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("my work")
    result = CliRunner().invoke(command, ["init", "mine"])
    assert result.exit_code == 2
    assert "mine.py exists already" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
    assert (tmp_path / "mine.py").read_text() == "my work"


@pytest.mark.parametrize("name", ["2x", "a-b", "../up", "class", ""])
def test_a_name_must_be_one_of_a_function(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(command, ["init", name]).exit_code == 2
    assert not list(tmp_path.iterdir())
