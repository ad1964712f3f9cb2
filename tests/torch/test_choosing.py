"""Models compiled in the way that wins, remembered: what needs no C++ compiler."""

import logging

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from tunewright.backends.inductor import graphs
from tunewright.backends.inductor.names import TOLD, decision_of, is_told, marked
from tunewright.backends.inductor.pruning import pruned, pruning
from tunewright.cli.look import explain
from tunewright.errors import SpaceError
from tunewright.fronts.torch import padding, whole
from tunewright.fronts.torch.captured import Captured
from tunewright.fronts.torch.choosing import NAME, Choice, Chooser, posed
from tunewright.fronts.torch.deciding import Deciding
from tunewright.fronts.torch.overrides import Overrides
from tunewright.model.decision import Decision
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config
from tunewright.stores.memory import MemoryStore
from tunewright.torch import compile, decisions, tuning

EAGER = {"graph *": "eager"}


@pytest.fixture
def session(tmp_path):
    return Session(store=MemoryStore(), mode="tune", cache=str(tmp_path))


@pytest.fixture
def caught():
    """What a chooser would be handed for a model, without compiling it."""

    def catch(model, *args):
        found, looked = [], []

        def keep(graph, inputs):
            found.append(Captured(graph, inputs))
            looked.append((found[0].untouchable, found[0].written))  # here, where no gradients are kept
            return graph

        with torch.set_grad_enabled(getattr(model, "training", False)):
            torch.compile(model, backend=keep)(*args)
        return found[0]

    return catch


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
    with tuning(session, overrides=EAGER) as chooser, torch.no_grad():
        assert torch.equal(torch.compile(model)(x), model(x))
    assert list(chooser.decisions) == ["graph model 1"]
    assert graphs.hook("torch._inductor.compile_fx.compile_fx") is before


def test_in_frozen_mode_nothing_is_measured_and_the_default_is_torchs_own(tmp_path, monkeypatch):
    session = Session(store=MemoryStore(), mode="frozen", cache=str(tmp_path))
    asked = []
    monkeypatch.setattr(graphs, "compiled", lambda graph, inputs, settings, _: asked.append(settings) or graph)
    compiled = compile(mlp(8, 16, 4), session=session)
    with torch.no_grad():
        compiled(torch.randn(3, 8))
    (settings,) = asked
    assert set(settings) == {"post_grad_custom_post_pass"}
    assert (session.counts["measurements"], session.counts["default"]) == (0, 1)


def test_what_wants_gradients_is_left_to_pytorch(session, monkeypatch, caplog):
    asked = []
    monkeypatch.setattr(graphs, "compiled", lambda graph, inputs, settings, digest="": asked.append(settings) or graph)
    with caplog.at_level(logging.INFO):
        compile(nn.Linear(4, 4), session=session)(torch.randn(2, 4)).sum().backward()
    assert asked == [{}]
    assert "gradients are wanted" in caplog.text


def test_random_results_are_left_to_pytorch(caught):
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    assert "random" in caught(Noisy().eval(), torch.ones(3)).untouchable
    assert caught(mlp(8, 16, 4), torch.randn(3, 8)).untouchable == ""


def test_the_same_graph_has_the_same_key_whatever_the_weights_and_names(caught):
    x = torch.randn(3, 8)
    one, other = (posed(caught(mlp(8, 16, 4), x), {}).key for _ in range(2))
    assert one == other
    wrapped = posed(caught(nn.Sequential(mlp(8, 16, 4)).eval(), x), {}).key
    assert wrapped.source == one.source


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("signature", lambda: posed_for(torch.randn(5, 8))),
        ("source", lambda: posed_for(torch.randn(3, 8), sizes=(8, 17, 4))),
        ("source", lambda: posed_for(torch.randn(3, 8).bfloat16(), dtype=torch.bfloat16)),
        ("mode", lambda: posed_for(torch.randn(3, 8), options={"max_autotune": True})),
    ],
)
def test_what_changes_the_winner_changes_the_key(field, change):
    plain, other = posed_for(torch.randn(3, 8)), change()
    torch.compiler.reset()
    assert any(name.startswith(field) for name in plain.differences(other))


