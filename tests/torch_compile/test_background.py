"""Graphs are tuned by a child process while they are served; what won is verified before it is swapped in."""

import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch._inductor.custom_graph_pass import CustomGraphPass

from tunewright.backends.host import cpu
from tunewright.errors import BackendError, SettingsError, WriteRefused
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config
from tunewright.stores.memory import MemoryStore
from tunewright.torch import compile, compile_model, decisions, graph_space
from tunewright.torch.background import BackgroundTuner, TuningJob, TuningReply, TuningRequest, swappable
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.compile_model import make_problem
from tunewright.torch.inductor import graphs, traces
from tunewright.torch.inductor.adapter import inductor_config
from tunewright.torch.inductor.function_names import find_function, name_of
from tunewright.torch.process_state import ProcessState
from tunewright.torch.saved_graph import GraphSnapshot, LoadedGraph

EAGER = Config({VARIANT: graph_space.EAGER})
FROZEN = graph_space.PLAIN.with_value("freezing", True)


class Small(nn.Module):
    """Has a buffer, an odd size, a slice, an infinite number and an input that it writes to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(33, 16)
        self.register_buffer("scale", torch.full((16,), 2.0))

    def forward(self, x, held):
        held.add_(1)
        y = self.linear(x).masked_fill(x[..., :16] > 9, float("-inf")).softmax(-1)
        return (y * self.scale)[:, None].view(-1, 16).to(torch.float64), held.sum(dim=[0])


def small():
    torch.manual_seed(0)
    return Small().eval(), (torch.randn(5, 33), torch.zeros(3))


@pytest.fixture
def session(tmp_path):
    return Session(store=MemoryStore(), mode="tune", cache=str(tmp_path))


def captured_graph(model, *args, **options):
    found = []

    def keep(graph, inputs):
        found.append((CapturedGraph(graph, inputs), make_problem(CapturedGraph(graph, inputs), {}).key))
        return graph

    with torch.no_grad():
        torch.compile(model, backend=keep, **options)(*args)
    return found[0]


def test_a_graph_is_the_same_after_it_was_written_and_read(tmp_path) -> None:
    model, (x, held) = small()
    captured, key = captured_graph(model, x, held.clone(), dynamic=False)
    GraphSnapshot(captured).write(tmp_path)
    read = LoadedGraph(tmp_path)
    traces.propagate_sizes(read.module, read.inputs)
    again = CapturedGraph(read.module, read.inputs)
    with torch.no_grad():
        assert make_problem(again, {}).key == key
        assert again.weights == captured.weights
        for one, other in zip(captured.graph(*captured.values), again.graph(*again.values), strict=True):
            assert torch.equal(one, other)
    (product,) = [
        node for node in read.module.graph.nodes if node.op == "call_function" and "linear" in str(node.target)
    ]
    assert tuple(product.meta["example_value"].shape) == (5, 16)
    assert b"pickle" not in (tmp_path / "graph.json").read_bytes()


@pytest.mark.slow
def test_sizes_that_may_change_are_symbols_in_the_other_process_too(tmp_path) -> None:
    captured, key = captured_graph(lambda x: (x @ x.T).softmax(0) * 0.5, torch.ones(7, 4), dynamic=True)
    GraphSnapshot(captured).write(tmp_path)
    read, keys = LoadedGraph(tmp_path), []

    def keep(graph, inputs):
        keys.append(make_problem(CapturedGraph(graph, inputs), {}).key)
        return graph

    traces.trace_again(read.module, read.inputs, keep, weights=read.weights, symbolic=read.symbolic)
    assert keys[0].mode["shapes"] == key.mode["shapes"]
    assert keys[0].signature.args[-1] == key.signature.args[-1] == "float32[n0,n1]"


def own(x):
    return x + 1


def test_what_another_process_does_not_know_is_named() -> None:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(own, (graph.placeholder("x"),)))
    captured = CapturedGraph(torch.fx.GraphModule(nn.Module(), graph), [torch.ones(2)])
    with pytest.raises(BackendError, match=r"calls 'own', which other processes do not know"):
        GraphSnapshot(captured)


@pytest.mark.parametrize(
    "function", [torch.relu, nn.functional.gelu, torch.Tensor.add_, torch.ops.aten.add.Tensor, max]
)
def test_functions_are_found_by_their_names(function) -> None:
    assert find_function(name_of(function)) is function


@pytest.mark.parametrize("path", ["os.system", "torch.no_such_function", "subprocess.run", "builtins.eval", "builtins"])
def test_no_other_function_is_found(path) -> None:
    with pytest.raises(BackendError, match="use the release of torch"):
        find_function(path)


@pytest.mark.parametrize("path", ["torch.os.system", "torch.sys.exit", "torch.utils.data.os.remove"])
def test_no_module_that_torch_imports_is_a_way_to_other_functions(path) -> None:
    with pytest.raises(BackendError, match=r"may not name it|there is no"):
        find_function(path)


def make_job(seconds=None, write=lambda folder: None, name="graph model 1"):
    key = Key("torch.graph", "source", Signature(()), cpu(), {}, {})
    request = TuningRequest("", name, key, {}, {}, "1", "1", 1, ProcessState(), {})
    return TuningJob(request, write, seconds)


def reply_with(job, config):
    return TuningReply({job.request.name: Decision(job.request.key, config)})


def test_a_graph_is_served_until_the_first_call_after_its_job() -> None:
    job, adopted = make_job(), []
    call = swappable(lambda x: x, job, lambda reply, arguments: adopted.append(arguments) or (lambda x: -x))
    assert [call(1), call(2)] == [1, 2]
    job.finish(reply_with(job, EAGER))
    assert [call(3), call(4)] == [-3, -4]
    assert adopted == [(3,)]


@pytest.mark.parametrize("reply", [TuningReply(problem="it crashed"), TuningReply()])
def test_a_job_that_found_nothing_leaves_what_is_served(reply) -> None:
    job = make_job()
    call = swappable(lambda x: x, job, lambda *_: pytest.fail("nothing was decided"))
    job.finish(reply)
    assert [call(1), call(2)] == [1, 2]


def test_other_threads_are_served_while_one_swaps() -> None:
    job, swapping, served = make_job(), threading.Event(), threading.Event()

    def adopt(reply, arguments):
        swapping.set()
        assert served.wait(30)
        return lambda x: -x

    call = swappable(lambda x: x, job, adopt)
    job.finish(reply_with(job, EAGER))
    results = []
    thread = threading.Thread(target=lambda: results.append(call(1)))
    thread.start()
    assert swapping.wait(30)
    assert call(2) == 2
    served.set()
    thread.join(30)
    assert (results, call(3)) == ([-1], -3)


@pytest.fixture
def tuner():
    made = BackgroundTuner()
    yield made
    made.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_child_that_dies_costs_nothing_but_itself(tuner, number, caplog) -> None:
    job = make_job()
    tuner.submit(job)
    while tuner.worker is None:
        assert not job.done.wait(0.01)
    os.kill(tuner.worker, number)
    assert job.done.wait(60)
    assert job.reply is not None
    assert f"killed by {number.name}" in job.reply.problem
    assert "graph model 1 stays as PyTorch compiles it" in caplog.text


def test_a_child_is_killed_when_its_budget_is_over_and_the_next_job_is_done(tuner) -> None:
    late, next_one = make_job(0.1), make_job(write=lambda folder: (_ for _ in ()).throw(OSError("the disk is full")))
    tuner.submit(late)
    tuner.submit(next_one)
    assert late.done.wait(60)
    assert "it was not decided within 0.1 s" in late.reply.problem
    assert next_one.done.wait(60)
    assert "the disk is full" in next_one.reply.problem
    assert tuner.worker is None


def test_what_was_not_finished_is_said_and_the_child_is_ended(caplog) -> None:
    tuner, job = BackgroundTuner(), make_job(name="graph large 1")
    tuner.submit(job)
    while tuner.worker is None:
        assert not job.done.wait(0.01)
    pid = tuner.worker
    tuner.close()
    assert "graph large 1: not tuned yet" in caplog.text
    assert not is_alive(pid)


class KeptJobs:
    """Keeps jobs for the test to finish, in place of a child."""

    def __init__(self):
        self.jobs = []

    def submit(self, job):
        self.jobs.append(job)


@pytest.fixture
def kept(monkeypatch):
    made = KeptJobs()
    monkeypatch.setattr(compile_model, "background_tuner", lambda: made)
    return made


def served_by_eager(monkeypatch, wrong=()):
    """Compiles nothing; with one of the settings in `wrong`, results are wrong."""

    def compile_graph(graph, inputs, settings, digest=""):
        return (lambda *args: [2 * one for one in graph(*args)]) if set(wrong) & set(settings) else graph

    monkeypatch.setattr(graphs, "compile_graph", compile_graph)


def test_what_a_child_decided_is_verified_swapped_in_and_remembered(session, kept, monkeypatch) -> None:
    served_by_eager(monkeypatch)
    model, (x, held) = small()
    compiled = compile(model, session=session)
    with torch.no_grad():
        first = compiled(x, held.clone())
        assert decisions(compiled) == {}
        (job,) = kept.jobs
        job.finish(reply_with(job, EAGER))
        own_held = held.clone()
        second = compiled(x, own_held)
    assert all(map(torch.equal, first, second))
    assert own_held.tolist() == [1, 1, 1]  # verified on copies: written to once
    assert [str(one.config) for one in decisions(compiled).values()] == ["variant=eager"]
    assert session.store.get(job.request.key).config == EAGER
    assert session.counts["measurements"] == 0


def test_a_winner_that_is_wrong_here_is_not_used_and_named(session, kept, monkeypatch, caplog) -> None:
    served_by_eager(monkeypatch, wrong=["freezing"])
    model, (x, held) = small()
    compiled = compile(model, session=session, tune="background", budget="2,1s")
    with torch.no_grad():
        first = compiled(x, held.clone())
        (job,) = kept.jobs
        config = Config({**FROZEN, "padding": False})
        job.finish(reply_with(job, config))
        assert all(map(torch.equal, compiled(x, held.clone()), first))
    assert "what won is not used here: its relative error" in caplog.text
    assert decisions(compiled) == {}
    assert job.seconds == 1


class Doubling(CustomGraphPass):
    """A pass of a user, which does nothing."""

    def __call__(self, graph):
        pass

    def uuid(self):
        return "doubling 1"


def test_what_a_process_sets_for_all_models_is_in_the_key_and_sent_to_the_child(session, kept, monkeypatch) -> None:
    served_by_eager(monkeypatch)
    x, keys = torch.randn(3, 8), []
    changes = [
        inductor_config(),
        inductor_config(epilogue_fusion=False),
        inductor_config(compile_threads=1, fx_graph_cache=False),  # of which compiled code does not depend
        precision_of_products("high"),
    ]
    for change in changes:
        with change, torch.no_grad():
            compile(nn.Linear(8, 4).eval(), session=session)(x)
        keys.append(kept.jobs[-1].request.key)
    assert keys[0].differences(keys[1]) == {"mode.option epilogue_fusion": ("(absent)", "False")}
    assert keys[2] == keys[0]
    assert keys[0].differences(keys[3]) == {"mode.matmul_precision": ("(absent)", "tf32")}
    assert kept.jobs[1].request.state.inductor == {"epilogue_fusion": False}
    assert kept.jobs[3].request.state.legacy == "high"


SET_STATE = """
import sys, msgspec, torch
from tunewright.stores import serialization
from tunewright.torch.process_state import ProcessState
exec(sys.argv[1])
state = serialization.decode(serialization.encode(ProcessState.read()), ProcessState)
torch.compiler.reset()
sys.stdout.buffer.write(serialization.encode(state))
"""
APPLY_STATE = """
import sys
from tunewright.stores import serialization
from tunewright.torch.process_state import ProcessState, held_state
from tunewright.torch.inductor.adapter import inductor_config
state = serialization.decode(sys.stdin.buffer.read(), ProcessState)
state.apply()
with held_state(), inductor_config(freezing=True):
    assert ProcessState.read().changes() == state.changes(), ProcessState.read()
