"""The public API for type checkers: the files in typing/ are user code whose mistakes are marked by `# error:`."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from tunewright.kernel.declaration import Declaration, TuneOptions
from tunewright.settings import Settings, SettingsOptions

FOLDER = Path(__file__).parent / "typing"
PROJECT = FOLDER.parent.parent
FILES = sorted(FOLDER.glob("*.py"))


def expected_errors() -> set[str]:
    return {
        f"{path.name}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "  # error: " in line
    }


def run(*command: object) -> str:
    result = subprocess.run([*map(str, command)], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    return result.stdout


def assert_expected(places: Iterable[str], output: str) -> None:
    found, expected = set(places), expected_errors()
    assert found == expected, f"unexpected: {sorted(found - expected)}, missing: {sorted(expected - found)}\n{output}"


def test_mypy_finds_the_marked_errors_and_no_others() -> None:
    output = run(sys.executable, "-m", "mypy", "--strict", *FILES)
    lines = re.findall(r"^(.+?):(\d+): error: ", output, re.MULTILINE)
    assert_expected((f"{Path(path).name}:{number}" for path, number in lines), output)


def test_pyright_finds_the_marked_errors_and_no_others(tmp_path) -> None:
    pytest.importorskip("basedpyright")
    config = tmp_path / "pyrightconfig.json"
    settings = {"include": [str(FOLDER)], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    config.write_bytes(msgspec.json.encode(settings))
    command = (sys.executable, "-m", "basedpyright", "-p", config, "--pythonpath", sys.executable, "--outputjson")
    output = run(*command)
    errors = [note for note in msgspec.json.decode(output)["generalDiagnostics"] if note["severity"] == "error"]
    places = (f"{Path(error['file']).name}:{error['range']['start']['line'] + 1}" for error in errors)
    assert_expected(places, "\n".join(error["message"] for error in errors))


def test_the_options_of_tune_are_those_of_a_declaration() -> None:
    options = {name: hint.__forward_arg__ for name, hint in TuneOptions.__annotations__.items()}
    assert options == Declaration.__annotations__


def test_the_options_of_a_session_are_its_settings() -> None:
    assert set(SettingsOptions.__annotations__) | {"store"} == set(Settings.__struct_fields__)
