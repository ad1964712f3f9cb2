"""Transcript: run the commands that a page shows in an empty folder, and hold what they say against what it shows.

    python docs/making/transcript.py docs/start.md FOLDER

Numbers other than 0, values of knobs, digests and widths of columns may differ from machine to machine; words may not.
`...` stands for anything within a line, and alone on a line for any lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from blocks import blocks, written

SECONDS = 300


class Step(NamedTuple):
    """A command, and the lines that it is shown to say."""

    command: str
    shown: list[str]


def steps(page: Path) -> Iterator[Step]:
    """The commands of a page, in order."""
    for block in blocks(page, "transcript"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            yield Step(command.partition("  #")[0].strip(), shown)


def objection(shown: Sequence[str], said: Sequence[str]) -> str:
    """What is said and not shown, or shown and not said; empty if they agree."""
    wanted = "\n".join(_pattern(line) for line in shown if line.strip())
    told = "\n".join(" ".join(line.split()) for line in said if line.strip())
    wanted = wanted.replace("ANY LINES\n", r"(?:.*\n)*?").replace("\nANY LINES", r"(?:\n.*)*")
    return "" if re.fullmatch(wanted, told) else f"shown:\n{chr(10).join(shown)}\nsaid:\n{chr(10).join(said)}"


def _pattern(line: str) -> str:
    """A line as an expression that allows what may differ."""
    if line.strip() == "...":
        return "ANY LINES"
    text = re.escape(" ".join(line.split()))
    text = text.replace(r"\.\.\.", r".*")
    text = re.sub(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{10,}\b", "A DIGEST", text)  # of a key, which names the processor
    text = re.sub(r"(\w+=)(\\-\w+(?:\\ \\-[\w\\-]+)?|[1-9]\d*|\w+)", r"\1(?:-\\S+(?: -\\S+)?|\\S+)", text)
    text = re.sub(r"(?<![\w\]\\])(?!0(?![\d.\\]))\d+(?:\\\.\d+)?(?:\\ [mun]?s\b)?", r"[\\d.,]+(?: [mun]?s)?", text)
    return text.replace("A DIGEST", "[0-9a-f]+")


def follow(page: Path, folder: Path) -> list[str]:
    """Do what a page says in an empty folder; what went otherwise than it shows."""
    written(page, folder)
    wrong = []
    for command, shown in steps(page):
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        said = (done.stdout + ("" if not done.returncode else done.stderr)).splitlines()
        if done.returncode or (told := objection(shown, said)):
            wrong.append(f"$ {command}\n{done.stderr if done.returncode else told}")
    return wrong


if __name__ == "__main__":
    page, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True)
    if faults := follow(page, folder):
        sys.exit("\n\n".join(faults))
    print(f"{page}: {len(list(steps(page)))} commands say what is shown")  # noqa: T201 - a script's answer
