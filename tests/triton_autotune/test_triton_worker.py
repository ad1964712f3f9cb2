"""Configs in a worker: what one of them does to the device or its process costs the worker, and the search goes on."""

import logging
import textwrap
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import triton
from worker_cards import COMPILER, HOST_MEMORY, OUT_OF_MEMORY, WRONG, make_driver, make_fake

import tunewright as tw
from tunewright.model.trial import Failure, Kind
from tunewright.pools.worker_process import WorkerProcess
from tunewright.stores import serialization
from tunewright.testing.hostile_device import (
    ABORT,
    DEVICE_ASSERT,
    HANG,
    ILLEGAL_ACCESS,
    HostileDriver,
    Misbehavior,
    hostile_device,
)
from tunewright.testing.triton_driver import fake_driver
from tunewright.triton import TritonTuner, sent_arguments, worker_attempt, worker_main
from tunewright.triton.configs import space_from_configs
from tunewright.triton.launching import LaunchCall
from tunewright.triton.searching import SearchRequest, workload_options

SCALE = """
import triton, triton.language as tl

@triton.autotune(
    configs=[triton.Config({{"BLOCK": b}}, num_warps=1) for b in (32, 64, 128)], key=["n"], worker=True{options}
)
@triton.jit
def scale(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, at < n) + seed, at < n)
"""
KERNELS = Path(__file__).parent / "kernels"
WITH_REFERENCE = ", reference=lambda x_ptr, seed: 2 * x_ptr + seed"
UPDATE = """
import triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=1) for b in (32, 128)], key=["n"], worker=True)
@triton.jit
def update(y_ptr, x_ptr, index_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y, x = tl.load(y_ptr + at, at < n), tl.load(x_ptr + tl.load(index_ptr + at, at < n), at < n)
    tl.store(y_ptr + at, y + x, at < n)
"""


@pytest.fixture(params=["forked here", pytest.param("forked by a server", marks=pytest.mark.slow)])
def workers(request, monkeypatch):
    """The workers that are started. Fast tests fork this process, which a real device would not survive."""
    if request.param == "forked here":
        monkeypatch.setattr(worker_attempt, "start_worker", lambda module: WorkerProcess.fork(worker_main.serve_call))
    start, started = worker_attempt.start_worker, []

    def start_worker(module):
        started.append(start(module))
        return started[-1]

    monkeypatch.setattr(worker_attempt, "start_worker", start_worker)
    return started


def faulty(*fault: str) -> HostileDriver:
    """The driver of this process, which works; in a worker it has a fault."""
    driver = make_driver()
    driver.installer = make_driver(*fault).installer
    return driver


def stored() -> tuple[list, dict]:
    """The decided blocks, and for each block how its last trial failed; None if it worked."""
    store, trials = tw.configure().store, {}
    for key in list(store.keys()):
        for trial in store.trials(key):
            trials[trial.config["BLOCK"]] = trial.outcome.kind if isinstance(trial.outcome, Failure) else None
    return [decision.config["BLOCK"] for decision in store.decisions()], trials


