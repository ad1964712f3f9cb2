"""A run as a page and as pictures: every cell is there, failures too, and what others wrote is not obeyed."""

import re

import msgspec
import pytest

from tunewright.bench import page, plots
from tunewright.bench.calls import OperatorCall
from tunewright.bench.metrics import METRICS, cell_metrics, flat_rows, metric_rows
from tunewright.bench.results import SCHEMA, BenchRun, CallComparison, CandidateFailure, Cell
from tunewright.bench.work import CallWork, MachineRoofline


def compare(size, *cells):
    call = OperatorCall("gemm", dict.fromkeys("MKN", size))
    return CallComparison(call, cells, CallWork(2.0 * size**3, 12 * size**2), "thread", "dense", ((1.0,) * 8,) * 3)


def steady(name, seconds, **more):
    """A cell that takes nearly the same in each of three repeats."""
    return Cell(name, tuple((seconds, seconds * 1.01, seconds, seconds * 1.02) * 2 for _ in range(3)), **more)


CRASH = CandidateFailure("crashed", "verify", "killed by SIGSEGV: <script>alert(1)</script>")
BAD = Cell("bad", failure=CRASH)
RUN = BenchRun(
    SCHEMA, "0", 0.0, "a machine", {"python": "3"}, 1, True, MachineRoofline(((1 << 30, 1e9),), {"float32": 1e10}),
    (
        compare(64, steady("numpy", 1e-3, error=1e-7), steady("c", 5e-4, config={"MR": 4}), BAD),
        compare(128, steady("numpy", 8e-3, error=1e-7), steady("c", 5e-3, config={"MR": 4}), BAD),
    ),
)  # fmt: skip


def test_numbers_of_a_cell_follow_from_its_samples() -> None:
    found = cell_metrics(RUN, RUN.comparisons[0], RUN.comparisons[0].cell("c"), "numpy")
    assert found.latency == pytest.approx(5e-4, rel=0.01)
    assert found.speedup == pytest.approx(2.0, rel=0.001)
    assert found.speedup_low <= found.speedup <= found.speedup_high
    assert found.tflops == pytest.approx(2 * 64**3 / found.latency / 1e12)
    assert found.roofline == pytest.approx(2 * 64**3 / 1e10 / found.latency)
    assert cell_metrics(RUN, RUN.comparisons[0], RUN.comparisons[0].cell("numpy"), "numpy").speedup == 1.0
    assert cell_metrics(RUN, RUN.comparisons[0], RUN.comparisons[0].cell("bad"), "numpy").latency is None


def test_a_row_says_all_metrics_or_the_failure() -> None:
    table = {(row[1], row[2]): row[3:] for row in metric_rows(RUN, tuple(METRICS), "numpy")}
    fast, crashed = table["64x64x64 float32", "c"], table["64x64x64 float32", "bad"]
    assert fast[0].startswith("50") and "us" in fast[0]  # noqa: PT018 - one statement about one text
    assert fast[-2:] == ["MR=4", ""]
    assert set(crashed[:-1]) == {"-"}
    assert crashed[-1].startswith("crashed (verify): killed by SIGSEGV")
    assert {tuple(row) for row in map(dict.keys, flat_rows(RUN, "numpy"))} == {tuple(flat_rows(RUN, "numpy")[0])}


def test_the_page_has_every_cell_and_escapes_what_implementations_said() -> None:
    made = page.render_page(msgspec.structs.replace(RUN, complaints=("it was <b>loud</b>",)), "numpy")
    assert made.count("<tr") >= 1 + 6
    assert "<script>" not in made
    assert "&lt;script&gt;" in made
    assert "it was &lt;b&gt;loud" in made
    assert len(re.findall('<tr class="best"><td>gemm</td><td>[^<]*</td><td>c</td>', made)) == 2
    assert "1.0 GB/s, float32 10 GFLOP/s" in made


@pytest.mark.slow
def test_pictures_are_drawn_and_put_into_the_page(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    drawn = plots.save_plots(RUN, "numpy", tmp_path / "plots")
    assert [path.stem for path in drawn] == ["latency", "roofline", "heat"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert page.render_page(RUN, "numpy").count("<svg") == 3


def test_a_run_in_which_nothing_worked_still_has_a_page() -> None:
    lost = msgspec.structs.replace(RUN, comparisons=(compare(64, BAD),))
    assert "crashed" in page.render_page(lost, "numpy")
    assert [row[-1][:7] for row in metric_rows(lost, ("latency",), "numpy")] == ["crashed"]
