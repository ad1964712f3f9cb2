"""The drop-in: keys, modes, threads, processes, and what it adds to Triton's decorator (rung 2)."""

import inspect
import json
import logging
import os
import subprocess
import sys
import threading

import pytest
import torch
import triton

import tunewright as tw
from tunewright.testing.triton_driver import A100, H100, FakeDriver, fake_driver
from tunewright.triton import Config, TritonTuner, autotune, heuristics, idle, install, installed, uninstall

RELEASE = tuple(map(int, triton.__version__.split(".")[:2]))

SCALE = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(3)


@triton.jit
def scaled(x):
    return FACTOR * x


@triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=1) for size in (32, 64, 128)], key=["n"])
@triton.jit
def scale(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, scaled(tl.load(x_ptr + at * stride, mask=at < n)), mask=at < n)
"""


def by_block(launch):
    return 1e-2 / launch.config["BLOCK"]


@pytest.fixture
def driver():
    with fake_driver(FakeDriver(seconds=by_block)) as driver:
        yield driver


def call(module, n=128, x=None, out=None, stride=1, **more):
    x, out = torch.ones(n) if x is None else x, torch.zeros(n) if out is None else out
    module.scale[(4,)](x, out, n, stride, **more)
    return module.scale


def keys():
    return list(tw.current_session().store.keys())


def counts():
    return tw.current_session().counts


def jitted(written):
    """The kernel without a decorator of Triton's, to be decorated by hand."""
    return written(SCALE.replace("@triton.autotune", "# @triton.autotune"), name="undecorated").scale


def test_the_names_are_tritons_own():
    assert Config is triton.Config
    assert heuristics is triton.heuristics
    names = list(inspect.signature(autotune).parameters)
    assert names[:12] == list(inspect.signature(triton.autotune).parameters)
    assert {"space", "buckets", "reference", "budget", "strategy", "targets"} <= set(names)


def test_installing_replaces_tritons_decorator_and_uninstalling_brings_it_back():
    stock = triton.autotune
    install()
    install()
    try:
        assert triton.autotune is triton.runtime.autotune is autotune
    finally:
        uninstall()
    assert triton.autotune is triton.runtime.autotune is stock
    with installed():
        assert triton.autotune is autotune
    assert triton.autotune is stock


def test_a_second_process_measures_nothing(written, driver):
    call(written(SCALE))
    assert counts()["measurements"] == 3
    tw.configure()  # as a new process: nothing in mind but the store
    before = len(driver.launches)
    tuner = call(written(SCALE))
    assert (counts()["measurements"], len(driver.launches) - before) == (0, 1)
    assert tuner.best_config.kwargs == {"BLOCK": 128}
    assert {str(config) for config in tuner.configs_timings} == {str(config) for config in tuner.configs}


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("@triton.jit\ndef scale(", "# why\n@triton.jit\ndef scale(", True),
        ("    at = ", '    """Scale."""\n    at = ', True),
        ("return FACTOR * x", "return x * FACTOR", False),
        ("constexpr(3)", "constexpr(4)", False),
        ("mask=at < n)), mask=at < n)", "mask=at < n)), mask=at <= n)", False),
    ],
)
def test_the_source_counts_with_what_it_uses_but_not_comments(written, old, new, same):
    one = written(SCALE).scale.key.source
    assert old in SCALE
    assert (written(SCALE.replace(old, new)).scale.key.source == one) == same


def test_a_key_holds_what_the_code_is_specialised_for(written, driver):
    module = written(SCALE)
    whole = torch.ones(300)
    with idle():
        call(module, x=whole[:128])
        call(module, x=whole[1:129])  # not aligned
        call(module, x=torch.ones(256)[::2])  # gaps
        call(module, x=whole[:128].double())
        call(module, x=whole[:128], stride=2)  # an int that is not in key=, compiled for other code than 1
        call(module, x=whole[:128], stride=3)  # the same code as for 2
    texts = [key.signature.args for key in keys()]
    assert len(set(texts)) == len(texts) == 5
    assert {text[0] for text in texts} == {
        "x_ptr: *fp32 /16 C", "x_ptr: *fp32 C", "x_ptr: *fp32 /16 order(0)+gaps", "x_ptr: *fp64 /16 C",
    }  # fmt: skip
    assert {text[3] for text in texts} == {"stride: constexpr 1", "stride: i32"}


def test_a_key_names_device_toolchain_and_mode(written, driver):
    call(written(SCALE))
    key = keys()[0]
    assert key.device.model == A100.name
    assert key.device.limits["shared memory"] == A100.shared_memory
    assert key.device.limits["processors"] == A100.processors
    assert set(key.toolchain) == {"triton", "libtriton", "ptxas"}
    assert (key.mode["execution"], key.mode["fp fusion"]) == ("compiled", "on")
    assert key.signature.dims == {"n": 128}


