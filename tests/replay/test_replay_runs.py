from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from tunewright.errors import PluginError
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.runs import ReplayOptions, make_jobs, replay, run_job
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
    (job,) = make_jobs([recorded()], [ReplayedStrategy("random")], [3], ReplayOptions(9))
    trace, again = run_job(job), run_job(job)
    table = recorded().load()
    assert trace.rows == again.rows
    assert len(set(trace.rows)) == 9
    assert trace.costs == tuple(table.costs[list(trace.rows)])
    assert [s for s in trace.seconds if s is not None] == [
        s for s in table.seconds[list(trace.rows)] if not np.isnan(s)
    ]
    assert (trace.table, trace.kernel, trace.optimum) == ("toy-A", "toy", table.optimum)
    (other,) = make_jobs([recorded()], [ReplayedStrategy("random")], [4], ReplayOptions(9))
    assert run_job(other).rows != trace.rows


def test_somebody_elses_strategy_is_found_by_entry_point(recorded, monkeypatch) -> None:
    real = metadata.entry_points

    def extended(**wanted):
        mine = metadata.EntryPoint("greedy", "greedy:Greedy", "tunewright.strategies")
        return metadata.EntryPoints([*real(**wanted), mine])

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(metadata, "entry_points", extended)
    wanted = make_jobs([recorded()], [ReplayedStrategy("greedy"), ReplayedStrategy("random")], [0], ReplayOptions(12))
    greedy, random = map(run_job, wanted)
    assert greedy.key.strategy == "greedy"
    assert len(greedy.rows) == len(random.rows) == 12


def test_settings_reach_the_strategy_and_its_stamp(recorded) -> None:
    plain, set_ = (
        run_job(make_jobs([recorded()], [ReplayedStrategy(f"{GREEDY}:Greedy", settings)], [0], ReplayOptions(5))[0])
        for settings in ({}, {"first": 7})
    )
    assert plain.rows[0] != set_.rows[0]
    assert set_.key.settings == {"first": 7}
    assert plain.key != set_.key


def test_a_prior_is_drawn_from_the_sources_and_never_from_the_target(recorded) -> None:
    target, source = recorded("toy-A"), recorded("toy-B")
    strategy = ReplayedStrategy(f"{GREEDY}:Greedy")
    (cold,) = make_jobs([target], [strategy], [0], ReplayOptions(5))
    (warm,) = make_jobs([target], [strategy], [0], ReplayOptions(5, source_trials=24), {target: [source]})
    first = run_job(warm)
    assert first.key.sources == (source.digest,)
    assert first.seconds[0] == first.optimum  # the same kernel there: its best is the best here
    assert run_job(cold).seconds[0] != first.optimum


@pytest.mark.parametrize(
    ("name", "progress"),
    [("Stutterer", "proposed before"), ("Wanderer", "not in the space"), ("Broken", "raised ZeroDivisionError")],
)
def test_a_strategy_that_breaks_its_promise_is_named(recorded, name, progress) -> None:
    (job,) = make_jobs([recorded()], [ReplayedStrategy(f"{GREEDY}:{name}")], [0], ReplayOptions(5))
    with pytest.raises(PluginError, match=progress):
        run_job(job)


def test_a_strategy_that_is_not_there_is_explained(tmp_path) -> None:
    with pytest.raises(PluginError, match=r"installed: .*exhaustive.*random"):
        ReplayedStrategy("nobody").load()
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(PluginError, match="raised ZeroDivisionError"):
        ReplayedStrategy(f"{tmp_path}/bad.py:Any").load()


def test_the_version_follows_the_source_and_what_it_imports(tmp_path, monkeypatch) -> None:
    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "search.py").write_text("from theirs import part\nclass Search: pass\n")
    (package / "part.py").write_text("x = 1\n")
    (package / "stranger.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    strategy = ReplayedStrategy("theirs.search:Search")
    before = strategy.version
    (package / "stranger.py").write_text("x = 2\n")
    assert strategy.version == before
    (package / "part.py").write_text("x = 2\n")
    assert strategy.version != before
