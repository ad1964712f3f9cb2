"""Kernel Tuner's cache files: ours read by it, its own read by us, and what is wrong with damaged ones."""

import json

import pytest

from tunewright.errors import WireError
from tunewright.interop import kernel_tuner
from tunewright.interop.table import RUNS
from tunewright.model.trial import Failure, Kind, Stage


def cache(**entries):
    """A cache as Kernel Tuner writes it, with the entries given."""
    return {
        "device_name": "A100",
        "kernel_name": "scale",
        "problem_size": [64],
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": [1, 2, 4], "y": [0, 1]},
        "objective": "time",
        "cache": entries,
    }


ONE = {"x": 1, "y": 0, "time": 2.0, "times": [1.0, 3.0], "compile_time": 500.0, "benchmark_time": 4.0}


def written(tmp_path, content):
    path = tmp_path / "cache.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_what_is_written_is_read_back(table, tmp_path) -> None:
    path = tmp_path / "scale.json"
    kernel_tuner.write(table, path)
    again = kernel_tuner.read(path)
    assert again.trials == table.trials
    assert [(k.name, k.values) for k in again.knobs] == [(k.name, k.values) for k in table.knobs]
    assert (again.kernel, again.device, again.sizes) == (table.kernel, table.device, table.sizes)
    assert again.constraints is None  # a cache does not hold them


@pytest.mark.filterwarnings("ignore")
def test_kernel_tuner_simulates_every_config_from_our_file(table, tmp_path) -> None:
    kt = pytest.importorskip("kernel_tuner")
    path = tmp_path / "scale.json"
    kernel_tuner.write(table, path)
    results, environment = kt.tune_kernel(
        "scale", "__global__ void scale() {}", (4096, 2), [], {k.name: list(k.values) for k in table.knobs},
        restrictions=list(table.constraints), cache=str(path), simulation_mode=True, lang="CUDA", quiet=True,
    )  # fmt: skip
    assert len(results) == len(table.trials)
    best = min((trial for trial in table.trials), key=lambda trial: trial.seconds)
    assert environment["best_config"]["time"] == pytest.approx(best.seconds * 1e3)
    assert {name: environment["best_config"][name] for name in best.config} == dict(best.config)
    assert sum("__error__" in result for result in results) == sum(not trial.works for trial in table.trials)


@pytest.mark.filterwarnings("ignore")
def test_a_cache_that_kernel_tuner_itself_wrote_is_read(tmp_path) -> None:
    util = pytest.importorskip("kernel_tuner.util")
    path, kept = written(tmp_path, json.dumps(cache(), indent="")[:-3]), {}
    util.store_cache("1,0", ONE, str(path), kept)
    util.store_cache("2,1", {"x": 2, "y": 1, "__error__": util.RuntimeFailedConfig()}, str(path), kept)
    opened = kernel_tuner.read(path)
    util.close_cache(str(path))
    closed = kernel_tuner.read(path)
    assert opened.trials == closed.trials
    assert [trial.works for trial in closed.trials] == [True, False]
    assert not closed.notes
    assert opened.notes == (kernel_tuner.TRUNCATED,)


@pytest.mark.filterwarnings("ignore")
def test_kernel_tuner_goes_on_from_our_file(table, tmp_path) -> None:
    util = pytest.importorskip("kernel_tuner.util")
    path = tmp_path / "scale.json"
    kernel_tuner.write(table, path)
    kept = util.read_cache(str(path))["cache"]
    more = dict(table.trials[0].config) | {"block_size_x": 64, "tile": 4, "time": 1.0}
    util.store_cache("more", more, str(path), kept)
    assert len(kernel_tuner.read(path).trials) == len(table.trials) + 1
    util.close_cache(str(path))
    assert len(kernel_tuner.read(path).trials) == len(table.trials) + 1


def test_the_time_a_tool_ranks_by_is_the_time_of_a_trial(tmp_path) -> None:
    (trial,) = kernel_tuner.read(written(tmp_path, cache(one=ONE | {"time": 1.75}))).trials
    assert trial.seconds == pytest.approx(1.75e-3)
    assert trial.metrics[RUNS] == 2
    assert (trial.build_seconds, trial.run_seconds) == (0.5, 0.004)


def test_failures_keep_their_kind_and_configs_that_break_restrictions_are_no_part_of_the_space(tmp_path) -> None:
    read = kernel_tuner.read(
        written(
            tmp_path,
            cache(
                a=ONE,
                b={"x": 2, "y": 0, "time": "CompilationFailedConfig"},
                c={"x": 2, "y": 1, "time": 1e20},
                d={"x": 4, "y": 0, "__error__": "RuntimeFailedConfig", "compile_time": 9.0},
                e={"x": 4, "y": 1, "time": "InvalidConfig"},
            ),
        )
    )
    kinds = [(t.outcome.stage, t.outcome.kind) for t in read.trials if isinstance(t.outcome, Failure)]
    ran = (Stage.VERIFY, Kind.RAISED)
    assert kinds == [(Stage.BUILD, Kind.REFUSED), ran, ran]
    assert read.notes == ("1 entries break its restrictions and are left out",)


def ends():
    """Where a run may have ended while it wrote its third entry."""
    entries = {f"{x},0": ONE | {"x": x} for x in (1, 2, 4)}
    head = json.dumps(cache(), indent="")[:-3]
    lines = ["\n" + json.dumps({key: entry})[1:-1] + "," for key, entry in entries.items()]
    whole = head + "".join(lines)
    yield 3, whole
    yield 3, whole[:-1]
    yield 3, whole[:-1] + "}"
    for cut in range(2, len(lines[2]), 7):
        yield 2, whole[:-cut]
    yield 0, head


@pytest.mark.parametrize(("count", "text"), list(ends()))
def test_a_run_that_ended_abruptly_loses_its_last_entry_at_most(count, text, tmp_path) -> None:
    read = kernel_tuner.read(written(tmp_path, text))
    assert len(read.trials) == count
    assert read.notes == (kernel_tuner.TRUNCATED,)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "should be an object"),
        ({"cache": {}}, "lacks 'tune_params_keys'"),
        (cache(one="text"), "entry 'one' should be an object"),
        (cache(one={"x": 1, "time": 1.0}), "entry 'one' does not set 'y'"),
        (cache(one=ONE | {"x": [1]}), "entry 'one': x should be a number"),
        (cache(one=ONE | {"x": 3}), "records x=3, which is not a value of that parameter"),
        (cache(one={"x": 1, "y": 0, "GFLOP/s": 7.0}), "neither a time nor an error"),
        (cache(one=ONE | {"time": -1.0}), "time should be a number that is not negative"),
        (cache(one=ONE | {"time": 0.0}), "is 0, which is impossible"),
        (cache(one=ONE | {"compile_time": "long"}), "compile_time should be a number"),
        (cache() | {"tune_params_keys": ["x y"]}, "should be a name"),
        (cache() | {"tune_params_keys": ["lambda"]}, "should be a name"),
        (cache() | {"tune_params": {"x": [1, 1], "y": [0]}}, "lists a value twice"),
        (cache() | {"tune_params": {"x": [1]}}, "values of 'y' should be an array"),
        (cache() | {"device_name": 7}, "device_name should be a text"),
        ("{not json", "nor truncated JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong_and_where(content, says, tmp_path) -> None:
    with pytest.raises(WireError, match=says.replace("(", r"\(")):
        kernel_tuner.read(written(tmp_path, content))