def test_fp_fusion_changes_the_key(written, driver, monkeypatch):
    call(written(SCALE))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    call(written(SCALE))
    assert {key.mode["fp fusion"] for key in keys()} == {"on", "off"}


def test_two_cards_in_one_process_have_a_decision_each(written):
    lame = A100._replace(name="lame", processors=7)
    cards = FakeDriver(A100, lame, seconds=lambda launch: (1, launch.config["BLOCK"])[launch.device])
    with fake_driver(cards) as driver:
        module = written(SCALE)
        call(module)
        driver.set_current_device(1)
        assert call(module).best_config.kwargs == {"BLOCK": 32}
    assert {key.device.model for key in keys()} == {A100.name, "lame"}


def test_eight_threads_tune_once(written, driver):
    module, barrier = written(SCALE), threading.Barrier(8)

    def work():
        barrier.wait()
        call(module)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counts()["searches"], counts()["measurements"]) == (1, 3)


PROCESS = """
import sys, torch, tunewright as tw, tunewright.triton as t
from tunewright.testing.triton_driver import FakeDriver, fake_driver
t.install()
sys.path.insert(0, sys.argv[1])
with fake_driver(FakeDriver(seconds=lambda launch: 1e-2 / launch.config["BLOCK"])):
    from shared_scale import scale
    scale[(4,)](torch.ones(128), torch.zeros(128), 128, 1)
counts = tw.current_session().counts
print(counts["searches"], counts["measurements"], scale.best_config.kwargs["BLOCK"])
"""


@pytest.mark.slow
def test_eight_processes_tune_once(tmp_path):
    (tmp_path / "shared_scale.py").write_text(SCALE)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path)], env=environ, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    said = sorted(process.communicate()[0].strip() for process in started)
    assert said == ["0 0 128"] * 7 + ["1 3 128"]


def test_nothing_is_tuned_in_frozen_mode_and_the_default_is_said(written, driver, caplog):
    tw.configure(mode="frozen")
    with caplog.at_level(logging.WARNING):
        tuner = call(written(SCALE))
    assert (len(driver.launches), tuner.best_config.kwargs) == (1, {"BLOCK": 32})
    assert "The default is used" in caplog.text


def test_frozen_takes_the_nearest_shape(written, driver):
    call(written(SCALE), n=256)
    tw.configure(mode="frozen")
    assert call(written(SCALE), n=512).best_config.kwargs == {"BLOCK": 128}
    assert counts()["nearest shape"] == 1


def test_strict_raises(written, driver):
    tw.configure(mode="strict")
    with pytest.raises(tw.NoDecision):
        call(written(SCALE))


def test_record_notes_what_is_missing(written, driver):
    session = tw.configure(mode="record")
    call(written(SCALE))
    call(written(SCALE))
    assert session.misses.flush() == 1


def test_nothing_is_tuned_while_a_graph_is_captured_but_afterwards_it_is(written, driver):
    module = written(SCALE)
    driver.capturing = True
    assert call(module).best_config.kwargs == {"BLOCK": 32}
    assert len(driver.launches) == 1
    driver.capturing = False
    assert call(module).best_config.kwargs == {"BLOCK": 128}
    driver.capturing = True  # what is decided is captured as it is
    before = len(driver.launches)
    assert call(module).best_config.kwargs == {"BLOCK": 128}
    assert len(driver.launches) == before + 1


@pytest.mark.skipif(not hasattr(triton.knobs.autotuning, "listener"), reason="Triton has it since 3.8")
def test_the_listener_hears_of_decisions_and_hits(written, driver, monkeypatch):
    heard = []
    monkeypatch.setattr(triton.knobs.autotuning, "listener", lambda **told: heard.append(told))
    call(written(SCALE))
    call(written(SCALE))
    assert [(one["cache_hit"], one["duration"] is None, one["best_config"].kwargs) for one in heard] == [
        (False, False, {"BLOCK": 128}),
        (True, True, {"BLOCK": 128}),
    ]
    assert heard[0]["key"] == (128, "torch.float32", "torch.float32")
    assert set(heard[0]) == {"fn", "key", "best_config", "configs_timings", "duration", "cache_hit"}
    assert len(heard[1]["configs_timings"]) == 3


def test_what_stock_prints_is_printed(written, driver, monkeypatch, capsys):
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    said = []
    for ours in (False, True):
        call(written(SCALE, ours=ours))
        said.append([line for line in capsys.readouterr().out.splitlines() if "finished" not in line])
    assert said[0] == said[1]
    assert any(line.startswith("Autotuning kernel scale with config BLOCK: 32") for line in said[1])


