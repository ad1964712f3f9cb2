"""Blocks: the tagged pieces of a page, for whoever runs, checks or types them.

A tag is a comment on the line before a fence: `<!-- file: NAME -->` is a file to be written, `<!-- run -->` Python that
is run, `<!-- typed -->` Python that is only type-checked, `<!-- transcript -->` commands with what they say.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r"^<!-- (file|run|typed|transcript)(?:: (\S+))? -->\n```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A tagged piece of a page."""

    tag: str
    name: str
    language: str
    text: str


def blocks(page: Path, *tags: str) -> list[Block]:
    """The pieces of a page with one of these tags, in order."""
    found = [Block(tag, name, language, text) for tag, name, language, text in BLOCK.findall(page.read_text())]
    return [one for one in found if one.tag in tags]


def written(page: Path, folder: Path) -> None:
    """Write the files that a page shows into a folder."""
    for one in blocks(page, "file"):
        (folder / one.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / one.name).write_text(one.text)


def script(page: Path, *tags: str) -> str:
    """The Python of a page as one script: later pieces go on where earlier ones ended."""
    return "\n\n".join(one.text for one in blocks(page, *tags))


if __name__ == "__main__":
    page, folder = map(Path, sys.argv[1:])
    assert blocks(page, "file"), f"{page} shows no files"
    written(page, folder)
