"""What notebooks show: tables and pictures in which every text is escaped."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import tunewright as tw
from tunewright import Config
from tunewright.model.decision import Decision, Evidence, Finalist, Gain, Tier
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.report import trial_table
from tunewright.report.notebook import MAX_BARS, MAX_ROWS, TrialTable, picture
from tunewright.testing.keys import DECISION, KEY, other_key

EVIL = "<script>alert('x')</script>"
IMAGE = '"><img src=x onerror=alert(1)>'


def parsed(html: str) -> ET.Element:
    """The HTML as a tree; it is written as XML, so that a text which breaks out of its element is found."""
    return ET.fromstring(html)


def tags(html: str) -> set[str]:
    return {element.tag.rpartition("}")[2] for element in parsed(html).iter()}


PLAIN = {"div", "table", "tr", "th", "td", "b", "p", "svg", "rect", "line", "text", "title"}


def test_a_decision_is_a_table_and_a_picture() -> None:
    html = DECISION._repr_html_()
    assert tags(html) <= PLAIN
    assert {"table", "svg", "rect"} <= tags(html)
    for part in ("gemm", "tile=64", "4.00x the default", "10 trials", "the default"):
        assert part in html


def test_no_text_of_a_store_becomes_markup() -> None:
    told = Evidence(
        1e-3, 1e-3, 1e-3, default_seconds=2e-3, notes=(EVIL, IMAGE), strategy=EVIL,
        ties=(Finalist(Config(tile=IMAGE), 1e-3, 1e-3, 1e-3), Finalist(Config({EVIL: EVIL}), 1e-3, 1e-3, 1e-3)),
    )  # fmt: skip
    for kernel in (EVIL, IMAGE):
        html = Decision(other_key(kernel=kernel), Config({EVIL: IMAGE}), told)._repr_html_()
        assert tags(html) <= PLAIN
        assert "<script" not in html
        assert "<img" not in html
        assert not any(name.startswith("on") for element in parsed(html).iter() for name in element.attrib)


def test_a_kernel_called_script_is_shown_as_text() -> None:
    session = tw.Session(store="memory:", mode="off")
    kernel = tw.tune(tw.Space(tw.Knob("step", [EVIL])), name=EVIL, session=session)(lambda x, *, step: x)
    kernel(np.ones(2))
    html = kernel._repr_html_()
    assert tags(html) <= PLAIN
    assert "<script" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1e300])
def test_impossible_times_are_left_out_of_the_picture(odd) -> None:
    told = Evidence(odd, odd, odd, default_seconds=odd, over_default=Gain(odd, odd, odd))
    html = Decision(KEY, Config(tile=1), told)._repr_html_()
    numbers = [value for element in parsed(html).iter() for value in element.attrib.values()]
    assert not {"nan", "inf", "-inf"} & {value.strip() for value in numbers}
    parsed(picture([("a", 1.0, odd, odd, "red"), ("b", odd, 1.0, 1.0, "red")]) or "<p/>")


def test_bars_are_as_long_as_times_and_few() -> None:
    ties = tuple(Finalist(Config(tile=i), 1e-3, 1e-3, 1e-3) for i in range(50))
    told = Evidence(1e-3, 0.9e-3, 1.1e-3, default_seconds=4e-3, ties=ties)
    bars = [e for e in parsed(Decision(KEY, Config(tile=1), told)._repr_html_()).iter() if e.tag.endswith("rect")]
    assert len(bars) == MAX_BARS
    assert float(bars[-1].get("width")) == pytest.approx(4 * float(bars[0].get("width")), abs=0.5)


def test_decisions_without_evidence_and_other_tiers_are_shown() -> None:
    assert "nothing is decided" in Decision(KEY, Config(tile=1), tier=Tier.DEFAULT)._repr_html_()
    assert "nearest shape" in DECISION.replace(tier=Tier.NEAREST)._repr_html_()


TRIALS = [
    Trial(Config(tile=1, seconds=5), Timing((1e-3,)), 0.5, 0.25, at=100.0),
    Trial(Config(tile=2, seconds=5), Failure(Stage.TIME, Kind.CRASHED, EVIL), 0.5, 0.0, at=101.0),
]


def test_trials_are_a_frame_in_the_order_they_were_made() -> None:
    pytest.importorskip("pandas")
    frame = trial_table.make(TRIALS)
    assert list(frame.columns) == ["knob_seconds", "tile", *trial_table.COLUMNS]
    assert list(frame["outcome"]) == ["ok", "crashed"]
    assert frame["seconds"][0] == 1e-3
    assert np.isnan(frame["seconds"][1])
    assert list(trial_table.make([]).columns) == list(trial_table.COLUMNS)


def test_without_pandas_trials_are_dictionaries_that_can_be_read(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    rows = trial_table.make(TRIALS)
    assert isinstance(rows, list)
    assert rows[0]["tile"] == 1
    assert rows[1]["outcome"] == "crashed"
    assert repr(rows).splitlines()[0].split() == ["knob_seconds", "tile", *trial_table.COLUMNS]
    assert "<script" not in rows._repr_html_()
    many = TrialTable(rows * MAX_ROWS)
    assert f"and {MAX_ROWS} more" in repr(many)
    assert repr(TrialTable()) == "no trials"
