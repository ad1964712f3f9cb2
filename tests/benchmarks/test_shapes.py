import sys
from pathlib import Path

import numpy as np
import pytest

from tunewright import Config
from tunewright.backends.replay import Recording

PROJECT = Path(__file__).parent.parent.parent
BENCHMARKS = PROJECT / "benchmarks"
pytest.importorskip("pyarrow")


@pytest.fixture
def shapes(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import shapes

    yield shapes
    for name in [name for name in sys.modules if name.startswith("shapes")] + [
        "record_spaces",
        "space_kinds",
        "figures",
    ]:
        sys.modules.pop(name, None)


@pytest.fixture
def table(shapes):
    """Two small shapes like the first config, two large ones the second; the third is good for none."""
    times = np.array([[1.0, 2.0, 4.0], [1.0, 1.5, 4.0], [3.0, 1.0, 4.0], [1.2, 1.0, 4.0]])
    sizes = [(4, 4, 4), (3, 4, 4), (64, 64, 64), (60, 50, 64)]
    return shapes.Table(sizes, [Config(x=x) for x in range(3)], times, times)


def test_a_shape_is_served_by_the_nearest_that_is_tuned(table) -> None:
    assert table.served([0, 2]) == pytest.approx([0.0, 0.0])
    assert table.served([0]) == pytest.approx([0.0, 2.0, 0.2])
    assert table.served([3]) == pytest.approx([1.0, 0.5, 0.0])
    assert table.served([0, 2, 3], 3) == pytest.approx([0.5])


def test_shapes_to_tune_are_chosen_apart_or_greedily(shapes, table) -> None:
    assert {i // 2 for i in shapes.apart(table, 2)} == {0, 1}
    assert {i // 2 for i in shapes.greedy(table, 2)} == {0, 1}
    assert len(set(shapes.greedy(table, 3))) == 3


def test_buckets_serve_what_lies_below_their_tops(shapes, table) -> None:
    assert shapes.bucket((3, 4, 5)) == (4, 4, 8)
    assert shapes.bucketed(table) == {"size": 2, "mean": 0.0, "worst": 0.0}
    assert shapes.one_for_all(table) == {"mean": 0.375, "worst": 1.0}


def test_seeds_of_neighbours_save_trials(shapes, table) -> None:
    found = shapes.seeded(table, 30)
    assert found["trials_seeds"] == 1
    assert found["trials_scratch"] == pytest.approx(2, abs=0.5)
    assert found["after_seeds"] == {"mean": 0.0, "worst": 0.0}


def test_luck_in_choosing_is_paid_in_judging(shapes, table) -> None:
    lucky = table.chosen_by.copy()
    lucky[0] = [4.0, 2.0, 1.0]
    found = shapes.Table(table.shapes, table.configs, lucky, table.judged_by)
    assert found.served([0])[0] == pytest.approx(3)


def test_the_recorded_table_reads_and_its_figures_hang_together(shapes) -> None:
    (path,) = (PROJECT / "spaces" / "shapes").glob("gemm-*.parquet")
    read = shapes.Table.read(path)
    assert read.chosen_by.shape == (len(read.shapes), len(read.configs)) == read.judged_by.shape
    assert (read.judged_by > 0).all()
    said = shapes.figures_of(read, 5)
    assert said["table_8"]["greedy"]["mean"] <= said["table_1"]["greedy"]["mean"]
    assert said["floor"]["mean"] <= said["one"]["mean"]
    assert said["trials_seeds"] < said["trials_scratch"]
    assert any("powers of two" in line for line in shapes.lines(said))


def test_cover_and_rule_are_judged_by_the_other_passes(shapes, table) -> None:
    from shapes_joint import covered

    said = covered(table)
    assert (said["cover_configs"], said["cover_is_smallest"], said["cover_mean"]) == (2, True, 0.0)
    assert (said["rule_leaves"], said["rule_unserved"], said["rule_extra"]) == (2, 0, 0.0)
    slower = table.judged_by * np.array([3.0, 1.0, 1.0])
    again = covered(shapes.Table(table.shapes, table.configs, table.chosen_by, slower))
    assert again["cover_mean"] == pytest.approx((0.5 + 1.0) / 4)


def test_shapes_tuned_in_turn_try_what_was_decided_before_them(shapes) -> None:
    from shapes_alone import tuned_in_turn

    rng = np.random.default_rng(0)
    times = np.exp(rng.normal(size=(4, 30)))
    times[:, 21] = 0.01  # the best everywhere
    configs = [Config(x=x, y=y) for x in range(6) for y in range(5)]
    table = shapes.Table([(8, 8, 2**i) for i in range(4)], configs, times, times)
    made = list(tuned_in_turn(table, [2, 0, 3, 1], [30, 2, 2, 2], 0))
    assert len(made) == len(set(made)) == 36
    assert made[30:] == [(0, 0), (0, 21), (3, 0), (3, 21), (1, 0), (1, 21)]


def test_trials_are_counted_until_the_mean_regret_is_near(shapes, table) -> None:
    from shapes_trials import fewest, until_near

    assert until_near(table, [(0, 1), (2, 1)]) is None
    assert until_near(table, [(0, 0), (1, 0), (3, 0), (3, 1), (2, 1), (0, 2)]) == 5
    asked = []

    def sweep(each):
        asked.append(each)
        return [(shape, config) for shape in range(4) for config in range(min(each, 3))]

    assert fewest(table, sweep) == 6
    assert asked == [8, 4, 2, 1]


@pytest.mark.slow
def test_all_shapes_together_beat_their_neighbors_on_the_recorded_table(shapes, capsys) -> None:
    import json

    assert shapes.main(["--quick", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    gemm = said["kernels"]["gemm"]
    assert gemm["untuned_mean"] < gemm["table_8"]["apart"]["mean"] / 1.5
    assert gemm["untuned_random_mean"] < gemm["table_8"]["random"]["mean"] / 1.5
    assert all(one["trials_joint"] < one["shapes"] * one["configs"] / 10 for one in said["kernels"].values())
    assert said["p95"] < 0.08
    assert said["cover_configs"] <= 8
    assert gemm["cover_is_smallest"]
    assert said["rule_extra"] <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layernorm", "direct"])
def test_the_recorded_kernels_are_right_on_odd_shapes(shapes, name) -> None:
    from tunewright.model.signature import Signature

    recorded = shapes.KERNELS[name]
    assert len(recorded.shapes) >= 24
    configs = list(recorded.job(*recorded.shapes[0]).kernel.space)
    for shape in recorded.shapes[1::9]:
        job = recorded.job(*shape)
        kernel, args = job.kernel, job.args()
        expected = job.reference(*(array.astype(np.float64) for array in args[:-1]))
        for config in configs[::23]:
            built = kernel.backend.build(kernel.kernel, config, Signature.of(kernel.parameters, args))
            args[-1].fill(np.nan)
            kernel.backend.load(kernel.kernel, built)(*args)
            assert np.allclose(args[-1], expected, rtol=1e-4, atol=1e-3), (shape, config)


@pytest.mark.slow
def test_the_picture_is_drawn(shapes, table, tmp_path, monkeypatch) -> None:
    pytest.importorskip("matplotlib")
    from shapes_plot import draw

    draw(tmp_path / "shapes.png", shapes.figures_of(table, 5))
    assert (tmp_path / "shapes.png").stat().st_size > 5000


@pytest.mark.parametrize("path", sorted((PROJECT / "spaces").glob("*.parquet")), ids=lambda path: path.stem)
def test_a_recorded_cpu_space_is_whole_and_worth_searching(path) -> None:
    recording = Recording.read(path)
    assert set(recording.trials) == set(recording.space)
    times = np.array([trial.seconds for trial in recording.trials.values() if trial.works])
    assert len(recording.trials) >= 900
    assert len(recording.trials) - len(times) < len(recording.trials) / 4
    assert 1.2 < np.median(times) / times.min() < 12
    assert (times <= 1.05 * times.min()).mean() < 0.05
    assert len(recording.spreads) == len(times)
    assert path.stat().st_size < 300_000


@pytest.mark.slow
def test_recording_works_from_end_to_end(monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import record_spaces

    for kernel in ("gemm", "transpose"):  # knobs of build time only, and some of run time
        assert record_spaces.main(["--quick", "--only", kernel]) == 0
        assert "median_over_best" in capsys.readouterr().out


@pytest.mark.slow
def test_recording_programs_works_from_end_to_end(monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import record_programs

    assert record_programs.main(["--quick", "--only", "sqlite"]) == 0
    assert "median_over_best" in capsys.readouterr().out
