"""The notebook of the book runs as it is shown, and becomes a page."""

import copy
import re

import pytest

nbformat = pytest.importorskip("nbformat", reason="the group `docs` is not installed")
pytest.importorskip("nbclient", reason="the group `docs` is not installed")

import notebook_page as notebook  # noqa: E402

STORED = nbformat.read(notebook.NOTEBOOK, as_version=4)


@pytest.mark.slow
def test_the_notebook_shows_what_it_did_when_it_was_kept() -> None:
    assert notebook.differences(STORED, notebook.run()) == []


def test_another_output_is_noticed() -> None:
    other = copy.deepcopy(STORED)
    assert notebook.differences(STORED, other) == []
    other.cells[-2].outputs.clear()
    assert notebook.differences(STORED, other) == [other.cells[-2].source]


def test_a_cell_that_raises_fails_the_run(tmp_path) -> None:
    from nbclient.exceptions import CellExecutionError

    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    nbformat.write(broken, tmp_path / "broken.ipynb")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        notebook.run(tmp_path / "broken.ipynb")


def test_the_page_shows_every_cell_with_its_output() -> None:
    page = notebook.render(STORED)
    for cell in STORED.cells:
        assert cell.source in page
        assert cell.cell_type == "markdown" or cell.outputs or "import" in cell.source or "@tw.tune" in cell.source
    assert page.count("data:image/png;base64,") == 1
    assert "<svg" in page
    assert not re.search(r"/(work|root|home|tmp)/", page)


def test_the_notebook_is_short() -> None:
    assert sum(cell.source.count("\n") + 1 for cell in STORED.cells if cell.cell_type == "code") < 50
    assert notebook.NOTEBOOK.stat().st_size < 200_000
