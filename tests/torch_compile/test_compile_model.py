"""Models compiled in the way that wins, remembered: what needs no C++ compiler."""

import logging

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from tunewright.cli.explain import explain
from tunewright.errors import SpaceError
from tunewright.model.decision import Decision
from tunewright.model.trial import TrialRequest
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config
from tunewright.stores.memory import MemoryStore
from tunewright.torch import compile, decisions, graph_space, padding, tuning
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.compile_model import NAME, GraphTuner, TuningBackend, make_problem
from tunewright.torch.inductor import graphs
from tunewright.torch.inductor.dead_code import pruning, remove_dead_nodes
from tunewright.torch.inductor.kernel_names import OVERRIDDEN, decision_of, is_overridden, with_decision
from tunewright.torch.overrides import Overrides
from tunewright.torch.resolver import Resolver

EAGER = {"graph *": "eager"}


@pytest.fixture
def session(tmp_path):
    return Session(store=MemoryStore(), mode="tune", cache=str(tmp_path))


@pytest.fixture
def capture():
    """Returns the graph that a model is captured in, without compiling it."""

    def capture_graph(model, *args):
        captured, properties = [], []

        def keep(graph, inputs):
            captured.append(CapturedGraph(graph, inputs))
            properties.append((captured[0].why_untunable, captured[0].written))  # here, where no gradients are kept
            return graph

        with torch.set_grad_enabled(getattr(model, "training", False)):
            torch.compile(model, backend=keep)(*args)
        return captured[0]

    return capture_graph


def mlp(*sizes):
    return nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:])).eval()


def test_a_model_that_is_told_to_run_eagerly_is_not_compiled(session):
    model, x = mlp(8, 16, 4), torch.randn(3, 8)
    compiled = compile(model, session=session, overrides=EAGER)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))
    assert [str(one.config) for one in decisions(compiled).values()] == ["variant=eager"]
    assert session.counts["measurements"] == 0


def test_plain_torch_compile_is_chosen_for_inside_tuning_and_left_alone_outside(session):
    model, x = mlp(8, 16, 4), torch.randn(3, 8)
    before = graphs.hook("torch._inductor.compile_fx.compile_fx")
    with tuning(session, overrides=EAGER) as backend, torch.no_grad():
        assert torch.equal(torch.compile(model)(x), model(x))
    assert list(backend.decisions) == ["graph model 1"]
    assert graphs.hook("torch._inductor.compile_fx.compile_fx") is before


def test_in_frozen_mode_nothing_is_measured_and_the_default_is_torchs_own(tmp_path, monkeypatch):
    session = Session(store=MemoryStore(), mode="frozen", cache=str(tmp_path))
    asked = []
    monkeypatch.setattr(graphs, "compile_graph", lambda graph, inputs, settings, _: asked.append(settings) or graph)
    compiled = compile(mlp(8, 16, 4), session=session)
    with torch.no_grad():
        compiled(torch.randn(3, 8))
    (settings,) = asked
    assert set(settings) == {"post_grad_custom_post_pass"}
    assert (session.counts["measurements"], session.counts["default"]) == (0, 1)


def test_what_wants_gradients_is_left_to_pytorch(session, monkeypatch, caplog):
    asked = []
    monkeypatch.setattr(
        graphs, "compile_graph", lambda graph, inputs, settings, digest="": asked.append(settings) or graph
    )
    with caplog.at_level(logging.INFO):
        compile(nn.Linear(4, 4), session=session)(torch.randn(2, 4)).sum().backward()
    assert asked == [{}]
    assert "it needs gradients" in caplog.text


def test_random_results_are_left_to_pytorch(capture):
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    assert "random" in capture(Noisy().eval(), torch.ones(3)).why_untunable
    assert capture(mlp(8, 16, 4), torch.randn(3, 8)).why_untunable == ""