def test_what_stock_caches_on_disk_is_written_too(written, driver, monkeypatch, own_triton_cache):
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "1")
    stock, names = None, []
    for ours in (False, True):
        call(written(SCALE, ours=ours))
        found = sorted(own_triton_cache.rglob("*.autotune.json"))
        names.append([path.parent.name for path in found])
        told = json.loads(found[0].read_text())
        assert told["key"] == [128, "torch.float32", "torch.float32"]
        stock = stock or [config for config, _ in told["configs_timings"]]
        assert sorted(map(str, stock)) == sorted(str(config) for config, _ in told["configs_timings"])
    assert names[0] == names[1]  # under the name at which stock looks for it


def test_the_cache_can_be_read_edited_and_cleared(written, driver):
    module = written(SCALE)
    tuner = call(module)
    key = (128, "torch.float32", "torch.float32")
    assert tuner.cache == {key: tuner.best_config}
    tuner.cache[key] = tuner.configs[1]
    assert call(module).best_config is tuner.configs[1]
    tuner.cache.clear()
    assert call(module).best_config.kwargs == {"BLOCK": 128}
    assert counts()["searches"] == 1  # the store still knows


def test_a_space_stands_for_a_list_and_offers_only_what_the_device_has(written):
    space = tw.Space(tw.Knob("BLOCK", [32, 64]), tw.Knob("num_warps", [1, 2]), tw.Knob("num_ctas", [1, 2]))
    for card, tried in ((A100, 4), (H100, 8)):
        with fake_driver(FakeDriver(card, seconds=by_block)) as driver:
            jit = jitted(written)
            tuner = autotune(space=space, key=["n"], session=tw.Session(store="memory:"))(jit)
            assert len(tuner.configs) == 8
            tuner[(4,)](torch.ones(128), torch.zeros(128), 128, 1)
            assert tuner.session.counts["measurements"] == tried
            assert tuner.best_config.kwargs == {"BLOCK": 64}
            assert driver.launches[-1].config["BLOCK"] == 64


def test_a_budget_and_a_strategy_are_kept(written, driver):
    space = tw.Space(tw.Knob("BLOCK", [32, 64, 128]), tw.Knob("num_warps", [1, 2, 4]))
    tuner = autotune(space=space, key=["n"], budget="4", strategy="random")(jitted(written))
    tuner[(4,)](torch.ones(128), torch.zeros(128), 128, 1)
    assert counts()["measurements"] == 4
    decision = next(tw.current_session().store.decisions())
    assert decision.evidence.strategy == "random"


def test_sizes_in_one_bucket_share_a_tuning(written, driver):
    configs = [Config({"BLOCK": size}, num_warps=1) for size in (32, 64)]
    tuner = autotune(configs, ["n"], buckets={"n": "pow2"})(jitted(written))
    x, out = torch.ones(1000), torch.zeros(1000)
    for n in range(130, 250):
        tuner[(4,)](x, out, n, 1)
    assert counts()["searches"] == 1
    tuner[(4,)](x, out, 300, 1)
    assert counts()["searches"] == 2


def test_what_was_said_wrongly_is_refused_at_the_declaration(written):
    jit = jitted(written)
    configs = [Config({"BLOCK": 32}), Config({"BLOCK": 64})]
    with pytest.raises(TypeError, match="no 'nonsense'"):
        autotune(configs, ["n"], nonsense=1)
    with pytest.raises(TypeError, match="space="):
        autotune(key=["n"])
    if RELEASE >= (3, 9):  # until then Triton ignores it
        with pytest.raises(ValueError, match="not kernel arguments: nn"):
            autotune(configs, ["nn"])(jit)
    with pytest.raises(tw.TunewrightError, match="not both"):
        autotune(configs, ["n"], space=tw.Space(tw.Knob("BLOCK", [1])))(jit)
    with pytest.raises(tw.TunewrightError, match="buckets= names m"):
        autotune(configs, ["n"], buckets={"m": "pow2"})(jit)


def test_a_parameter_that_is_given_and_tuned_is_refused_as_by_stock(written, driver, ours):
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        call(written(SCALE, ours=ours), BLOCK=32)


def test_deprecated_parameters_still_work(written, driver, ours):
    more = SCALE.replace('key=["n"]', 'key=["n"], warmup=1, rep=2')
    with pytest.warns(DeprecationWarning, match="deprecated"):
        module = written(more, ours=ours)
    assert call(module).best_config.kwargs == {"BLOCK": 128}


def test_one_config_is_never_measured(written, driver, ours):
    module = written(SCALE.replace("(32, 64, 128)", "(64,)"), ours=ours)
    call(module)
    assert len(driver.launches) == 1
    assert not hasattr(module.scale, "configs_timings")


