"""Pictures of races whose truth is known."""

import importlib.util
from math import log

import numpy as np
import pytest

from tunewright.errors import PluginError, SettingsError
from tunewright.measure import race
from tunewright.measure.race import Race, RaceOptions, Standing
from tunewright.report import race_plot
from tunewright.report.race_plot import RatioScale


def raced(truth, noise=0.01, **terms):
    rng = np.random.default_rng(0)
    visits = [lambda seconds=seconds: seconds * np.exp(rng.normal(0, noise)) for seconds in truth]
    return race.run_race(visits, RaceOptions(**terms))


MIXED = [1.2e-3, 1e-3, 5e-3, 1.001e-3]
NAMES = ["slower", "first", "far", "near"]


def test_tracks_stand_by_place_and_leave_where_they_left() -> None:
    found = raced(MIXED)
    tracks = race_plot.make_tracks(found, NAMES)
    assert [track.name for track in tracks][2:] == ["slower", "far"]
    assert [track.ties for track in tracks] == [True, True, False, False]
    assert [track.leads for track in tracks] == [True, False, False, False]
    assert len({track.color for track in tracks}) == 4
    far = tracks[3]
    assert len(far.ratios) == len(far.centers) == far.standing.left
    assert far.centers[-1] == pytest.approx(far.standing.ratio)
    assert tracks[0].ratios == pytest.approx([1.0] * len(found.standings[found.leader].samples))


def test_ratios_are_paired_by_round() -> None:
    leader, other = Standing((1.0, 2.0, 4.0), 1.0, 1.0, 1.0), Standing((2.0, 6.0), 2.4, 1e-9, 1e9, left=2)
    found = Race(0, (leader, other), 0.01, True)
    assert race_plot.make_tracks(found, "ab")[1].ratios == pytest.approx([2.0, 3.0])
    # Not the median of its own two samples: it has not met the third round.
    assert race_plot.contestant_seconds(found, 1) == pytest.approx(2.0 * 2.4)
    assert not race_plot.has_interval(other)
    assert race_plot.has_interval(leader)


def test_of_many_only_those_that_tie_have_a_colour() -> None:
    tracks = race_plot.make_tracks(raced([1e-3] * 4 + [2e-3] * 16), [f"c{i}" for i in range(20)])
    assert {track.color for track in tracks if not track.ties} == {race_plot.GREY}
    assert race_plot.GREY not in {track.color for track in tracks if track.ties}


def test_the_scale_is_even_handed_and_its_marks_can_be_read() -> None:
    scale = RatioScale(1.01)
    ratios = [0.01, 0.5, 0.99, 1.0, 1.001, 1.01, 1.5, 100.0]
    places = [scale(ratio) for ratio in ratios]
    assert places == sorted(places)
    assert scale(1.0) == 0
    assert scale(1 / 3) == pytest.approx(-scale(3))
    # Small differences keep their proportion, large ones are squeezed.
    assert scale(1.004) == pytest.approx(2 * scale(1.002), rel=0.1)
    assert scale(100.0) < 3 * scale(1.5) < 3 * 100 * log(1.5)
    for low, high in ((-1.0, 1.0), (-1.0, 8.0), (-8.0, 8.0)):
        marks = scale.marks(low, high)
        assert marks[0.0] == "1x"
        assert 3 <= len(marks) <= race_plot.MAX_TICKS + 1
        assert np.diff(sorted(marks)).min() >= (high - low) / race_plot.MAX_TICKS
    assert scale.marks(-1.0, 1.0)[scale(1.01)] == "+1 %"
    assert scale.marks(-1.0, 6.0)[scale(3)] == "3x"
    assert RatioScale(1.001).marks(-1.0, 1.0)[RatioScale(1.001)(0.999)] == "-0.1 %"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
def test_a_race_is_drawn(tmp_path, suffix) -> None:
    path = tmp_path / f"out{suffix}"
    race_plot.draw(path, raced(MIXED), NAMES)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    "found",
    [
        raced([1e-3, 1e-3], rounds=1),
        raced([1e-3, 4e-3], rounds=2),
        raced([1e-3], rounds=5),
        raced(1e-3 * np.exp(np.linspace(0, 3, 40))),
        raced([1e-3, 1e-3], noise=1.0, rounds=8),
    ],
    ids=["one round", "a gross loser", "alone", "forty", "very noisy"],
)
@pytest.mark.slow
def test_any_race_can_be_drawn(tmp_path, found) -> None:
    race_plot.draw(tmp_path / "out.svg", found, [f"c{i}" for i in range(len(found.standings))])
    assert (tmp_path / "out.svg").stat().st_size > 10_000


def test_names_are_text_and_nothing_else(tmp_path) -> None:
    names = ["sh -c 'echo $A$B'", "<b>bold</b> $x^{2$"]
    for suffix in (".png", ".html"):
        race_plot.draw(tmp_path / f"out{suffix}", raced([1e-3, 2e-3]), names)
    page = (tmp_path / "out.html").read_text()
    assert "<b>bold</b>" not in page
    assert "\\u003cb\\u003ebold" not in page
    assert "bold" in page


def test_what_cannot_be_drawn_is_said_before(tmp_path, monkeypatch) -> None:
    with pytest.raises(SettingsError, match=r"one of the endings \.png, \.svg, \.html"):
        race_plot.require_drawable(tmp_path / "out.jpeg")
    with pytest.raises(SettingsError, match="no folder"):
        race_plot.require_drawable(tmp_path / "nowhere" / "out.png")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(race_plot, "find_spec", importlib.util.find_spec)
    with pytest.raises(PluginError, match=r"needs plotly; pip install 'tunewright\[plot\]'"):
        race_plot.require_drawable(tmp_path / "out.html")
