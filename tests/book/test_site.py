"""The book is built without a warning, asks nobody for anything, and shows everything there is."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
ASKS = re.compile(r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="(?:https?:)?//([^"/]+)')


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.mark.slow
def test_every_page_of_docs_is_a_page_of_the_site(site) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).exists(), page


@pytest.mark.slow
def test_no_page_asks_another_server_for_anything(site) -> None:
    for page in site.rglob("*.html"):
        assert not (hosts := set(ASKS.findall(page.read_text()))), (page.name, hosts)


@pytest.mark.slow
def test_files_outside_the_book_are_shown_in_it_and_commands_are_rendered(site) -> None:
    assert "tutorials-5_ship-py" in (site / "howto" / "ship.html").read_text()
    assert "class Machine" in re.sub(r"<[^>]+>", "", (site / "shown" / "tutorials-5_ship-py.html").read_text())
    commands = (site / "reference" / "commands.html").read_text()
    assert "tunewright bundle verify" in commands
    assert "Examples:" in commands


@pytest.mark.slow
def test_every_example_of_the_gallery_hangs_in_it(site) -> None:
    page = (site / "gallery.html").read_text()
    for example in (PROJECT / "gallery").glob("[0-9]*.py"):
        assert f"gallery/{example.stem}.svg" in page


def test_examples_of_the_gallery_are_short_and_have_a_small_picture_each() -> None:
    examples = sorted((PROJECT / "gallery").glob("[0-9]*.py"))
    assert len(examples) >= 10
    for example in examples:
        picture = DOCS / "gallery" / f"{example.stem}.svg"
        assert example.read_text().count("\n") < 60, example
        assert 1000 < picture.stat().st_size < 60_000, picture
        assert not re.search(r"/(work|root|home|tmp)/", picture.read_text()), picture


def test_drawings_are_those_that_the_script_draws() -> None:
    from pictures import PICTURES

    for name, draw in PICTURES.items():
        assert (DOCS / "pictures" / f"{name}.svg").read_text() == str(draw()), name


def test_every_page_has_a_place_in_the_navigation(tmp_path) -> None:
    from hooks import on_config

    (tmp_path / "notes").mkdir()
    for name in ("index.md", "stray.md", "notes/1.md", "notes/2.md"):
        (tmp_path / name).write_text("# A page\n")
    config = SimpleNamespace(docs_dir=str(tmp_path), nav=[{"Start": ["index.md", {"Notes": "notes/"}]}])
    start = ["index.md", {"Notes": ["notes/1.md", "notes/2.md"]}]
    assert on_config(config).nav == [{"Start": start}, {"More": ["stray.md"]}]