@pytest.mark.parametrize(
    ("fn", "runs"),
    [
        (lambda x: x.relu() + 1, 1),
        (lambda x: nn.functional.dropout(x, 0.5, training=False), 1),
        (lambda x: x + 0 * torch.rand_like(x), 2),
        (lambda x: x + torch.zeros_like(torch.empty_like(x)), 2),
        (lambda x: x + x.new_empty(3).fill_(1), 2),
    ],
    ids=["plain", "dropout that is off", "draws, and is the same", "empty", "a method that is empty"],
)
def test_a_graph_runs_twice_only_if_it_may_vary(fn, runs, monkeypatch) -> None:
    graph, counted = CapturedGraph(torch.fx.symbolic_trace(fn), [torch.ones(3)]), []
    run = graph._run
    monkeypatch.setattr(graph, "_run", lambda seed: counted.append(seed) or run(seed))
    assert graph.why_untunable == ""
    assert len(counted) == runs


def test_what_is_no_number_is_left_to_pytorch() -> None:
    nothing = CapturedGraph(torch.fx.symbolic_trace(lambda x: x / 0), [torch.zeros(3)])
    assert "not numbers" in nothing.why_untunable


def test_the_same_graph_has_the_same_key_whatever_the_weights_and_names(capture):
    x = torch.randn(3, 8)
    one, other = (make_problem(capture(mlp(8, 16, 4), x), {}).key for _ in range(2))
    assert one == other
    wrapped = make_problem(capture(nn.Sequential(mlp(8, 16, 4)).eval(), x), {}).key
    assert wrapped.source == one.source


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("signature", lambda: key_for(torch.randn(5, 8))),
        ("source", lambda: key_for(torch.randn(3, 8), sizes=(8, 17, 4))),
        ("source", lambda: key_for(torch.randn(3, 8).bfloat16(), dtype=torch.bfloat16)),
        ("mode", lambda: key_for(torch.randn(3, 8), options={"max_autotune": True})),
    ],
)
def test_what_changes_the_winner_changes_the_key(field, change):
    plain, other = key_for(torch.randn(3, 8)), change()
    torch.compiler.reset()
    assert any(name.startswith(field) for name in plain.differences(other))


def key_for(x, sizes=(8, 16, 4), dtype=torch.float32, options=None):
    found = []
    torch.compiler.reset()

    def keep(graph, inputs):
        found.append(make_problem(CapturedGraph(graph, inputs), options or {}).key)
        return graph

    with torch.no_grad():
        torch.compile(mlp(*sizes).to(dtype), backend=keep, dynamic=False)(x)
    return found[0]


def test_threads_and_instruction_set_are_in_the_key(capture):
    key = make_problem(capture(mlp(8, 16, 4), torch.randn(3, 8)), {}).key
    assert key.kernel == NAME
    assert key.mode["threads"] == "1"
    assert key.mode["isa"] == torch.backends.cpu.get_cpu_capability()
    assert key.toolchain["torch"] == torch.__version__.partition("+")[0]
    assert key.device.features


def test_weights_are_frozen_and_a_buffer_that_is_written_to_is_not(capture):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(1))
            self.register_buffer("scale", torch.ones(1))

        def forward(self, x):
            self.calls.add_(1)
            return self.linear(x) * self.scale

    captured = capture(Counting().eval(), torch.randn(2, 4))
    held = [captured.placeholders[i].name for i in captured.weights]
    assert len(held) == 3
    assert not any("calls" in name for name in held)
    assert any("scale" in name for name in held)


def test_a_frozen_graph_computes_the_same_and_knows_when_a_weight_was_written_to(capture):
    model, x = mlp(8, 16, 4), torch.randn(3, 8)
    captured = capture(model, x)
    frozen, anew = captured.frozen(), []

    def again(arguments):
        anew.append(arguments)
        return captured.graph

    with torch.no_grad():
        assert torch.equal(frozen.module(x)[0], model(x))
        call = frozen.bind(frozen.module, again)
        assert torch.equal(call(*captured.values)[0], model(x))
        assert not anew
        model[0].weight.mul_(2)
        assert torch.equal(call(*captured.values)[0], model(x))
        assert len(anew) == 1


