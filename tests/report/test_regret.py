from math import inf

import pytest

from tunewright.errors import SettingsError
from tunewright.report.regret import RegretCurve, RegretPlot, draw, markdown_table, spread_labels, summary_table

FIGURES = {
    "poor": {
        "r25": 0.5,
        "r50": 0.6,
        "e5": inf,
        "e1": inf,
        "s5": inf,
        "s1": inf,
        "within1": 0.0,
        "cpu_ms": 1,
        "runs": 4,
    },
    "good": {"r25": 0.8, "r50": 0.9, "e5": 7.0, "e1": 9.5, "s5": 75, "s1": 200, "within1": 1, "cpu_ms": 2.5, "runs": 4},
}


def picture(**changed):
    curves = [
        RegretCurve("a|b$", [1, 2, 3], [0.5, 0.1, 0.0], [0.4, 0.05, 0.0], [0.6, 0.2, 0.0]),
        RegretCurve("<two>", [1, 2, 3], [0.5, 0.2, 0.2], [0.4, 0.1, 0.1], [1.0, 0.3, 0.3]),
    ]
    return RegretPlot(curves, "a title", "evaluations", "2 spaces", **changed)


def test_a_table_ranks_strategies_and_leaves_open_what_was_not_reached() -> None:
    heads, body = summary_table(FIGURES)
    assert heads == ["strategy", "r25", "r50", "e5", "e1", "within 1 %", "CPU ms", "runs"]
    assert body[0] == ["good", "0.800", "0.900", "7", "9.5", "100%", "2.50", "4"]
    assert body[1][:5] == ["poor", "0.500", "0.600", "-", "-"]
    heads, body = summary_table(FIGURES, cost=True)
    assert dict(zip(heads, body[0], strict=True))["s1"] == "3 m 20 s"


def test_markdown_has_a_line_for_each_strategy_and_survives_bars() -> None:
    lines = markdown_table(["strategy", "r25"], [["a|b", "0.5"]]).splitlines()
    assert lines == ["| strategy | r25 |", "|---|---:|", r"| a\|b | 0.5 |"]


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_a_picture_is_drawn_in_every_form(tmp_path, suffix, logarithmic) -> None:
    path = tmp_path / f"regret.{suffix}"
    draw(path, picture(logarithmic=logarithmic))
    data = path.read_bytes()
    assert len(data) > 5_000
    if suffix == "html":
        assert b"&lt;two&gt;" in data


def test_an_ending_we_cannot_draw_is_refused(tmp_path) -> None:
    with pytest.raises(SettingsError, match="endings"):
        draw(tmp_path / "regret.gif", picture())


def test_labels_that_would_cover_each_other_move_apart() -> None:
    assert spread_labels([0.1, 0.11, 0.5], 0.05) == pytest.approx([0.1, 0.15, 0.5])
    assert spread_labels([-1.0, 0.0], 0.05) == [0.0, 0.05]
