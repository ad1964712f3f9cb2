"""Run the README's quick start in an empty folder and draw what the terminal shows: docs/pictures/quick-start.svg.

python docs/making/terminal.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parent))

from blocks import written

PROJECT = Path(__file__).parents[2]
COMMANDS = (
    "python saxpy.py",
    "python saxpy.py",
    "tunewright trials saxpy --best 3",
    "tunewright explain saxpy.py:saxpy --shape N=4000",
)
COLUMNS = 100


def output(command: str, folder: Path) -> str:
    """What a command prints, with its colors."""
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TUNEWRIGHT_CACHE": str(folder / "cache"),
        "FORCE_COLOR": "1",
        "COLUMNS": str(COLUMNS),
    }
    done = subprocess.run(command.split(), cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.rstrip("\n")


def drawn() -> str:
    """The quick start as SVG, in the fonts that the reader has."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as name:
        written(PROJECT / "README.md", Path(name))
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(output(command, Path(name))))
    svg = console.export_svg(title="tunewright", theme=DIMMED_MONOKAI, unique_id="quick-start")
    svg = re.sub(r"\s*<!-- .*? -->", "", svg)
    return re.sub(r"\s*@font-face \{.*?\}(?=\s*(?:@font-face|\.))", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    path = PROJECT / "docs" / "pictures" / "quick-start.svg"
    path.write_text(drawn())
    sys.stdout.write(f"{path}\n")