def test_arguments_by_name_are_told_apart_too(written, driver):
    module = written(SCALE)
    x, out = torch.ones(128), torch.zeros(128)
    module.scale[(4,)](x_ptr=x, out_ptr=out, n=128, stride=1)
    module.scale[(4,)](x, out, n=128, stride=1)
    before = len(driver.launches)
    module.scale[(4,)](x, out, 128, stride=1)
    assert (counts()["searches"], len(driver.launches) - before) == (1, 1)


def test_an_interrupted_tuning_leaves_arguments_as_they_were(written):
    def effect(launch):
        launch.args[1].add_(1)
        if launch.config["BLOCK"] == 64:
            raise KeyboardInterrupt

    with fake_driver(FakeDriver(effect=effect)):
        out = torch.zeros(128)
        with pytest.raises(KeyboardInterrupt):
            call(written(SCALE), out=out)
    assert (out == 0).all()


def test_a_noisy_device_is_raced_not_believed(written):
    """Two configs 10 % apart under noise of 30 %: the right one is found, or neither is said to be better."""
    rng = torch.Generator().manual_seed(0)

    def seconds(launch):
        right = {32: 1.2e-4, 64: 1.1e-4, 128: 1e-4}[launch.config["BLOCK"]]
        return right * float(1 + 0.3 * torch.rand(1, generator=rng))

    with fake_driver(FakeDriver(seconds=seconds)):
        tuner = call(written(SCALE))
    assert isinstance(tuner, TritonTuner)
    assert tuner.best_config.kwargs == {"BLOCK": 128}
    decision = next(tw.current_session().store.decisions())
    assert decision.evidence.clock == "gpu events"
    assert decision.evidence.over_default.low > 1


def test_a_time_that_is_no_number_is_a_failure_with_a_reason(written):
    with fake_driver(FakeDriver(seconds=lambda one: float("nan") if one.config["BLOCK"] == 128 else by_block(one))):
        tuner = call(written(SCALE))
    assert tuner.best_config.kwargs == {"BLOCK": 64}
    assert [times[0] for config, times in tuner.configs_timings.items() if config.kwargs["BLOCK"] == 128] == [
        float("inf")
    ]
    store = tw.current_session().store
    said = [trial.outcome.reason for trial in store.trials(keys()[0]) if not trial.works]
    assert said == ["ValueError: the device's events measured nan s, which is not a valid time"]


def test_a_fast_config_with_wrong_results_is_refused_where_launches_compute(written):
    def effect(launch):
        launch.args[1].copy_(2 * launch.args[0] if launch.config["BLOCK"] == 128 else 3 * launch.args[0])

    with fake_driver(FakeDriver(seconds=by_block, effect=effect)):
        configs = [Config({"BLOCK": size}, num_warps=1) for size in (32, 64, 128)]
        tuner = autotune(configs, ["n"], reference=lambda x_ptr: 3 * x_ptr)(jitted(written))
        out = torch.zeros(128)
        tuner[(4,)](torch.ones(128), out, 128, 1)
    assert tuner.best_config.kwargs == {"BLOCK": 64}
    assert (out == 3).all()
    wrong = [t.outcome for t in tw.current_session().store.trials(keys()[0]) if not t.works]
    assert [(str(one.kind), "out_ptr is wrong in 128 of 128" in one.reason) for one in wrong] == [("wrong", True)]


def test_pruning_functions_are_given_what_stock_gives_them(written, driver):
    text = SCALE.replace('key=["n"]', 'key=["n"], prune_configs_by={"early_config_prune": prune, "perf_model": model}')
    text = text.replace(
        "FACTOR =",
        """SEEN = []


def prune(configs, named_args, **kwargs):
    SEEN.append((len(configs), sorted(named_args), sorted(kwargs)))
    return configs


def model(**kwargs):
    SEEN.append(sorted(kwargs))
    return 1.0


FACTOR =""",
    ).replace('"perf_model": model}', '"perf_model": model, "top_k": 2}')
    seen = []
    for ours in (False, True):
        module = written(text, ours=ours)
        call(module)
        seen.append(module.SEEN)
    assert seen[0] == seen[1]
    assert len(seen[1]) == 4


def test_one_left_after_pruning_is_taken_without_measuring(written, driver, ours):
    prune = '"early_config_prune": lambda configs, named, **rest: configs[1:2]'
    module = written(SCALE.replace('key=["n"]', f'key=["n"], prune_configs_by={{{prune}}}'), ours=ours)
    assert call(module).best_config.kwargs == {"BLOCK": 64}
    assert len(driver.launches) == (1 if ours or RELEASE >= (3, 8) else 2)  # Triton measured it until 3.7


def test_a_tensor_that_autograd_follows_is_restored_without_its_noticing(written):
    with fake_driver(FakeDriver(effect=lambda launch: launch.args[1].data.add_(1))):
        out = torch.zeros(128, requires_grad=True)
        version = out._version
        call(written(SCALE), out=out)
    assert (out == 1).all()
    assert out._version == version
