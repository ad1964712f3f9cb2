import numpy as np
import pytest

from tunewright import Config, Knob, Space, Variant
from tunewright.backends.replay import Recording
from tunewright.errors import SettingsError, SpaceError
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.replay.tables import MIN_TRIALS, RecordedTable, RecordingFile, list_journals, list_recordings, space_of
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import KEY, other_key


def timed(config, seconds=1e-3):
    return Trial(config, Timing((seconds,)), 0.5, 0.25)


def test_a_table_has_a_row_for_each_config_with_time_and_cost(recorded) -> None:
    table = recorded().load()
    assert (table.name, table.kernel) == ("toy-A", "toy")
    assert len(table.rows) == len(table.trials) == table.space.size == 24
    for config, row in table.rows.items():
        trial = table.trials[row]
        assert trial.config == config
        assert table.costs[row] == trial.build_seconds + trial.run_seconds
        assert np.isnan(table.seconds[row]) if not trial.works else table.seconds[row] == trial.seconds
    assert np.isnan(table.seconds).sum() == 2
    assert table.optimum == pytest.approx(1.125e-3)


def test_a_space_is_cut_down_to_what_was_recorded() -> None:
    space = Space(*(Knob(name, range(10)) for name in "abcdef"))
    configs = space.sample(np.random.default_rng(0), 50)
    table = RecordedTable.of("part", Recording("k", "d", space, {config: timed(config) for config in configs}))
    assert set(table.space) == set(configs)


def test_a_space_with_variants_spans_exactly_what_it_was_made_of() -> None:
    space = Space(Knob("threads", [1, 2]), variants=[Variant("library"), Variant("own", Knob("tile", [8, 16, 32]))])
    configs = list(space)[:-2]
    assert set(space_of(configs)) == set(configs)


def test_a_recording_where_nothing_worked_is_refused() -> None:
    failed = Trial(Config(a=1), Failure(Stage.BUILD, Kind.REFUSED, "no"))
    with pytest.raises(SpaceError, match="no config works"):
        RecordedTable.of("bad", Recording("k", "d", Space(Knob("a", [1])), {failed.config: failed}))


def test_the_digest_tells_a_changed_recording_from_the_old(recorded) -> None:
    before = recorded().digest
    assert recorded().digest == before
    assert recorded(best_tile=4).digest != before


def test_folders_and_files_are_found_and_mistakes_explained(recorded, tmp_path) -> None:
    one, two = recorded("toy-A"), recorded("toy-B")
    assert list_recordings([tmp_path / "spaces"]) == [one, two]
    assert list_recordings([two.path]) == [two]
    with pytest.raises(SettingsError, match="--save"):
        list_recordings([tmp_path])
    with pytest.raises(SettingsError, match="no recording at"):
        list_recordings([tmp_path / "nowhere"])
    twin = recorded("toy-A", folder=tmp_path / "other")
    with pytest.raises(SettingsError, match="rename"):
        list_recordings([one.path, twin.path])
    two.path.with_suffix(".json").unlink()
    with pytest.raises(SettingsError, match=r"no toy-B.json beside it"):
        list_recordings([two.path])


def test_journals_with_enough_trials_become_tables(tmp_path) -> None:
    location = str(tmp_path / "store.sqlite")
    store, space = SqliteStore(location), Space(Knob("a", range(9)), Knob("b", range(9)))
    with pytest.raises(SettingsError, match="tunewright tune"):
        list_journals(location)
    configs = list(space)[: MIN_TRIALS + 5]
    store.record(KEY, [timed(config, 1e-3 * (1 + config["a"])) for config in configs])
    store.record(KEY, [timed(configs[0], 5e-4)])
    store.record(other_key(kernel="few"), [timed(config) for config in configs[:3]])
    (origin,) = list_journals(location)
    table = origin.load()
    assert table.kernel == KEY.kernel
    assert origin.name.startswith("gemm-")
    assert set(table.space) == set(table.rows) == set(configs)
    assert table.optimum == 5e-4  # the last trial of a config holds
    before = origin.digest
    store.record(KEY, [timed(space[80])])
    assert origin.digest != before


def test_an_origin_can_be_compared_and_named() -> None:
    from pathlib import Path

    assert RecordingFile(Path("a/b.parquet")).name == "b"
    assert RecordingFile(Path("a/b.parquet")) == RecordingFile(Path("a/b.parquet"))
