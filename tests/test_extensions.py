"""An extension is a folder that can be deleted: the core imports, tunes and prints its help without it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
FLOORS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
EXTENSIONS = sorted(name.strip() for floor in FLOORS[1:3] for name in floor.split("|"))
COMMANDS = {
    "agents": "mcp",
    "commands": "command",
    "dashboard": "report",
    "emulator": "emulate",
    "interop": "tables",
    "shapes": "cover",
}  # the others have a command of their own name, or none
WITHOUT_COMMAND = {"gate", "keylint", "memoization", "opencl", "operators", "shipping"}

HIDE = """
import sys
from importlib.abc import MetaPathFinder

HIDDEN = "tunewright." + sys.argv[1]

class Hider(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == HIDDEN or name.startswith(HIDDEN + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hider())
"""

KERNEL = """
import numpy as np
import tunewright as tw

space = tw.Space(tw.Knob("step", [1, 2, 4]), tw.Knob("twice", [False, True]))

@tw.tune(space, reference=lambda x: x.sum(), shapes=[{"N": 64}], budget="3")
def total(x: tw.In("N"), *, step, twice):
    for _ in range(1 + twice):
        result = sum(x[i::step].sum() for i in range(step))
    return result
"""

PROGRAM = """
import contextlib, io, json
import numpy as np
import tunewright as tw
from kernels import total

tw.configure(pool="serial")
assert total(np.ones(64, np.float32)) == 64.0
measured = tw.current_session().counts["measurements"]

def run(*words):
    from tunewright.cli.main import command
    printed, failed = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            command(list(words), standalone_mode=False)
        except Exception as error:
            failed = f"{type(error).__name__}: {getattr(error, 'message', error)}"
    return printed.getvalue(), failed

help_text, help_failed = run("--help")
shown, show_failed = run("show", "--json")
imported_by_show = sorted({name.split(".")[1] for name in sys.modules if name.startswith("tunewright.")})
_, called = run(sys.argv[2], "--help") if sys.argv[2] else ("", "")
print(json.dumps(dict(measured=measured, help=help_text, help_failed=help_failed, shown=json.loads(shown or "null"),
                      show_failed=show_failed, called=called, imported=imported_by_show)))
"""


def command_of(extension: str) -> str:
    return "" if extension in WITHOUT_COMMAND else COMMANDS.get(extension, extension)


def run_without(package: str, folder: Path, command: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the quick start and the help in an empty folder, with a package hidden from the import system."""
    (folder / "kernels.py").write_text(KERNEL)
    (folder / "program.py").write_text(HIDE + PROGRAM)
    words = [sys.executable, "program.py", package, command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_the_core_works_without(extension, tmp_path) -> None:
    command = command_of(extension)
    done = run_without(extension, tmp_path, command)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["measured"] == 3
    assert (answer["help_failed"], answer["show_failed"]) == ("", "")
    assert [decision["key"]["kernel"] for decision in answer["shown"]] == ["total"]
    listed = {line.split()[0] for line in answer["help"].splitlines() if line.startswith("  ") and line.strip()}
    assert {"tune", "show", "store", "settings"} <= listed
    if command:
        assert command not in listed
        assert f"needs the extension tunewright.{extension}" in answer["called"]
    assert not set(answer["imported"]) & set(EXTENSIONS), "tuning, help and `show` import no extension"


def test_every_command_is_listed_when_nothing_is_hidden(tmp_path) -> None:
    done = run_without("nothing_of_that_name", tmp_path, "torch")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert all(f"  {command} " in answer["help"] for command in filter(None, map(command_of, EXTENSIONS)))
    assert answer["called"] == ""


@pytest.mark.parametrize("package", ["spaces", "engine", "stores"])
def test_hiding_a_part_of_the_core_is_noticed(package, tmp_path) -> None:
    done = run_without(package, tmp_path)
    assert done.returncode != 0
    assert f"No module named 'tunewright.{package}" in done.stderr