def tune(module, driver) -> HostileDriver:
    x, out = torch.ones(100), torch.zeros(100)
    with hostile_device(driver):
        module.scale[lambda meta: (-(-100 // meta["BLOCK"]),)](x, out, 100, 3)
        assert out[0] == 5
    return driver


FAULTS = [
    (ILLEGAL_ACCESS, 64, "", "", Kind.CRASHED, 2),
    (ABORT, 32, "64", "", Kind.CRASHED, 2),  # the default, while another is compared with it
]
MORE_FAULTS = [
    (DEVICE_ASSERT, 32, "", "", Kind.CRASHED, 2),
    (ILLEGAL_ACCESS, 32, "64", "", Kind.CRASHED, 2),
    (ILLEGAL_ACCESS, 32, "128", WITH_REFERENCE, Kind.CRASHED, 2),  # in the race of the finalists
    (ABORT, 32, "128", WITH_REFERENCE, Kind.CRASHED, 2),
    (ABORT, 64, "", "", Kind.CRASHED, 2),
    (COMPILER, 64, "", "", Kind.CRASHED, 2),
    (OUT_OF_MEMORY, 64, "", "", Kind.MEMORY, 1),
    (HOST_MEMORY, 64, "", "", Kind.MEMORY, 1),
    (WRONG, 64, "", "", Kind.WRONG, 1),
]


@pytest.mark.parametrize(
    ("what", "bad", "after", "options", "kind", "count"),
    [*FAULTS, *(pytest.param(*fault, marks=pytest.mark.slow) for fault in MORE_FAULTS)],
)
def test_the_fault_of_a_config_costs_at_most_its_worker(written, workers, what, bad, after, options, kind, count):
    tw.configure(memory_mb=1024)
    driver = tune(written(SCALE.format(options=options)), faulty(what, str(bad), after))
    decided, trials = stored()
    assert decided == [128]
    assert trials == {block: kind if block == bad else None for block in (32, 64, 128)}
    assert {launch.config["BLOCK"] for launch in driver.launches} == {128}, "this process tried a config"
    assert len(driver.launches) == 1
    assert not driver.is_lost
    assert len(workers) == count
    assert all(worker.closed for worker in workers)


@pytest.mark.slow
@pytest.mark.clock("a launch that ends within 4 s is not called hung")
@pytest.mark.parametrize("bad", [32, 64])
def test_a_config_that_hangs_is_killed_in_time(written, workers, bad):
    tw.configure(run_seconds=4.0, build_seconds=60.0)
    tune(written(SCALE.format(options="")), faulty(HANG, str(bad)))
    assert stored() == ([128], {block: Kind.HUNG if block == bad else None for block in (32, 64, 128)})


def test_a_kernel_that_updates_in_place_changes_the_callers_tensors_once(written, workers):
    y, x, index = torch.zeros(100), torch.arange(300.0), torch.arange(100) * 3
    before = x.clone()
    with hostile_device(faulty()) as driver:
        written(UPDATE).update[(4,)](y, x, index, 100)
    assert stored() == ([128], {32: None, 128: None})
    assert y.equal(x[::3])
    assert x.equal(before)
    assert len(driver.launches) == 1


@pytest.mark.slow
@pytest.mark.parametrize("x", [torch.ones(1).expand(100), torch.ones(200)[::2], torch.ones(100).half()])
def test_views_and_dtypes_are_the_same_in_a_worker(written, workers, x):
    with hostile_device(faulty()):
        written(SCALE.format(options="")).scale[(4,)](x, torch.zeros(100), 100, 3)
    assert stored() == ([128], {32: None, 64: None, 128: None})
    assert len(workers) == 1


@pytest.mark.slow
def test_a_worker_has_the_card_of_the_call(written, workers):
    module, driver = written(SCALE.format(options="")), faulty(ILLEGAL_ACCESS, "128", "", "1")
    for device, best, count in ((1, 64, 2), (0, 128, 3)):
        driver.set_current_device(device)
        tune(module, driver)
        assert driver.launches[-1].config["BLOCK"] == best
        assert len(workers) == count
    assert [launch.device for launch in driver.launches] == [1, 0]


@pytest.mark.slow
def test_the_next_search_does_not_run_what_ended_a_worker(written, workers):
    tune(written(SCALE.format(options="")), faulty(ABORT, "32"))
    assert len(workers) == 2
    with hostile_device(faulty(ABORT, "32")):
        written(SCALE.format(options="")).scale.tune(torch.ones(100), torch.zeros(100), 100, 3, grid=(4,))
    assert stored()[1][32] is Kind.CRASHED
    assert len(workers) == 4  # the first one of the second search did not know yet what to avoid
    assert workers[2].wait() == -9, "it was killed, and did not run the config"


@pytest.mark.slow
def test_a_grid_that_raises_for_a_config_is_a_failed_trial(written, workers):
    with hostile_device(faulty()):
        written(SCALE.format(options="")).scale[lambda meta: (4 // (meta["BLOCK"] - 64),)](
            torch.ones(100), torch.zeros(100), 100, 3
        )
    assert stored() == ([128], {32: None, 64: Kind.REFUSED, 128: None})
    assert len(workers) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in KERNELS.glob("*.py")))
def test_kernels_in_common_styles_are_tuned_in_a_worker(kernels, workers, caplog, name):
    kernel, grid, args, kwargs = kernels(name).calls()[0]
    tuner = kernel if isinstance(kernel, TritonTuner) else kernel.fn
    tuner.options = msgspec.structs.replace(tuner.options, worker=True)
    with caplog.at_level(logging.WARNING), fake_driver(make_fake()) as driver:
        kernel[grid](*args, **kwargs)
    assert len(list(tw.current_session().store.decisions())) == 1
    if name == "heuristics_outside":  # what is found by its name is not the tuned kernel
        assert "no other process can import it" in notes(caplog)[0]
    else:
        assert len(driver.launches) == len(workers) == 1


def notes(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if "not in a worker" in record.getMessage()]


@pytest.mark.slow
def test_what_cannot_run_in_a_worker_is_tuned_here_and_it_is_said(written, caplog):
    driver = make_driver()
    driver.installer = ()
    module = written(SCALE.format(options=""))
    with caplog.at_level(logging.WARNING):
        tune(module, driver)
        with hostile_device(driver):
            module.scale.tune(torch.ones(100), torch.zeros(100), 100, 3, grid=(4,), fresh=True)
    assert {launch.config["BLOCK"] for launch in driver.launches} == {32, 64, 128}
    assert notes(caplog) == ["scale is tuned in this process, not in a worker: the simulated driver has no `installer`"]


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("installer", "the simulated driver has no `installer`"),
        ("memory", "the device has only 63 MiB free"),
        ("function", "no other process can import it"),
        ("addresses", "it finds tensors by addresses in memory"),
        ("peers", "it talks to peers"),
        ("do_bench", "a benchmark of its own times it"),
        ("object", "an argument is of a kind that is not sent: object"),
    ],
)
def test_a_call_that_no_worker_can_make_is_refused_with_a_reason(written, why, said):
    options = {"peers": ", peers=True", "do_bench": ", do_bench=lambda call, quantiles: [1.0] * 3"}.get(why, "")
    driver, text = make_driver(), SCALE.format(options=options)
    driver.installer = () if why == "installer" else driver.installer
    driver.misbehavior = Misbehavior(memory=1 << 26 if why == "memory" else None)
    if why == "addresses":
        text = text.replace("    at =", "    unused = tl.pointer_type(tl.float32)\n    at =")
    if why == "function":
        head, _, kernel = text.partition("\n\n")
        text = f"{head}\ndef make():\n{textwrap.indent(kernel, '    ')}    return scale\nscale = make()\n"
    tuner, args = written(text).scale, (torch.ones(100), torch.zeros(100), 100, object() if why == "object" else 3)
    call = LaunchCall(args, {"grid": (4,), "warmup": False}, dict(zip(tuner.arg_names, args, strict=False)))
    session = tw.current_session()
    with hostile_device(driver):
        driver.adopt(*args[:2])
        configs = space_from_configs(tuner.configs)
        request = SearchRequest(tuner._problem(configs, dict(call.named)), configs, call)
        with pytest.raises(sent_arguments.CannotSend, match=said):
            worker_attempt.start_attempt(tuner, request, workload_options(tuner, session, configs), session.limits)