print(sorted(state.changes().items()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("pass", []),
        ("torch.set_float32_matmul_precision('medium')", [("matmul_precision", "bf16")]),
        ("torch.backends.mkldnn.matmul.fp32_precision = 'bf16'", [("matmul_precision", "bf16")]),
        ("torch.backends.mkldnn.conv.fp32_precision = 'tf32'", [("conv_precision", "tf32")]),
        (
            "torch.use_deterministic_algorithms(True, warn_only=True)",
            [("deterministic", "True"), ("option deterministic", "True"), ("warn_only", "True")],
        ),
        ("torch.backends.mkldnn.enabled = False", [("onednn", "False")]),
        (
            "import torch._inductor.config as c; c.cpp.cxx = (None, 'clang++'); c.freezing = False",
            [("option cpp.cxx", "[None, clang++]")],
        ),
    ],
)
def test_a_child_is_set_as_its_parent_is(line, changes) -> None:
    sent = subprocess.run([sys.executable, "-c", SET_STATE, line], capture_output=True, check=False)
    assert sent.returncode == 0, sent.stderr
    done = subprocess.run([sys.executable, "-c", APPLY_STATE], input=sent.stdout, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == str(changes)


def test_variables_that_set_what_inductor_does_are_in_the_key_and_others_are_not(monkeypatch) -> None:
    before = ProcessState.read().changes()
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    for name in (
        "CACHE_DIR",
        "COMPILE_THREADS",
        "FX_GRAPH_CACHE",
        "WORKER_START",
        "PROFILE_OUTPUT",
        "FILE_LOCK_TIMEOUT",
    ):
        monkeypatch.setenv(f"TORCHINDUCTOR_{name}", "3")
    assert ProcessState.read().changes() == before | {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}


def test_settings_are_described_alike_in_every_process() -> None:
    assert (
        graphs.describe_setting({"b": {3, 1}, "a": (1, [small, None])})
        == f"{{a: [1, [{__name__}.small, None]], b: [1, 3]}}"
    )


@contextmanager
def precision_of_products(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    yield
    torch.set_float32_matmul_precision(before)


def test_a_pass_of_the_user_is_named_in_the_key_and_stays_in_its_process(session, kept, monkeypatch, caplog) -> None:
    served_by_eager(monkeypatch)
    with inductor_config(post_grad_custom_pre_pass=Doubling()), torch.no_grad():
        compile(nn.Linear(8, 4).eval(), session=session)(torch.randn(3, 8))
    assert not kept.jobs
    assert "is not tuned in the background" in caplog.text
    assert graphs.describe_setting(Doubling()).endswith("Doubling 'doubling 1'")


class ReadOnly(MemoryStore):
    def put(self, decision, *, replace=True):
        raise WriteRefused("this store is read-only; choose another")


def test_a_store_that_cannot_be_written_costs_only_the_memory_of_it(tmp_path, kept, monkeypatch, caplog) -> None:
    served_by_eager(monkeypatch)
    model, (x, held) = small()
    compiled = compile(model, session=Session(store=ReadOnly(), mode="tune", cache=str(tmp_path)))
    with torch.no_grad():
        compiled(x, held.clone())
        kept.jobs[0].finish(reply_with(kept.jobs[0], EAGER))
        compiled(x, held.clone())
    assert len(decisions(compiled)) == 1
    assert "not stored, and used by this process alone: this store is read-only" in caplog.text


@pytest.mark.slow
def test_every_graph_and_every_length_has_a_job_of_its_own(session, kept, monkeypatch) -> None:
    served_by_eager(monkeypatch)

    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled = compile(broken, session=session, dynamic=False)
    with torch.no_grad():
        for length in (3, 4, 3):
            assert compiled(torch.ones(length)).tolist() == [4] * length
    assert [job.request.name for job in kept.jobs] == [f"graph broken {n}" for n in (1, 2, 3, 4)]
    assert len({job.request.key.digest for job in kept.jobs}) == 4


@pytest.mark.parametrize(
    ("options", "jobs"), [({"mode": "frozen"}, 0), ({"mode": "off"}, 0), ({"mode": "record"}, 0), ({"mode": "tune"}, 1)]
)
def test_only_the_mode_that_tunes_starts_a_child(options, jobs, tmp_path, kept, monkeypatch) -> None:
    served_by_eager(monkeypatch)
    with torch.no_grad():
        compile(torch.sin, session=Session(store=MemoryStore(), cache=str(tmp_path), **options))(torch.ones(3))
    assert len(kept.jobs) == jobs


def test_what_cannot_be_sent_is_served_and_said(session, kept, monkeypatch, caplog) -> None:
    served_by_eager(monkeypatch)
    with torch.no_grad():
        compile(torch.sin, session=session, options={"post_grad_custom_pre_pass": own})(torch.ones(3))
    assert kept.jobs == []
    assert "is not tuned in the background" in caplog.text
    assert "tune='now'" in caplog.text


def test_a_word_that_is_no_way_to_tune_is_refused() -> None:
    with pytest.raises(SettingsError, match="write 'background' or 'now'"):
        compile(torch.sin, tune="later")


class Asked(threading.Event):
    """Counts how often it is asked."""

    times = 0

    def is_set(self):
        self.times += 1
        return super().is_set()


def test_a_graph_that_was_swapped_asks_no_more() -> None:
    job = make_job()
    job.done = asked = Asked()
    call = swappable(lambda x: x, job, lambda *_: lambda x: -x)
    assert [call(1), call(2), asked.times] == [1, 2, 2]
    job.finish(reply_with(job, EAGER))
    assert [call(3), call(4), call(5), asked.times] == [-3, -4, -5, 3]


@pytest.mark.slow
@pytest.mark.parametrize(("dynamic", "changed"), [(False, {}), (True, {}), (False, {"epilogue_fusion": False})])
def test_a_real_child_tunes_a_model_that_is_served_meanwhile(tmp_path, dynamic, changed, caplog) -> None:
    with inductor_config(**changed), precision_of_products("high" if changed else "highest"):
        tune_in_a_child(tmp_path, dynamic, caplog)


def tune_in_a_child(tmp_path, dynamic, caplog) -> None:
    place = str(tmp_path / "store.sqlite")
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()
    session = Session(store=place, mode="tune", cache=str(tmp_path))
    compiled = compile(model, session=session, tune="background", budget="3,20m", each="1,60s", dynamic=dynamic)
    with torch.no_grad(), caplog.at_level(logging.INFO):
        x = torch.randn(16, 64)
        torch.testing.assert_close(compiled(x), model(x))
        (job,) = compile_model._BACKENDS[compiled].jobs
        assert job.done.wait(1500)
        assert job.reply.problem == ""
        torch.testing.assert_close(compiled(x), model(x))
        if dynamic:
            for rows in (3, 40):
                x = torch.randn(rows, 64)
                torch.testing.assert_close(compiled(x), model(x))
    assert "is swapped" in caplog.text
    assert "graph Sequential 1" in decisions(compiled)
    torch.compiler.reset()
    strict = Session(store=place, mode="strict", cache=str(tmp_path))
    with torch.no_grad():
        compile(model, session=strict, dynamic=dynamic)(torch.randn(16, 64))
    assert strict.counts["exact"] >= 1


@pytest.mark.slow
def test_a_dynamic_graph_is_compiled_again_for_all_sizes_after_its_trace_has_ended(session, kept, caplog) -> None:
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()
    compiled = compile(model, session=session, dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.INFO):
        for rows in (16, 5):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(compiled(x), model(x))
        (job,) = kept.jobs
        job.finish(reply_with(job, FROZEN))
        for rows in (7, 16, 40):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(compiled(x), model(x))
    assert "is swapped: variant=inductor freezing=True" in caplog.text
    assert len(kept.jobs) == 1


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_child_ends_with_the_process_that_started_it(end, wait_until) -> None:
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(os.path.dirname(__file__))!r})
from test_background import make_job
from tunewright.torch.background import background_tuner
job = make_job(write=lambda folder: None)
tuner = background_tuner()
tuner.submit(job)
while tuner.worker is None:
    assert not job.done.wait(0.01)
print(tuner.worker, flush=True)
{end}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    wait_until(lambda: not is_alive(pid), "the end of the child")
