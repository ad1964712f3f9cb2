from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from tunewright.errors import PluginError
from tunewright.laboratory.contenders import Contender
from tunewright.laboratory.replays import Terms, jobs, perform, replay
from tunewright.strategies.exhaustive import Exhaustive

GREEDY = str(Path(__file__).parent / "greedy.py")


class Listening(Exhaustive):
    """Notes in which order it was asked and told."""

    def __init__(self, space, rng):
        super().__init__(space, rng)
        self.heard = ""

    def ask(self, count):
        self.heard += "a" * count
        return super().ask(count)

    def tell(self, trials):
        self.heard += "t" * len(trials)


def test_rows_come_in_the_order_proposed_and_failures_count(recorded) -> None:
    table = recorded().load()
    rows, cpu = replay(table, Exhaustive(table.space, np.random.default_rng(0)), budget=200)
    assert [table.trials[row].config for row in rows] == list(table.space)
    assert len(cpu) == len(rows) == 24
    assert np.isnan(table.seconds[rows]).any()


def test_a_batch_is_asked_for_whole_before_it_is_told(recorded) -> None:
    table = recorded().load()
    strategy = Listening(table.space, np.random.default_rng(0))
    rows, cpu = replay(table, strategy, budget=10, batch=4)
    assert strategy.heard == "aaaatttt" * 2 + "aatt"
    assert len(rows) == len(cpu) == 10


def test_a_trace_says_what_was_tried_and_what_it_cost(recorded) -> None:
    (job,) = jobs([recorded()], [Contender("random")], [3], Terms(9))
    trace, again = perform(job), perform(job)
    table = recorded().load()
    assert trace.rows == again.rows
    assert len(set(trace.rows)) == 9
    assert trace.costs == tuple(table.costs[list(trace.rows)])
    assert [s for s in trace.seconds if s is not None] == [
        s for s in table.seconds[list(trace.rows)] if not np.isnan(s)
    ]
    assert (trace.table, trace.kernel, trace.optimum) == ("toy-A", "toy", table.optimum)
    (other,) = jobs([recorded()], [Contender("random")], [4], Terms(9))
    assert perform(other).rows != trace.rows


def test_somebody_elses_strategy_is_found_by_entry_point(recorded, monkeypatch) -> None:
    real = metadata.entry_points

    def extended(**wanted):
        mine = metadata.EntryPoint("greedy", "greedy:Greedy", "tunewright.strategies")
        return metadata.EntryPoints([*real(**wanted), mine])

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(metadata, "entry_points", extended)
    wanted = jobs([recorded()], [Contender("greedy"), Contender("random")], [0], Terms(12))
    greedy, random = map(perform, wanted)
    assert greedy.stamp.strategy == "greedy"
    assert len(greedy.rows) == len(random.rows) == 12


def test_settings_reach_the_strategy_and_its_stamp(recorded) -> None:
    plain, set_ = (
        perform(jobs([recorded()], [Contender(f"{GREEDY}:Greedy", settings)], [0], Terms(5))[0])
        for settings in ({}, {"first": 7})
    )
    assert plain.rows[0] != set_.rows[0]
    assert set_.stamp.settings == {"first": 7}
    assert plain.stamp != set_.stamp


def test_a_prior_is_drawn_from_the_sources_and_never_from_the_target(recorded) -> None:
    target, source = recorded("toy-A"), recorded("toy-B")
    contender = Contender(f"{GREEDY}:Greedy")
    (cold,) = jobs([target], [contender], [0], Terms(5))
    (warm,) = jobs([target], [contender], [0], Terms(5, drawn=24), {target: [source]})
    first = perform(warm)
    assert first.stamp.sources == (source.digest,)
    assert first.seconds[0] == first.optimum  # the same kernel there: its best is the best here
    assert perform(cold).seconds[0] != first.optimum


@pytest.mark.parametrize(
    ("name", "said"),
    [("Stutterer", "proposed before"), ("Wanderer", "not in the space"), ("Broken", "raised ZeroDivisionError")],
)
def test_a_strategy_that_breaks_its_promise_is_named(recorded, name, said) -> None:
    (job,) = jobs([recorded()], [Contender(f"{GREEDY}:{name}")], [0], Terms(5))
    with pytest.raises(PluginError, match=said):
        perform(job)


def test_a_strategy_that_is_not_there_is_explained(tmp_path) -> None:
    with pytest.raises(PluginError, match=r"installed: .*exhaustive.*random"):
        Contender("nobody").load()
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(PluginError, match="raised ZeroDivisionError"):
        Contender(f"{tmp_path}/bad.py:Any").load()


def test_the_version_follows_the_source_and_what_it_imports(tmp_path, monkeypatch) -> None:
    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "search.py").write_text("from theirs import part\nclass Search: pass\n")
    (package / "part.py").write_text("x = 1\n")
    (package / "stranger.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    contender = Contender("theirs.search:Search")
    before = contender.version
    (package / "stranger.py").write_text("x = 2\n")
    assert contender.version == before
    (package / "part.py").write_text("x = 2\n")
    assert contender.version != before
