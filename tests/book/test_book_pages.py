"""What pages show is what happens: tagged Python runs and has types, transcripts are what commands say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import blocks, script, written
from transcript import follow, objection

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"

# `x: tw.In("N")` is no type to a type checker, which `Annotated[...]` would be; the short form is meant to be read.
CHECKER = """
[mypy]
check_untyped_defs = true
ignore_missing_imports = true
disable_error_code = valid-type
[mypy-torch.*,triton.*]
follow_imports = skip
"""


def tagged(*tags: str) -> list:
    pages = [page for page in sorted(DOCS.rglob("*.md")) if blocks(page, *tags)]
    assert pages
    return [pytest.param(page, id=page.relative_to(DOCS).as_posix()) for page in pages]


@pytest.mark.slow
@pytest.mark.parametrize("page", tagged("run"))
def test_python_tagged_as_runnable_runs(page, tmp_path) -> None:
    written(page, tmp_path)
    (tmp_path / "page.py").write_text(script(page, "run"))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", tagged("transcript"))
def test_commands_say_what_the_page_shows(page, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    if page.name == "cuda.md" and shutil.which("nvcc") is None:
        pytest.skip("nvcc of the CUDA toolkit is not installed")
    assert follow(page, tmp_path) == []


@pytest.mark.slow
def test_the_plugin_of_the_page_keeps_its_contract(tmp_path) -> None:
    written(DOCS / "howto" / "plugin.md", tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_coordinate.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.mark.slow
def test_python_on_the_pages_has_types_that_fit(tmp_path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix().replace("/", "_").replace("-", "_")
        place = tmp_path / f"page_{name}"
        if text := script(page, "run", "typed"):
            place.mkdir()
            (place / f"{name}_page.py").write_text(text)
        for one in blocks(page, "file"):
            if one.language == "python":
                place.mkdir(exist_ok=True)
                (place / f"{name}_{one.name}").write_text(one.text)
    files = sorted(map(str, tmp_path.rglob("*.py")))
    assert len(files) >= 5
    (tmp_path / "mypy.ini").write_text(CHECKER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", *files],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(PROJECT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("measured 0", "measured 23"),
        ("measured 23", "measured 0 or so"),
        ("decided  UNROLL=4", "failed  UNROLL=4"),
        ("a\n...\nb", "a\nc"),
        ("one line", "one line\nand another"),
        ("key 92e143b5ed differs", "key of another differs"),
    ],
)
def test_a_transcript_that_shows_something_else_is_objected_to(shown, said) -> None:
    assert objection(shown.splitlines(), said.splitlines())


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("measured 23", "measured 9"),
        ("y  UNROLL=16 opt=-O3", "y UNROLL=1 opt=-O3 -funroll-loops"),
        ("took 2.98 us", "took 3 ms"),
        ("a\n...\nb", "a\nx\ny\nb"),
        ("a\n...", "a"),
        ("saxpy · ...", "saxpy · Some CPU, 64 cores"),
        ("key 92e143b5ed differs", "key b8634811f5 differs"),
    ],
)
def test_what_differs_from_machine_to_machine_is_no_objection(shown, said) -> None:
    assert not objection(shown.splitlines(), said.splitlines())
