"""Shell completion: what the scripts complete, in the shell itself where it is installed."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from tunewright.cli import completion
from tunewright.cli.main import command
from tunewright.settings import Settings
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION

BIN = Path(sys.executable).parent
KERNELS = (
    "import tunewright as tw\n@tw.tune(space)\ndef gemm(x): ...\n@tw.tune(space)\ndef gemv(x): ...\ndef helper(): ...\n"
)


@pytest.fixture
def store(own_cache):
    store = SqliteStore(Settings.read().store_location)
    store.put(DECISION)
    return store


def complete(line: str) -> list[str]:
    """Returns the completions of a line, as click computes them for any shell."""
    *args, incomplete = line.split(" ")
    found = ShellComplete(command, {}, "tunewright", completion.VARIABLE).get_completions(args, incomplete)
    return [item.value for item in found]


def test_commands_and_options_are_completed_without_importing_commands() -> None:
    program = (
        "import sys; from click.shell_completion import ShellComplete; from tunewright.cli.main import command; "
        "found = ShellComplete(command, {}, 'tunewright', 'X').get_completions([], 's'); "
        "print(*[item.value for item in found]); "
        "assert not {'tunewright.cli.show', 'tunewright.cli.store', 'tunewright.operators'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["show", "space", "store", "service", "skill", "settings"]
    assert complete("store h") == ["history"]
    assert complete("bench ") == ["compare", "record", "run"]
    assert "--budget" in complete("tune --bu")
    assert complete("campaign pl") == ["plan"], "a former spelling completes as the new one does"


def test_kernels_of_the_store_are_completed(store) -> None:
    kernel = DECISION.key.kernel
    assert complete(f"show {kernel[:2]}") == [kernel]
    assert complete("trials ") == [kernel]
    assert complete("store history zz") == []


@pytest.mark.parametrize("location", ["postgresql://tuner@127.0.0.1:1/x", "nowhere.sqlite", "broken.sqlite", "://"])
def test_a_store_that_is_remote_absent_or_broken_completes_nothing_in_silence(location, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.sqlite").write_text("no database" * 100)
    monkeypatch.setenv("TUNEWRIGHT_STORE", location)
    environ = {**os.environ, "COMP_WORDS": "tunewright show x", "COMP_CWORD": "2", completion.VARIABLE: "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "tunewright"], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert not (tmp_path / "nowhere.sqlite").exists()


def test_completion_reads_a_large_store_for_a_short_time_only(store, monkeypatch) -> None:
    class Endless:
        def keys(self):
            while True:
                time.sleep(0.001)
                yield DECISION.key

    monkeypatch.setattr(SqliteStore, "at", classmethod(lambda cls, location: Endless()))
    monkeypatch.setattr(completion, "MAX_SECONDS", 0.01)
    assert complete("show ") == [DECISION.key.kernel]


def test_targets_are_completed_from_files_that_are_not_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "plain.py").write_text("raise SystemExit\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.py").write_text(KERNELS)
    assert complete("tune ker") == ["kernels.py:gemm", "kernels.py:gemv"]
    assert complete("explain kernels.py:gemv") == ["kernels.py:gemv"]
    assert complete("tune sub") == ["sub/"]
    assert complete("tune sub/m") == ["sub/more.py:gemm", "sub/more.py:gemv"]
    assert complete("tune nowhere/") == complete("tune absent.py:") == complete("tune broken.py:") == []


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_shell_has_a_script(shell) -> None:
    result = CliRunner().invoke(command, ["completion", shell])
    assert result.exit_code == 0
    assert f"{completion.VARIABLE}={shell}_complete" in result.output
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True)


LINES = {
    "tunewright exp": ["explain"],
    "tunewright store roll": ["rollback"],
    "tunewright tune --strat": ["--strategy"],
    "tunewright show ": [DECISION.key.kernel],
    "tunewright tune ker": ["kernels.py:gemm", "kernels.py:gemv"],
    "tunewright tune kernels.py:gemm": ["gemm"],  # Bash replaces what stands after the colon
}


@pytest.mark.skipif(not (BIN / "tunewright").exists(), reason="the command is not installed beside this Python")
def test_bash_itself_completes_commands_options_kernels_and_targets(store, tmp_path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    script = ["compopt() { :; }", 'eval "$(tunewright completion bash)"']  # compopt works only while Tab is pressed
    for line in LINES:
        script += [f"COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}", "_tunewright_completion tunewright"]
        script.append('echo "${COMPREPLY[*]}"')
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    words = ["bash", "--norc", "-c", "\n".join(script)]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines()] == list(LINES.values())


def test_a_command_is_not_asked_for_help_of_others() -> None:
    context = click.Context(command, info_name="tunewright")
    assert command.shell_complete(context, "zz") == []