def posed_for(x, sizes=(8, 16, 4), dtype=torch.float32, options=None):
    found = []
    torch.compiler.reset()

    def keep(graph, inputs):
        found.append(posed(Captured(graph, inputs), options or {}).key)
        return graph

    with torch.no_grad():
        torch.compile(mlp(*sizes).to(dtype), backend=keep, dynamic=False)(x)
    return found[0]


def test_threads_and_instruction_set_are_in_the_key(caught):
    key = posed(caught(mlp(8, 16, 4), torch.randn(3, 8)), {}).key
    assert key.kernel == NAME
    assert key.mode["threads"] == "1"
    assert key.mode["isa"] == torch.backends.cpu.get_cpu_capability()
    assert key.toolchain["torch"] == torch.__version__.partition("+")[0]
    assert key.device.features


def test_weights_are_frozen_and_a_buffer_that_is_written_to_is_not(caught):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(1))
            self.register_buffer("scale", torch.ones(1))

        def forward(self, x):
            self.calls.add_(1)
            return self.linear(x) * self.scale

    captured = caught(Counting().eval(), torch.randn(2, 4))
    held = [captured.places[i].name for i in captured.weights]
    assert len(held) == 3
    assert not any("calls" in name for name in held)
    assert any("scale" in name for name in held)


def test_a_frozen_graph_computes_the_same_and_knows_when_a_weight_was_written_to(caught):
    model, x = mlp(8, 16, 4), torch.randn(3, 8)
    captured = caught(model, x)
    frozen, anew = captured.frozen(), []

    def again(arguments):
        anew.append(arguments)
        return captured.graph

    with torch.no_grad():
        assert torch.equal(frozen.module(x)[0], model(x))
        call = frozen.adapted(frozen.module, again)
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


def test_results_are_judged_by_double_precision_not_by_eager(caught):
    captured = caught(mlp(64, 64, 64).bfloat16(), torch.randn(3, 64).bfloat16())
    right, most = captured.right
    assert right[0].dtype is torch.float64
    assert captured.objection([right[0].bfloat16()]) is None
    assert "off by" in captured.objection([right[0].bfloat16() * (1 + 2 * most)])
    assert "shape" in captured.objection([right[0][:1]])


