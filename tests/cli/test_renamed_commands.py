"""Former spellings of commands work, name the new spelling on standard error, and are documented."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tunewright import __version__
from tunewright.cli.commands import REMOVED_IN, RENAMED
from tunewright.cli.main import command

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("former", RENAMED)
def test_a_former_spelling_is_the_new_command_and_says_so(former) -> None:
    result = CliRunner().invoke(command, [*former.split(), "--help"])
    current = CliRunner().invoke(command, [*RENAMED[former].split(), "--help"])
    assert result.exit_code == current.exit_code == 0
    assert result.stdout == current.stdout
    assert result.stderr == (
        f"`tunewright {former}` is deprecated and will be removed in {REMOVED_IN}; use `tunewright {RENAMED[former]}`\n"
    )
    assert current.stderr == ""


def test_a_former_spelling_is_not_listed() -> None:
    text = command.get_help(click.Context(command, info_name="tunewright"))
    names = {line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.strip()}
    assert not names & {former for former in RENAMED if " " not in former}


def test_json_on_standard_output_stays_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tunewright", "quiet", "--seconds", "0.2", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["clocks"]
    assert "tunewright noise" in done.stderr


@pytest.mark.parametrize("page", ["docs/versions.md", "CHANGELOG.md"])
def test_every_former_spelling_is_documented(page) -> None:
    text = (PROJECT / page).read_text()
    for former, current in RENAMED.items():
        assert f"`tunewright {former}`" in text, former
        assert f"`tunewright {current}`" in text, current


def test_a_former_spelling_is_removed_in_time() -> None:
    version, removal = (tuple(map(int, text.split(".")[:2])) for text in (__version__, REMOVED_IN))
    assert version < removal, "the version in which the former spellings end: remove RENAMED"
