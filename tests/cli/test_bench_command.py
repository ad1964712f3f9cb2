"""`tunewright bench`, `bench compare` and `record`, as a person types them."""

import csv
import json
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tunewright.bench.results import load_run, save_run
from tunewright.cli.main import command

TROUBLED = f"{Path(__file__).parent.parent / 'bench' / 'troubled.py'}:implementations"
SHORT = ["--repeats", "2", "--rounds", "8", "--seconds", "120", "--deadline", "120"]


def typed(*words):
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run in a folder, with a page and a sheet, and what was printed."""
    folder = tmp_path_factory.mktemp("runs")
    # Arguments in no particular order: the operator last, an option before and after everything.
    words = ["--json", *SHORT, "--impl", "good,raising", "--save", folder / "a", "--with", TROUBLED,
             "--shapes", "16x64", "--csv", folder / "a.csv", "--html", folder / "a.html",
             "--baseline", "good", "reduce"]  # fmt: skip
    result = typed("bench", *words)
    assert result.exit_code == 0, result.output
    return folder, json.loads(result.stdout)


@pytest.mark.slow
def test_a_bench_tells_every_cell_and_keeps_what_was_asked_for(saved) -> None:
    folder, said = saved
    good, raising = said["cells"]
    assert (good["implementation"], good["speedup"], good["mishap"]) == ("good", 1.0, "")
    assert good["latency"] > 0
    assert (raising["mishap"], raising["latency"]) == ("raised", None)
    assert said["roof"]["peaks"]["float32"] > 1e6
    rows = list(csv.DictReader((folder / "a.csv").read_text().splitlines()))
    assert [row["implementation"] for row in rows] == ["good", "raising"]
    assert "no such instruction" in (folder / "a.html").read_text()
    assert [len(sitting) for sitting in load_run(folder / "a").comparisons[0].cells[0].samples] == [8, 8]
    assert len(load_run(folder / "a").comparisons[0].anchors) == 2


@pytest.mark.slow
def test_a_run_compared_with_itself_has_not_changed_wherever_the_word_stands(saved) -> None:
    folder, _ = saved
    for words in (["compare", folder / "a", folder / "a"], [folder / "a", folder / "a", "compare"]):
        result = typed("bench", *words)
        assert result.exit_code == 0, result.output
        assert "failing: raised" in result.output
        assert "no change beyond" in result.output


def test_something_slower_ends_with_status_1_and_wrong_use_with_2(saved) -> None:
    folder, _ = saved
    run = load_run(folder / "a")
    (bout,) = run.comparisons
    good, raising = bout.cells
    base = tuple((1.0, 1.01, 0.99, 1.0, 1.01, 0.99) for _ in range(4))
    cells = [
        msgspec.structs.replace(good, samples=tuple(tuple(factor * one for one in own) for own in base))
        for factor in (1.0, 1.2)
    ]
    for name, cell in zip(("before", "after"), cells, strict=True):
        changed = msgspec.structs.replace(bout, cells=(cell, raising), anchors=base)
        save_run(msgspec.structs.replace(run, comparisons=(changed,)), folder / name)
    slower = typed("bench", "--json", "compare", folder / "before", folder / "after")
    assert slower.exit_code == 1
    found = json.loads(slower.stdout)
    assert found["regressed"] is True
    assert found["changes"][0]["verdict"] == "slower"
    assert found["changes"][0]["ratio"] == pytest.approx(1.2)
    faster = typed("bench", "compare", folder / "after", folder / "before")
    assert faster.exit_code == 0
    assert "faster" in faster.output
    assert typed("bench", "compare", folder / "before").exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--op", "nonsense"], "no operator 'nonsense'; there are: "),
        (["--metrics", "beauty"], "no metric 'beauty'; there are: latency"),
        (["--op", "reduce", "--impl", "nobody", "--shapes", "8x8"], "no implementation nobody; reduce has numpy"),
        (["--op", "gemm", "--shapes", "8x8"], "fit no operator named"),
        (["--live", "compare", "nowhere", "nowhere"], "no build at nowhere"),
    ],
)
def test_what_cannot_be_done_says_what_there_is(words, said) -> None:
    result = typed("bench", *words)
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_the_table_names_the_mishap_and_the_roof(saved, tmp_path) -> None:
    result = typed("bench", "--with", TROUBLED, "--impl", "good", "--impl", "wrong", "--shapes", "16x64", "reduce",
                   "--repeats", "1", "--rounds", "6", "--metrics", "latency,roofline")  # fmt: skip
    assert result.exit_code == 0, result.output
    heads, good, wrong, *rest = result.output.splitlines()
    assert heads.split() == ["operator", "call", "implementation", "latency", "roofline", "failure"]
    assert good.rstrip().endswith("%")
    assert "wrong (verify): the result is wrong in" in wrong
    assert any("GFLOP/s" in line for line in rest)


def test_a_program_is_recorded_for_the_next_bench(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = tmp_path / "app.py"
    app.write_text(
        "import numpy as np, tunewright as tw\n"
        "from tunewright.operators import dispatch\n"
        "total = dispatch('reduce', only='numpy', session=tw.Session(mode='off'))\n"
        "total(np.ones((4, 8), np.float32))\n"
        "raise SystemExit(5)\n"
    )
    result = typed("bench", "record", "--out", "seen.toml", "--", sys.executable, "app.py", "--json")
    assert result.exit_code == 5
    assert "1 call of operators (1 kinds)" in result.output
    assert 'operator = "reduce"' in (tmp_path / "seen.toml").read_text()
    assert typed("bench", "record", "--", "no-such-program").exit_code == 2
