"""`tunewright init` writes files that run as they are, and overwrites nothing."""

import os
import re
import shlex
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


STEPS = {
    "c": ["tunewright", "python", "tunewright", "python"],
    "python": ["tunewright", "python", "tunewright", "python"],
    "command": ["tunewright", "python", "tunewright", "python"],
    "triton": ["tunewright", "python", "python"],
    "torch": ["python", "python", "tunewright"],
}


def written(kind, folder) -> list[list[str]]:
    """Write the files of a kind; returns the commands that are said to be next."""
    done = run([sys.executable, "-m", "tunewright", "init", "mine", "--kind", kind], folder)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.iterdir()} == {name.replace("NAME", "mine") for name in FILES[kind]}
    lines = re.findall(r"^  (.*?)  +# ", done.stdout, re.MULTILINE)
    assert [line.split()[0] for line in lines] == STEPS[kind]
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("kind", ["c", "python", pytest.param("command", marks=pytest.mark.slow)])
def test_what_is_written_runs_as_the_command_says(kind, tmp_path) -> None:
    for words in written(kind, tmp_path):
        program = {"tunewright": [sys.executable, "-m", "tunewright"], "python": [sys.executable]}[words[0]]
        step = run([*program, *words[1:]], tmp_path)
        assert step.returncode == 0, step.stdout + step.stderr
        if "pytest" in words:
            assert "2 passed" in step.stdout
    assert "=" in step.stdout, "the config that was chosen"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["triton", "torch"])
def test_the_test_of_a_kernel_for_torch_passes(kind, tmp_path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    written(kind, tmp_path)
    done = run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_mine.py"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [("c", "2.0f * x[i + j]", "2.001f * x[i + j]"), ("python", "part @ part", "part @ part + 1")],
)
def test_the_test_fails_for_a_kernel_that_is_wrong(kind, right, wrong, tmp_path) -> None:
    written(kind, tmp_path)
    file = tmp_path / ("mine.c" if kind == "c" else "mine.py")
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    done = run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_mine.py"], tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_is_valid_python(kind, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(command, ["init", "--kind", kind]).exit_code == 0
    for path in tmp_path.iterdir():
        assert "NAME" not in path.read_text()
        if path.suffix == ".py":
            compile(path.read_text(), path.name, "exec")
    assert {"kernel.py", "test_kernel.py"} <= {path.name for path in tmp_path.iterdir()}


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


@pytest.mark.parametrize("name", ["2x", "a-b", "../up", "class", "", "numpy", "random", "np", "check"])
def test_a_name_must_be_one_of_a_function(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(command, ["init", name]).exit_code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["double", "main", "UNROLL"])
def test_a_name_that_c_does_not_allow_is_refused(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, ["init", name])
    assert done.exit_code == 2
    assert "choose another NAME" in done.output
    assert CliRunner().invoke(command, ["init", name, "--kind", "python"]).exit_code == 0