@pytest.mark.slow
def test_a_weight_that_was_replaced_is_noticed_also_through_torch_compile(session):
    model, x = mlp(8, 16, 4), torch.randn(3, 8)
    frozen = {"graph *": {"variant": "inductor", "freezing": True}}
    compiled = compile(model, session=session, overrides=frozen)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        before = [value._version for value in model.parameters()]
        model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()}, assign=True)
        for value, writes in zip(model.parameters(), before, strict=True):
            while value._version < writes:  # as often written to as those that it replaces
                value.mul_(1)
        torch.testing.assert_close(compiled(x), model(x))


def test_results_are_judged_by_double_precision_not_by_eager(capture):
    captured = capture(mlp(64, 64, 64).bfloat16(), torch.randn(3, 64).bfloat16())
    expected = captured.expect(captured.values)
    exact, allowed = expected.results[0], expected.allowed
    assert exact.dtype is torch.float64
    assert expected.find_problem([exact.bfloat16()], allowed) is None
    wrong = exact.bfloat16() * (1 + 2 * allowed.relative)
    assert "relative error" in expected.find_problem([wrong], allowed)
    assert "shape" in expected.find_problem([exact.bfloat16()[:1]], allowed)
    assert "dtype" in expected.find_problem([exact], allowed)


def test_every_way_that_torch_offers_is_among_the_seeds():
    space = graph_space.make_space(gemms=True, padding=False)
    told = [
        graph_space.settings(one) if one[VARIANT] != graph_space.EAGER else "eager"
        for one in graph_space.seeds(space, huge=False)
    ]
    on_huge = [one for one in graph_space.seeds(space, huge=True) if one.get("freezing")]
    assert graph_space.settings(graph_space.default(space)) == {}
    assert "eager" in told
    assert {"freezing": True} in told
    assert {"freezing": True, "max_autotune": True} in told
    assert {"freezing": True, "max_autotune": True, "cpp_wrapper": True} in told
    assert {one["pages"] for one in on_huge} == {graph_space.HUGE}
    assert {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"} in told


def test_products_are_not_chosen_without_freezing():
    space = graph_space.make_space(gemms=True, padding=True)
    assert all(one["freezing"] or (one["products"] == "library" and not one["padding"])
               for one in space if one[VARIANT] == graph_space.INDUCTOR)  # fmt: skip


def test_an_override_that_cannot_be_says_why(capture):
    problem = make_problem(capture(mlp(8, 16, 4), torch.randn(3, 8)), {})
    told = Overrides({"graph *": {"freezing": False, "products": "chosen"}})
    with pytest.raises(SpaceError, match=r"'graph \*' is not possible.*chosen on frozen weights"):
        told.config(problem, ["graph model 1"])


def test_the_first_pattern_that_fits_wins(capture):
    problem = make_problem(capture(mlp(8, 16, 4), torch.randn(3, 8)), {})
    told = Overrides({"graph a*": "eager", "graph *": {"freezing": True}})
    assert told.config(problem, ["graph abc 1"]) == Config({VARIANT: "eager"})
    assert told.config(problem, ["graph b 1"])["freezing"] is True
    assert told.config(problem, ["matmul 1x2x3"]) is None


def test_a_kernel_says_which_decision_it_comes_from():
    name = with_decision("cpp_fused_addmm", "0123456789abcdef")
    assert decision_of(f"{name}_0") == "0123456789"
    assert decision_of("cpp_fused_addmm_0") == ""
    told = f"{with_decision('cpp_fused_addmm', OVERRIDDEN)}_0"
    assert is_overridden(told)
    assert decision_of(told) == ""
    assert not is_overridden(name)


def test_what_is_dead_is_removed_and_named_and_what_does_something_stays():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    dead = graph.call_function(torch.sin, (x,))
    graph.call_function(torch.cos, (dead,))
    kept = graph.call_function(torch.relu, (x,))
    graph.output(kept)
    assert remove_dead_nodes(graph) == ["cos (cos)", "sin (sin)"]
    assert [node.name for node in graph.nodes] == ["x", "relu", "output"]
    assert remove_dead_nodes(graph) == []


def test_two_prunings_make_the_same_key():
    one, other = pruning(), pruning()
    assert one.uuid() == other.uuid()
    assert type(one) is type(other)


def test_padding_is_decided_once_and_the_graph_computes_the_same(session, capture):
    model, x = mlp(33, 65, 17), torch.randn(5, 33)
    resolver = Resolver(session, Overrides({"padding *": {"columns": 16, "depth": 16}}), "4")
    frozen = capture(model, x).frozen()
    assert len(padding.pad(frozen.module, resolver)) == 2
    with torch.no_grad():
        torch.testing.assert_close(frozen.module(x)[0], model(x))
    assert list(resolver.decisions) == ["padding 5x65x33", "padding 5x17x65"]


def test_padding_is_raced_and_remembered(session):
    model = mlp(33, 65, 17)
    layer = padding.LinearLayer((5, 33), model[0].weight, model[0].bias)
    first = padding.decide_padding(layer, Resolver(session, Overrides(), "3,600s"))
    measured = session.counts["measurements"]
    again = padding.decide_padding(layer, Resolver(session, Overrides(), "3,600s"))
    assert measured > 1
    assert session.counts["measurements"] == measured
    assert again.config == first.config


def test_sizes_that_are_round_are_not_padded(capture):
    assert padding.can_pad(capture(mlp(33, 64, 16), torch.randn(5, 33)))
    assert not padding.can_pad(capture(mlp(32, 64, 16), torch.randn(5, 32)))
    assert "multiples of 8" in padding.why_not(torch.ones(16, 64))


class Cache(nn.Module):
    def forward(self, x, held):
        held.add_(x)
        return held * 2


def test_what_a_graph_writes_to_an_input_is_judged_and_put_back(capture, session):
    captured = capture(Cache().eval(), torch.ones(3), torch.zeros(3))
    (number,) = captured.written
    assert "held" in captured.placeholders[number].name
    tuner = GraphTuner(TuningBackend(session), captured, {})
    evaluator = tuner._evaluator()
    eager, before = Config({VARIANT: graph_space.EAGER}), captured.values[number].clone()
    assert evaluator(TrialRequest(eager)).works
    assert torch.equal(captured.values[number], before)
    tuner._workload.built[eager] = lambda x, held: ((x + held) * 2,)  # as returned, but nothing is written
    assert evaluator(TrialRequest(eager)).outcome.kind == "wrong"


@pytest.mark.slow
def test_a_graph_that_was_built_for_the_race_is_used(session, monkeypatch):
    built = []
    monkeypatch.setattr(graphs, "compile_graph", lambda graph, *_: built.append(graph) or graph)
    model, x = mlp(8, 16, 4), torch.randn(3, 8)
    compiled = compile(model, session=session, budget="3,60s")
    before, writes = x.clone(), [value._version for value in model.parameters()]
    with torch.no_grad():
        assert torch.equal(compiled(x), model(before))
    assert session.counts["measurements"] == 3
    assert len(built) <= 2  # of three configs, one is eager
    assert torch.equal(x, before)
    assert [value._version for value in model.parameters()] == writes


def test_explain_leads_from_a_generated_kernel_to_its_decision(tmp_path, capture):
    place = str(tmp_path / "store.sqlite")
    problem = make_problem(capture(mlp(8, 16, 4), torch.randn(3, 8)), {})
    Session(store=place, cache=str(tmp_path)).store.put(Decision(problem.key, problem.default))
    name = f"{with_decision('cpp_fused_relu', problem.key.digest)}_0"
    told = CliRunner().invoke(explain, ["--kernel", name, "--store", place])
    assert told.exit_code == 0, told.output
    assert "torch.graph" in told.output
    assert "products=library" in told.output
    strange = CliRunner().invoke(explain, ["--kernel", "cpp_fused_relu_0", "--store", place])
    assert strange.exit_code != 0
    assert "names no decision" in strange.output + str(strange.exception)
