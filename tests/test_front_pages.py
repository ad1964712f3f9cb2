"""What the front pages promise about themselves: short enough for a busy reader, and no private vocabulary."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
README, INDEX = PROJECT / "README.md", PROJECT / "docs" / "index.md"


@pytest.mark.parametrize("page", [README, INDEX], ids=["README", "index"])
def test_a_front_page_fits_a_busy_reader(page) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) <= 150
    assert not [line for line in lines if len(line) > 120]


def test_the_first_page_of_results_is_a_page() -> None:
    text = (PROJECT / "docs" / "results.md").read_text()
    assert text.count("\n") <= 60
    for command in re.findall(r"`((?:benchmarks|tutorials)/\w+\.py)`", text):
        assert (PROJECT / command).exists(), command


def test_every_page_of_results_can_be_reached_from_the_first() -> None:
    text = (PROJECT / "docs" / "results.md").read_text()
    for page in (PROJECT / "docs" / "results").glob("*.md"):
        assert f"(results/{page.name})" in text, page.name


def test_the_glossary_is_short_and_in_order() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (PROJECT / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)
    assert 20 < len(words) <= 60
    assert words == sorted(words)


def test_figures_of_the_readme_are_those_of_the_results() -> None:
    results = (PROJECT / "docs" / "results.md").read_text()
    table = README.read_text().split("## Why")[1].split("##")[0]
    rows = [row.split("|")[2].strip() for row in table.splitlines() if row.startswith("| ")][1:]
    assert len(rows) <= 5
    for figure in rows:
        assert figure.rstrip("x") in results, figure


@pytest.mark.parametrize(("page", "folder", "count"), [("howto/openmp.md", ".", 4), ("cuda.md", "cuda", 2)])
def test_the_files_of_a_page_are_those_of_the_tutorial(page, folder, count) -> None:
    text = (PROJECT / "docs" / page).read_text()
    shown = dict(re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE))
    assert len(shown) == count
    for name, content in shown.items():
        assert content == (PROJECT / "tutorials" / folder / name).read_text(), name
