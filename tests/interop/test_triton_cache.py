"""Triton's autotuning cache: there and back, read by Triton itself, and refused where it is damaged."""

import json
from math import inf

import pytest
from foreign import autotune, folder, timed

from tunewright.errors import WireError
from tunewright.interop import triton_cache
from tunewright.interop.triton_cache import AutotuneFile, TimedConfig
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.spaces.config import Config


def kept(tmp_path, text):
    path = tmp_path / "matmul_kernel.autotune.json"
    path.write_text(text)
    return path


def test_what_triton_wrote_comes_back_value_for_value(tmp_path) -> None:
    path = kept(tmp_path, autotune())
    cache = triton_cache.read(path)
    assert cache.kernel == "matmul_kernel"
    assert cache.key == (1024, 512, "torch.float16", "torch.float16")
    assert cache.best.config == Config(BLOCK=128, EVEN=True, num_warps=8, num_ctas=1, num_stages=3)
    triton_cache.write(cache, tmp_path / "again.autotune.json")
    assert json.loads((tmp_path / "again.autotune.json").read_text()) == json.loads(path.read_text())
    assert triton_cache.read(tmp_path / "again.autotune.json").tried == cache.tried


def test_triton_itself_reads_our_file_and_takes_the_config_that_we_do(tmp_path) -> None:
    autotuner = pytest.importorskip("triton.runtime.autotuner")
    configs = [
        TimedConfig(Config(BLOCK=block, num_warps=warps, num_stages=2), (1.0 + abs(block - 96) / warps, 0.9, 2.0))
        for block in (32, 64, 128)
        for warps in (2, 4)
    ]
    cache = AutotuneFile(
        "k", (1, None, "x"), (*configs, TimedConfig(Config(BLOCK=512, num_warps=4, num_stages=2), (inf,) * 3))
    )
    path = tmp_path / "k.autotune.json"
    triton_cache.write(cache, path)
    timings = {autotuner.Config(**config): times for config, times in json.loads(path.read_text())["configs_timings"]}
    theirs = min(timings, key=timings.get)
    assert len(timings) == 7
    assert Config(theirs.all_kwargs()).with_value("num_ctas", 1) == cache.best.config.with_value("num_ctas", 1)


def test_what_triton_itself_keeps_is_read(tmp_path) -> None:
    autotuner = pytest.importorskip("triton.runtime.autotuner")
    tried = {
        autotuner.Config({"BLOCK": 64}, num_warps=8): [0.5, 0.4, 0.6],
        autotuner.Config({"BLOCK": 32}, maxnreg=128): [inf, inf, inf],
    }
    text = json.dumps({"key": [64, "fp16"], "configs_timings": [(c.__dict__, t) for c, t in tried.items()]})
    cache = triton_cache.read(kept(tmp_path, text))
    assert [dict(one.config) for one in cache.tried] == [config.all_kwargs() for config in tried]
    assert [one.milliseconds for one in cache.tried] == [(0.5, 0.4, 0.6), (inf, inf, inf)]


def test_of_equal_configs_the_last_counts_as_in_triton(tmp_path) -> None:
    cache = triton_cache.read(kept(tmp_path, autotune(timed(64, 0.1), timed(128, 0.2), timed(64, 0.9))))
    assert cache.best.config["BLOCK"] == 128
    table = triton_cache.as_table(cache, "A100")
    assert [(trial.config["BLOCK"], trial.seconds) for trial in table.trials] == [(128, 0.2e-3), (64, 0.9e-3)]


def test_a_cache_is_a_recording_and_trials_are_a_cache(tmp_path) -> None:
    table = triton_cache.as_table(triton_cache.read(kept(tmp_path, autotune())), "A100")
    assert (table.kernel, table.device) == ("matmul_kernel", "A100")
    assert [trial.works for trial in table.trials] == [True, True, False]
    assert {knob.name for knob in table.knobs} == {"BLOCK", "EVEN", "num_warps", "num_ctas", "num_stages"}
    trials = [
        Trial(Config(BLOCK=1), Timing((2e-3,), "gpu")),
        Trial(Config(BLOCK=2), Failure(Stage.BUILD, Kind.REFUSED, "too large")),
    ]
    cache = triton_cache.from_trials("k", (7,), trials)
    assert [one.milliseconds for one in cache.tried] == [(2.0, 2.0, 2.0), (inf, inf, inf)]
    uneven = AutotuneFile("k", (), (TimedConfig(Config(a=1), (1.0,)), TimedConfig(Config(b=1), (1.0,))))
    with pytest.raises(WireError, match="does not set all of a, b"):
        triton_cache.as_table(uneven, "A100")


def test_only_folders_named_by_a_digest_are_looked_into(tmp_path) -> None:
    assert triton_cache.is_reachable(tmp_path / folder("x") / "k.autotune.json")
    assert not triton_cache.is_reachable(tmp_path / "mine" / "k.autotune.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "should be an object"),
        ("{}", "key should be an array"),
        ('{"key": []}', "configs_timings should be an array"),
        ('{"key": [], "configs_timings": []}', "has no configs"),
        ('{"key": [[1]], "configs_timings": []}', "key should be a number"),
        (autotune([{"kwargs": {}}]), "should be a config and its times"),
        (autotune([{"num_warps": 4}, [1.0]]), "kwargs should be an object"),
        (autotune(timed(64, [])), "has no times"),
        (autotune(timed(64, [float("nan")])), "a matter of luck"),
        (autotune(timed(64, [-1.0])), "not negative"),
        (autotune(timed(64, [10**400])), "not negative"),
        (autotune([{"kwargs": {"num_warps": 4}}, [1.0]]), "sets num_warps as a parameter of the kernel"),
        (autotune([{"kwargs": {"x y": 4}}, [1.0]]), "should be a name"),
        (autotune()[:-40], "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(text, says, tmp_path) -> None:
    with pytest.raises(WireError, match=says):
        triton_cache.read(kept(tmp_path, text))