def test_every_way_that_torch_offers_is_among_the_seeds():
    offered = whole.space(products=True, padded=False)
    told = [whole.settings(one) if one[VARIANT] != whole.EAGER else "eager" for one in whole.seeds(offered, huge=False)]
    on_huge = [one for one in whole.seeds(offered, huge=True) if one.get("freezing")]
    assert whole.settings(whole.default(offered)) == {}
    assert "eager" in told
    assert {"freezing": True} in told
    assert {"freezing": True, "max_autotune": True} in told
    assert {"freezing": True, "max_autotune": True, "cpp_wrapper": True} in told
    assert {one["pages"] for one in on_huge} == {whole.HUGE}
    assert {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"} in told


def test_products_are_not_chosen_without_freezing():
    offered = whole.space(products=True, padded=True)
    assert all(one["freezing"] or (one["products"] == "library" and not one["padding"])
               for one in offered if one[VARIANT] == whole.INDUCTOR)  # fmt: skip


def test_an_override_that_cannot_be_says_why(caught):
    problem = posed(caught(mlp(8, 16, 4), torch.randn(3, 8)), {})
    told = Overrides({"graph *": {"freezing": False, "products": "chosen"}})
    with pytest.raises(SpaceError, match=r"'graph \*' cannot be.*chosen on frozen weights"):
        told.config(problem, ["graph model 1"])


def test_the_first_pattern_that_fits_wins(caught):
    problem = posed(caught(mlp(8, 16, 4), torch.randn(3, 8)), {})
    told = Overrides({"graph a*": "eager", "graph *": {"freezing": True}})
    assert told.config(problem, ["graph abc 1"]) == Config({VARIANT: "eager"})
    assert told.config(problem, ["graph b 1"])["freezing"] is True
    assert told.config(problem, ["matmul 1x2x3"]) is None


def test_a_kernel_says_which_decision_it_comes_from():
    name = marked("cpp_fused_addmm", "0123456789abcdef")
    assert decision_of(f"{name}_0") == "0123456789"
    assert decision_of("cpp_fused_addmm_0") == ""
    told = f"{marked('cpp_fused_addmm', TOLD)}_0"
    assert is_told(told)
    assert decision_of(told) == ""
    assert not is_told(name)


def test_what_is_dead_is_removed_and_named_and_what_does_something_stays():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    dead = graph.call_function(torch.sin, (x,))
    graph.call_function(torch.cos, (dead,))
    kept = graph.call_function(torch.relu, (x,))
    graph.output(kept)
    assert pruned(graph) == ["cos (cos)", "sin (sin)"]
    assert [node.name for node in graph.nodes] == ["x", "relu", "output"]
    assert pruned(graph) == []


def test_two_prunings_make_the_same_key():
    one, other = pruning(), pruning()
    assert one.uuid() == other.uuid()
    assert type(one) is type(other)


def test_padding_is_decided_once_and_the_graph_computes_the_same(session, caught):
    model, x = mlp(33, 65, 17), torch.randn(5, 33)
    deciding = Deciding(session, Overrides({"padding *": {"columns": 16, "depth": 16}}), "4")
    frozen = caught(model, x).frozen()
    assert len(padding.pad(frozen.module, deciding)) == 2
    with torch.no_grad():
        torch.testing.assert_close(frozen.module(x)[0], model(x))
    assert list(deciding.decisions) == ["padding 5x65x33", "padding 5x17x65"]


def test_padding_is_raced_and_remembered(session):
    model = mlp(33, 65, 17)
    product = ((5, 33), model[0].weight, model[0].bias)
    first = padding.decided(product, Deciding(session, Overrides(), "3,600s"))
    measured = session.counts["measurements"]
    again = padding.decided(product, Deciding(session, Overrides(), "3,600s"))
    assert measured > 1
    assert session.counts["measurements"] == measured
    assert again.config == first.config


def test_sizes_that_are_round_are_not_padded(caught):
    assert padding.possible(caught(mlp(33, 64, 16), torch.randn(5, 33)))
    assert not padding.possible(caught(mlp(32, 64, 16), torch.randn(5, 32)))
    assert "multiples of 8" in padding.why_not(torch.ones(16, 64))


def test_inputs_that_a_graph_writes_to_are_put_back_for_every_candidate(caught):
    class Cache(nn.Module):
        def forward(self, x, held):
            held.add_(x)
            return held * 2

    captured = caught(Cache().eval(), torch.ones(3), torch.zeros(3))
    (number,) = captured.written
    assert "held" in captured.places[number].name
    chooser = Chooser(Session(store=MemoryStore(), mode="tune"))
    restore, values = Choice(chooser, captured, {})._arguments()
    captured.graph(*values)
    assert not torch.equal(values[number], captured.values[number])
    restore()
    assert torch.equal(values[number], captured.values[number])


def test_explain_leads_from_a_generated_kernel_to_its_decision(tmp_path, caught):
    place = str(tmp_path / "store.sqlite")
    problem = posed(caught(mlp(8, 16, 4), torch.randn(3, 8)), {})
    Session(store=place, cache=str(tmp_path)).store.put(Decision(problem.key, problem.default))
    name = f"{marked('cpp_fused_relu', problem.key.digest)}_0"
    told = CliRunner().invoke(explain, ["--kernel", name, "--store", place])
    assert told.exit_code == 0, told.output
    assert "torch.graph" in told.output
    assert "products=library" in told.output
    strange = CliRunner().invoke(explain, ["--kernel", "cpp_fused_relu_0", "--store", place])
    assert strange.exit_code != 0
    assert "names no decision" in strange.output + str(strange.exception)
