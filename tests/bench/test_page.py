"""A run as a page and as pictures: every cell is there, failures too, and what others wrote is not obeyed."""

import re

import msgspec
import pytest

from tunewright.bench import page, pictures
from tunewright.bench.calls import Call
from tunewright.bench.metrics import METRICS, figures, flat, rows
from tunewright.bench.run import SCHEMA, Bout, Cell, Mishap, Run
from tunewright.bench.work import Roof, Work


def bout(size, *cells):
    call = Call("gemm", dict.fromkeys("MKN", size))
    return Bout(call, cells, Work(2.0 * size**3, 12 * size**2), "thread", "dense", ((1.0,) * 8,) * 3)


def steady(name, seconds, **more):
    """A cell that takes nearly the same in each of three sittings."""
    return Cell(name, tuple((seconds, seconds * 1.01, seconds, seconds * 1.02) * 2 for _ in range(3)), **more)


CRASH = Mishap("crashed", "verify", "killed by SIGSEGV: <script>alert(1)</script>")
RUN = Run(
    SCHEMA, "0", 0.0, "a machine", {"python": "3"}, 1, True, Roof(((1 << 30, 1e9),), {"float32": 1e10}),
    (
        bout(64, steady("numpy", 1e-3, error=1e-7), steady("c", 5e-4, config={"MR": 4}), Cell("bad", mishap=CRASH)),
        bout(128, steady("numpy", 8e-3, error=1e-7), steady("c", 5e-3, config={"MR": 4}), Cell("bad", mishap=CRASH)),
    ),
)  # fmt: skip


def test_numbers_of_a_cell_follow_from_its_samples() -> None:
    found = figures(RUN, RUN.bouts[0], RUN.bouts[0].cell("c"), "numpy")
    assert found.latency == pytest.approx(5e-4, rel=0.01)
    assert found.speedup == pytest.approx(2.0, rel=0.001)
    assert found.speedup_low <= found.speedup <= found.speedup_high
    assert found.tflops == pytest.approx(2 * 64**3 / found.latency / 1e12)
    assert found.roofline == pytest.approx(2 * 64**3 / 1e10 / found.latency)
    assert figures(RUN, RUN.bouts[0], RUN.bouts[0].cell("numpy"), "numpy").speedup == 1.0
    assert figures(RUN, RUN.bouts[0], RUN.bouts[0].cell("bad"), "numpy").latency is None


def test_a_row_says_all_metrics_or_the_mishap() -> None:
    table = {(row[1], row[2]): row[3:] for row in rows(RUN, tuple(METRICS), "numpy")}
    fast, crashed = table["64x64x64 float32", "c"], table["64x64x64 float32", "bad"]
    assert fast[0].startswith("50") and "us" in fast[0]  # noqa: PT018 - one statement about one text
    assert fast[-2:] == ["MR=4", ""]
    assert set(crashed[:-1]) == {"-"}
    assert crashed[-1].startswith("crashed (verify): killed by SIGSEGV")
    assert {tuple(row) for row in map(dict.keys, flat(RUN, "numpy"))} == {tuple(flat(RUN, "numpy")[0])}


def test_the_page_has_every_cell_and_escapes_what_implementations_said() -> None:
    made = page.page(msgspec.structs.replace(RUN, complaints=("it was <b>loud</b>",)), "numpy")
    assert made.count("<tr") >= 1 + 6
    assert "<script>" not in made
    assert "&lt;script&gt;" in made
    assert "it was &lt;b&gt;loud" in made
    assert len(re.findall('<tr class="best"><td>gemm<td>[^<]*<td>c<', made)) == 2
    assert "1.0 GB/s, float32 10 GFLOP/s" in made


def test_pictures_are_drawn_and_put_into_the_page(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    drawn = pictures.draw(RUN, "numpy", tmp_path / "plots")
    assert [path.stem for path in drawn] == ["latency", "roofline", "heat"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert page.page(RUN, "numpy").count("<svg") == 3


def test_a_run_in_which_nothing_worked_still_has_a_page() -> None:
    lost = msgspec.structs.replace(RUN, bouts=(bout(64, Cell("bad", mishap=CRASH)),))
    assert "crashed" in page.page(lost, "numpy")
    assert [row[-1][:7] for row in rows(lost, ("latency",), "numpy")] == ["crashed"]
