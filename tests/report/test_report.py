import io
import sys

import pytest

from tunewright import Config, Knob, Space
from tunewright.errors import SettingsError
from tunewright.model.decision import Problem
from tunewright.model.event import DecisionMade, SearchStarted, TrialFinished
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.report import formatting, plots
from tunewright.report.progress import Progress, SearchStatus, verdict
from tunewright.testing.keys import DECISION, KEY, other_decision

SPACE = Space(Knob("tile", [8, 16, 32]), Knob("order", ["ij", "ji"]), Knob("fixed", [1]))
TRIALS = [
    Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "no") if i == 2 else Timing((1e-3 * (7 - i),)))
    for i, config in enumerate(SPACE)
]
CHOSEN = other_decision(config=SPACE[5])


@pytest.mark.parametrize(
    ("value", "said"), [(1.5, "1.5 s"), (0.00191, "1.91 ms"), (2.5e-6, "2.5 us"), (3e-8, "30 ns"), (0.0, "0 ns")]
)
def test_times_are_said_as_people_say_them(value, said) -> None:
    assert formatting.seconds(value) == said


def test_other_words() -> None:
    assert (formatting.clock(41), formatting.clock(185), formatting.clock(7300)) == ("41 s", "3 m 05 s", "2 h 01 m")
    assert (formatting.ratio(3.4), formatting.ratio(120)) == ("3.40x", "120x")
    assert (formatting.counted(1, "trial"), formatting.counted(2000, "trial")) == ("1 trial", "2,000 trials")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
@pytest.mark.slow
def test_a_search_is_drawn(tmp_path, suffix) -> None:
    path = tmp_path / f"out{suffix}"
    plots.draw(path, KEY, TRIALS, CHOSEN)
    assert path.stat().st_size > 5000
    plots.draw(path, KEY, TRIALS[:1], None)


def test_the_heat_map_holds_the_best_of_each_cell() -> None:
    heat = plots.HeatMap.of(TRIALS, ("tile", "order"), CHOSEN, "milliseconds")
    assert heat is not None
    assert (heat.xs, heat.ys) == ([8, 16, 32], ["ij", "ji"])
    for trial in TRIALS:
        x, y = heat.xs.index(trial.config["tile"]), heat.ys.index(trial.config["order"])
        assert heat.cells[y][x] == pytest.approx(trial.seconds * 1e3)
    assert heat.chosen == (heat.xs.index(CHOSEN.config["tile"]), heat.ys.index(CHOSEN.config["order"]))
    with pytest.raises(SettingsError, match="these were: order, tile"):
        plots.HeatMap.of(TRIALS, ("fixed", None), None, "milliseconds")


def test_convergence_is_the_best_so_far() -> None:
    found = plots.Convergence.of(TRIALS, 8e-3, "milliseconds")
    assert found.best == pytest.approx([7, 6, 6, 4, 3, 2])
    assert found.times[2] is None
    assert found.default == 8


def started():
    return SearchStarted(Problem(KEY, SPACE, SPACE[0]), "random", 6, None)


def test_a_standing_says_best_default_failures_and_time_left() -> None:
    standing = SearchStatus(started())
    for trial in TRIALS:
        standing.add(TrialFinished(trial))
    line = standing.line()
    for part in ("6 trials", "best 2 ms (3.50x the default)", "failed 1 (1 refused)", "0 s left"):
        assert part in line
    assert standing.share == 1


def test_progress_is_silent_where_nobody_looks(capsys) -> None:
    progress = Progress()
    for event in (started(), TrialFinished(TRIALS[0]), DecisionMade(DECISION)):
        progress(event)
    assert capsys.readouterr().err == ""


def test_progress_speaks_plainly_when_piped(capsys) -> None:
    progress = Progress(speak=True)
    for event in (started(), TrialFinished(TRIALS[0]), DecisionMade(DECISION)):
        progress(event)
    said = capsys.readouterr().err
    assert "1 trial" in said
    assert "decided" in said
    assert "\x1b" not in said


def test_progress_draws_on_a_terminal(monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    progress = Progress()
    progress(started())
    for trial in TRIALS:
        progress(TrialFinished(trial))
    progress(DecisionMade(CHOSEN))
    assert "best 2 ms" in screen.getvalue()
    assert "decided" in screen.getvalue()


def test_a_verdict_without_evidence_is_the_default() -> None:
    assert "there is no decision" in verdict(other_decision(evidence=None))
    assert "4.00x the default" in verdict(DECISION)
    assert "1 other within noise" in verdict(DECISION)
    assert verdict(other_decision(config=Config(tile=1))).startswith("tile=1")
