"""The notebook of the book: run anew by `python docs/making/notebook_page.py`, and shown as a page."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[1] / "howto" / "notebook.ipynb"
MAX_SECONDS = 120

EXPECTED = ("crashed", "SIGSEGV", "found by portfolio", "<svg", "image/png")
"""What the outputs have on every machine."""


def run(path: Path = NOTEBOOK) -> Any:
    """The notebook with the outputs of a run in a new kernel; a cell that raises ends it with an error."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=MAX_SECONDS, kernel_name="python3", record_timing=False)
    client.extra_arguments = ["--log-level=ERROR"]
    with tempfile.TemporaryDirectory() as cache:  # with decisions of its own
        client.execute(env={**os.environ, "TUNEWRIGHT_CACHE": cache})
    return notebook


def differences(kept: Any, now: Any) -> list[str]:
    """The cells whose outputs are of other kinds than those that are kept, and what is missing from all of them."""
    cells = zip(kept.cells, now.cells, strict=True)
    changed = [cell.source for before, cell in cells if kinds(before) != kinds(cell)]
    return changed + [part for part in EXPECTED if part not in nbformat.writes(now)]


def render(notebook: Any) -> str:
    """The notebook as Markdown with its outputs."""
    return "\n\n".join(_cell(cell) for cell in notebook.cells) + "\n"


def kinds(cell: Any) -> list[str]:
    """How a cell's outputs are shown, without lines of progress, which only slow machines show."""
    shown = [output for output in cell.get("outputs", []) if output["output_type"] != "display_data"]
    return [output["output_type"] if "data" not in output else best(output["data"]) for output in shown]


def best(data: dict[str, Any]) -> str:
    """The richest way to show an output."""
    return next(kind for kind in ("image/png", "text/html", "text/plain") if kind in data)


def _cell(cell: Any) -> str:
    if cell.cell_type == "markdown":
        return cell.source
    return "\n\n".join([f"```python\n{cell.source}\n```", *map(_output, cell.outputs)])


def _output(output: Any) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    kind = best(output.data)
    content = output.data[kind]
    if kind == "image/png":
        pixels = escape("".join(content.split()))
        return f'<img alt="a plot" src="data:image/png;base64,{pixels}">'
    if kind == "text/html":
        # Markdown would end a block at an empty line; the style of data frames is not needed.
        plain = re.sub(r"<style.*?</style>", "", content, flags=re.DOTALL)
        plain = plain.replace('<table border="1" class="dataframe">', "<table>")
        flat = re.sub(r"\s*\n\s*", " ", plain)
        return f'<div class="output">{flat}</div>'
    return f"```text\n{content.rstrip()}\n```"


def main() -> None:
    """Run the notebook and keep its outputs, or say what differs from those that are kept (`--check`)."""
    notebook = run()
    if "--check" in sys.argv:
        if found := differences(nbformat.read(NOTEBOOK, as_version=4), notebook):
            sys.exit(
                f"{NOTEBOOK.name} shows something else; run: python docs/making/notebook_page.py\n" + "\n".join(found)
            )
        return
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata = {}
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
