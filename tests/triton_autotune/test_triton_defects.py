"""What is wrong with Triton's own autotuner, each shown on it and absent in ours (rung 2; 3 where it says so)."""

import os
import subprocess
import sys
import threading
from functools import partial

import msgspec
import pytest
import torch

import tunewright as tw
from tunewright.testing.triton_driver import A30, A100, FakeDriver, fake_driver
from tunewright.triton import idle

DOUBLE = """
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=1) for size in (32, 64, 128)], key=["n"]<more>)
@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""


def double(more="", above=""):
    return (DOUBLE.replace("<more>", more)).replace("@triton.autotune", f"{above}@triton.autotune")


def by_block(launch):
    return 1e-2 / launch.config["BLOCK"]


def launched(module, driver, x=None):
    """How many launches a call makes."""
    before = len(driver.launches)
    module.double[(4,)](torch.ones(100) if x is None else x, 100)
    return len(driver.launches) - before


def test_two_cards_of_one_architecture_share_a_decision(written, ours, own_triton_cache):
    text = double(", cache_results=True")
    with fake_driver(FakeDriver(A100)) as driver:
        assert launched(written(text, ours), driver) > 1
    with fake_driver(FakeDriver(A30)) as driver:
        tuned_again = launched(written(text, ours), driver) > 1
    assert tuned_again == ours


def test_a_comment_above_the_kernel_loses_the_decision(written, ours, driver, own_triton_cache):
    assert launched(written(double(", cache_results=True"), ours), driver) > 1
    tuned_again = launched(written(double(", cache_results=True", "# a remark\n\n"), ours), driver) > 1
    assert tuned_again != ours


def test_where_nothing_fits_the_first_config_is_taken_silently(kernels, ours):
    with fake_driver(FakeDriver(A100._replace(shared_memory=64))):
        matmul, grid, args, _ = kernels("grouped_matmul", ours=ours).calls()[0]
        with pytest.raises(tw.NothingWorked if ours else Exception) as caught:
            matmul[grid](*args)
        assert type(caught.value).__name__ == ("NothingWorked" if ours else "OutOfResources")
        assert list(matmul.cache.values()) == ([] if ours else [matmul.configs[0]])
        if ours:
            assert "all 3 configs tried failed" in str(caught.value)
            assert type(caught.value.__cause__).__name__ == "OutOfResources"


def test_a_time_that_is_no_number_wins_if_it_comes_first(written, ours, driver):
    module = written(double(", do_bench=lambda call, quantiles: bench(call)"), ours)

    def bench(call):
        call()
        block = driver.launches[-1].config["BLOCK"]
        return [float("nan")] * 3 if block == 32 else [1 / block] * 3

    module.bench = bench
    launched(module, driver)
    assert module.double.best_config.kwargs == {"BLOCK": 128 if ours else 32}


def test_an_error_of_one_config_ends_the_tuning(written, ours):
    def seconds(launch):
        if launch.config["BLOCK"] == 64:
            raise RuntimeError("an illegal instruction was encountered")
        return by_block(launch)

    with fake_driver(FakeDriver(seconds=seconds)) as driver:
        module = written(double(), ours)
        if not ours:
            with pytest.raises(RuntimeError, match="illegal"):
                launched(module, driver)
            return
        launched(module, driver)
        assert module.double.best_config.kwargs == {"BLOCK": 128}
        store = tw.current_session().store
        failed = [trial for key in list(store.keys()) for trial in store.trials(key)]
        assert [trial.outcome.reason for trial in failed if not trial.works] == [
            "RuntimeError: an illegal instruction was encountered"
        ]


def test_a_transposed_input_has_the_same_key(kernels, ours, driver):
    module = kernels("grouped_matmul", ours=ours)
    a, b, c = module.made(64, 64, 64)
    module.matmul[module.grid](*module.arguments(a, b, c))
    before = len(driver.launches)
    with idle():  # at any other time the decision of the first call is used, and the key is noted
        module.matmul[module.grid](*module.arguments(a.T, b, c))
    assert (len(driver.launches) - before > 1) == ours
    if ours:
        texts = {key.signature.args[0] for key in list(tw.current_session().store.keys())}
        assert texts == {"a_ptr: *fp16 /16 C", "a_ptr: *fp16 /16 order(1,0)"}


def meeting(ours):
    """A benchmark that waits for a second one beside it, and notes whether it came."""
    met, barrier, parsing = [], threading.Barrier(2), threading.Lock()

    def bench(call, quantiles):
        if not met:
            try:
                barrier.wait(timeout=1 if ours else 120)
                met.append(True)
            except threading.BrokenBarrierError:
                met.append(False)
        with parsing:  # Python 3.11 now and then fails if two threads parse at once
            call()
        return [1.0, 1.0, 1.0]

    return bench, met


def at_once(*calls):
    """Run calls in threads; the errors that stock makes of it."""
    errors = []

    def guarded(call):
        try:
            call()
        except (AttributeError, TypeError) as error:  # the arguments are forgotten while the other still needs them
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


OWN_CLOCK = ", cache_results=True, do_bench=lambda call, quantiles: bench(call, quantiles)"


def test_two_threads_tune_the_same_at_once(written, ours, driver, own_triton_cache):
    module = written(double(OWN_CLOCK), ours)
    module.bench, met = meeting(ours)
    errors = at_once(*[lambda: module.double[(4,)](torch.ones(100), 100)] * 2)
    assert met[0] != ours
    assert not (ours and errors)


def test_two_who_share_a_cache_tune_the_same_at_once(written, ours, driver, own_triton_cache):
    """As two processes: kernels of their own, and for ours a session each on one store."""
    modules = [written(double(OWN_CLOCK), ours) for _ in range(2)]
    bench, met = meeting(ours)
    for module in modules:
        module.bench = bench
        if ours:
            said = module.double.options
            module.double.options = msgspec.structs.replace(said, session=tw.Session())
    at_once(*[partial(module.double[(4,)], torch.ones(100), 100) for module in modules])
    assert met[0] != ours
    if ours:
        assert sorted(module.double.session.counts["searches"] for module in modules) == [0, 1]


def test_a_hook_of_a_config_keeps_results_from_being_kept(written, ours, driver, own_triton_cache):
    more = ", cache_results=True"
    text = double(more).replace("num_warps=1", "num_warps=1, pre_hook=print_nothing")
    text = text.replace("import torch\n", "import torch\n\n\ndef print_nothing(named):\n    pass\n\n", 1)
    assert launched(written(text, ours), driver) > 1
    assert (launched(written(text, ours), driver) == 1) == ours


def test_tuning_corrupts_what_is_changed_in_place(written, ours):
    def effect(launch):
        launch.args[0].mul_(2)

    with fake_driver(FakeDriver(effect=effect)) as driver:
        x = torch.ones(100)
        launched(written(double(), ours), driver, x)
        assert (x == 2).all().item() == ours
        assert len(driver.launches) > 2


def test_a_config_whose_results_are_wrong_wins_if_it_is_fast(written, ours):
    def effect(launch):
        launch.args[0].mul_(2 if launch.config["BLOCK"] < 128 else 3)

    with fake_driver(FakeDriver(seconds=by_block, effect=effect)) as driver:
        module, x = written(double(", restore_value=['x_ptr']"), ours), torch.randn(100)
        before = x.clone()
        launched(module, driver, x)
        assert x.equal(2 * before) == ours
    assert module.double.best_config.kwargs == {"BLOCK": 64 if ours else 128}


@pytest.mark.slow
def test_autotuning_fails_in_the_interpreter(tmp_path, ours):
    """Rung 3: the interpreter computes, and has no benchmark."""
    path = tmp_path / "interpreted.py"
    path.write_text(double() + "\n\nx = torch.ones(100)\ndouble[(4,)](x, 100)\nassert (x == 2).all()\n")
    patched = f"import runpy, tunewright.triton as t; t.install(); runpy.run_path({str(path)!r})"
    command = [sys.executable, "-c", patched] if ours else [sys.executable, str(path)]
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (ran.returncode == 0) == ours, ran.stderr