@pytest.mark.slow
def test_a_source_that_has_changed_on_the_disk_is_not_tuned_for_the_one_in_memory(written, caplog):
    module, driver = written(SCALE.format(options="")), make_driver()
    path = Path(module.__file__)
    path.write_text(path.read_text().replace("2 * tl.load", "tl.load"))
    with caplog.at_level(logging.WARNING):
        tune(module, driver)
    assert "its key is another one in a worker" in notes(caplog)[0]
    assert {launch.config["BLOCK"] for launch in driver.launches} == {32, 64, 128}


def rebuilt(sender: sent_arguments.CallSender) -> LaunchCall:
    """The call as a worker makes it, from the bytes of the message."""
    sent = serialization.decode(serialization.encode(sender.call), sent_arguments.SentCall)
    return worker_main.rebuild_call(sent, ["y", "x", "index", "n"], torch.device("cpu"), None)


def sent(module, *args, **kwargs) -> sent_arguments.CallSender:
    kwargs = {"grid": (4,), "warmup": False, **kwargs}
    named = dict(zip(module.update.arg_names, args, strict=False))
    return sent_arguments.CallSender(module.update.fn, LaunchCall(args, kwargs, named))


def test_arguments_are_sent_as_data(written, driver):
    base = torch.arange(64.0)
    args = (base[8:24], base[1::2], torch.tensor([3, 1, 2]), 7)
    values = {"a": (1, [True, None], "text"), "b": float("inf"), "c": triton.language.float16, "d": -(1 << 62)}
    sender = sent(written(UPDATE), *args, **values)
    call = rebuilt(sender)
    for own, other in zip(args[:3], call.args[:3], strict=True):
        assert own.equal(other)
        assert (own.stride(), own.dtype) == (other.stride(), other.dtype)
        assert own.data_ptr() % 16 == other.data_ptr() % 16
    assert call.args[0].untyped_storage().data_ptr() == call.args[1].untyped_storage().data_ptr() != base.data_ptr()
    assert call.args[3] == 7
    assert {name: call.kwargs[name] for name in values} == values
    sender.close()


def test_floats_that_are_too_large_are_random_and_indices_are_not(written, driver, monkeypatch):
    monkeypatch.setattr(sent_arguments, "COPIED_BYTES", 500)
    y, x, index = torch.zeros(10).half(), torch.zeros(1000), torch.arange(10)
    sender = sent(written(UPDATE), y, x, index, 10)
    call = rebuilt(sender)
    assert call.args[2].equal(index)
    assert call.args[0].equal(y)
    assert call.args[1].shape == x.shape
    assert 0.8 < call.args[1].std() < 1.2
    assert rebuilt(sender).args[1].equal(call.args[1])
    sender.close()
    with pytest.raises(sent_arguments.CannotSend, match="integers"):
        sent(written(UPDATE), y, x, torch.arange(1000), 10)


@pytest.mark.parametrize("value", [object(), 1 << 70, np.float32(1), torch.ones(2, device="meta")])
def test_other_arguments_are_not_sent(written, driver, value):
    with pytest.raises(sent_arguments.CannotSend, match="of a kind that is not sent"):
        sent(written(UPDATE), torch.ones(4), torch.ones(4), torch.arange(4), 4, z=value)
