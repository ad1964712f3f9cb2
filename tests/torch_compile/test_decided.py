"""A model is shipped as it was decided, with its own decisions only."""

from contextlib import contextmanager

import pytest
import torch

import tunewright.torch as tt
from tunewright.errors import NoDecision
from tunewright.model.decision import Decision
from tunewright.session import Session
from tunewright.settings import Settings
from tunewright.spaces.config import Config
from tunewright.stores.memory import MemoryStore
from tunewright.torch import decided, graph_space, matmuls, shipping
from tunewright.torch.calls import Call
from tunewright.torch.decided import find_decided
from tunewright.torch.diagnostics.numerics import relative_error
from tunewright.torch.inductor import adapter
from tunewright.torch.product_shares import ProductShares
from tunewright.torch.thread_limit import limited

FROZEN = graph_space.PLAIN.with_value("freezing", True)
EAGER = Config({"variant": "eager"})


def small(width=8):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()).eval()


@pytest.fixture
def session():
    return Session(Settings(), store=MemoryStore())


def decide(session, model, call, config, numerics=()):
    """Stores a config for the only graph of a model, as if it had won; products in it are tuned for a moment."""
    compiled = tt.compile(
        model, session=session, overrides={"graph *": dict(config)}, dynamic=False, numerics=numerics, each="2,2s"
    )
    with torch.no_grad():
        call.run(compiled)
    decision = next(found for name, found in tt.decisions(compiled).items() if name.startswith("graph"))
    session.store.put(Decision(decision.key, decision.config))
    torch.compiler.reset()
    return decision.key


@pytest.mark.slow
def test_what_was_decided_is_found_with_this_models_decisions_only(session) -> None:
    model, call = small(), Call(torch.ones(2, 8))
    own = decide(session, model, call, FROZEN)
    decide(session, small(16), Call(torch.ones(2, 16)), EAGER)
    found = find_decided(model, [call], session)
    assert found.settings == {"freezing": True}
    assert [decision.key for decision in found.decisions] == [own]
    assert found.notes == []


@pytest.mark.parametrize(("config", "said"), [(None, "nothing was decided"), (EAGER, "eager mode was decided")])
def test_what_cannot_be_shipped_as_decided_is_said(config, said, session) -> None:
    model, call = small(), Call(torch.ones(2, 8))
    if config is not None:
        decide(session, model, call, config)
    found = find_decided(model, [call], session)
    assert found.settings == {}
    assert said in found.notes[0]


@pytest.mark.slow
def test_a_bundle_is_compiled_as_decided_and_right(session, tmp_path) -> None:
    model, call = small(), Call(torch.randn(2, 8))
    own = decide(session, model, call, FROZEN)
    made = shipping.compile_bundle(model, [call], {}, session=session)
    digest = made.write(tmp_path / "m.bundle", None)
    assert [decision.key for decision in made.decisions] == [own]
    loaded = tt.load(tmp_path / "m.bundle", pin=digest)
    assert loaded.manifest.compatibility.config == {"freezing": "True"}
    torch.testing.assert_close(loaded(*call.args), model(*call.args))


class Product:
    """A matrix product as Inductor meets it, as far as it is needed to look its decision up."""

    operator, fused, layer, dtype, threads = "addmm", "", "", torch.float32, 1
    sizes, operands, kinds = (2, 8, 8), ("float32[2,8]",), ["library", "template"]


class Unbiased(Product):
    """The same product, called without its bias."""

    operator, operands = "packed_linear", ("float32[2,8]", "float32[8,8]")


@pytest.fixture
def selected(monkeypatch):
    """The functions that were to select products."""
    found = []

    @contextmanager
    def select_gemms(select):
        found.append(select)
        yield

    monkeypatch.setattr(decided.gemms, "select_gemms", select_gemms)
    return found


def test_a_product_that_was_not_decided_is_refused_in_a_mode_that_does_not_tune(selected) -> None:
    model = decided.DecidedModel(session=Session(store=MemoryStore(), mode="frozen"), shares=ProductShares({}))
    with pytest.raises(NoDecision, match=r'matmul 2x8x8 .* mode frozen does not tune.*tune="now"'), model.applied():
        selected[0](Product())
    assert model.decisions == []


def test_what_is_tuned_for_a_bundle_is_said_before_and_after(selected, monkeypatch, caplog) -> None:
    model = decided.DecidedModel(session=Session(store=MemoryStore(), mode="tune"), shares=ProductShares({}))
    monkeypatch.setattr(Session, "tune", lambda self, problem, *_, **__: Decision(problem.key, problem.default))
    monkeypatch.setattr(decided.GemmSelector, "_evaluator", lambda self, gemm: None)
    with model.applied():
        selected[0](Product())
        assert "matmul 2x8x8 is tuned now, which may take minutes" in caplog.text
    assert model.notes == ["tuned for this bundle, since nothing was decided for it: matmul 2x8x8"]
    assert len(model.decisions) == 1


def store_product(session, product, config="template"):
    """Stores how a product is computed, as if that had won."""
    decision = Decision(matmuls.make_problem(product).key, Config({"variant": config}))
    session.store.put(decision)
    return decision


def frozen_model():
    session = Session(store=MemoryStore(), mode="frozen")
    return session, decided.DecidedModel(session=session, shares=ProductShares({}))


def test_a_product_is_shipped_as_was_decided_for_it_under_another_operator(selected, caplog) -> None:
    session, model = frozen_model()
    decision = store_product(session, Unbiased())
    with model.applied():
        chosen, named_after = selected[0](Product())
    assert (chosen, named_after) == ("template", decision.key.digest)
    assert [found.key for found in model.decisions] == [decision.key]
    assert caplog.text == ""


def test_what_was_decided_for_the_product_itself_comes_first(selected) -> None:
    session, model = frozen_model()
    store_product(session, Unbiased())
    own = store_product(session, Product(), "library")
    with model.applied():
        assert selected[0](Product()) == ("library", own.key.digest)


@pytest.fixture
def several_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("product", [Product, Unbiased], ids=["the product", "called in another way"])
def test_a_product_is_shipped_as_was_decided_with_the_threads_of_its_graph(selected, product, several_threads) -> None:
    session, model = frozen_model()
    with limited(1):
        decision = store_product(session, product())
    model.threads = 1
    with model.applied():
        assert selected[0](Product()) == ("template", decision.key.digest)
    assert model.notes == []


def test_a_product_that_was_decided_with_other_threads_than_its_graph_says_nothing(selected, several_threads) -> None:
    session, model = frozen_model()
    with limited(1):
        store_product(session, Product())
    model.threads = 2
    with pytest.raises(NoDecision, match="matmul 2x8x8"), model.applied():
        selected[0](Product())


def test_a_bundle_says_of_its_products_that_they_were_decided_with_fewer_threads(session, monkeypatch) -> None:
    config = Config({**FROZEN.with_value("products", "chosen"), "threads": 1})
    monkeypatch.setattr(Session, "find_decision", lambda self, problem: Decision(problem.key, config))
    found = find_decided(small(), [Call(torch.ones(2, 8))], session)
    assert found.threads == 1
    assert "with 1 threads, but a bundle uses all" in found.notes[0]
    assert "products are computed as was decided with so many" in found.notes[0]


def test_the_same_product_is_found_behind_many_others_that_are_nearer(selected) -> None:
    session, model = frozen_model()
    far = type("Far", (Unbiased,), {"operands": ("float32[2,8]", "float32[8,8]", "float32[8]"), "fused": "relu"})
    for size in range(9, 49):
        near = type("Near", (Product,), {"operands": (f"float32[2,{size}]",)})
        store_product(session, near())
    decision = store_product(session, far())
    with model.applied():
        assert selected[0](Product()) == ("template", decision.key.digest)


@pytest.mark.parametrize(
    "other",
    [
        {"sizes": (2, 8, 16)},
        {"operands": ("bfloat16[2,8]", "bfloat16[8,8]")},
        {"kinds": ["library", "template", "unpacked"], "config": "unpacked"},
    ],
    ids=["other sizes", "another dtype", "a config that it has not"],
)
def test_another_product_says_nothing_about_a_shipped_one(selected, other) -> None:
    session, model = frozen_model()
    config = other.pop("config", "template")
    store_product(session, type("Other", (Unbiased,), other)(), config)
    with pytest.raises(NoDecision, match="matmul 2x8x8"), model.applied():
        selected[0](Product())


def test_a_product_that_hardly_matters_is_shipped_as_the_library_computes_it(selected) -> None:
    _, model = frozen_model()
    model.shares = ProductShares({(2, 8, 8): 1.0, (512, 512, 512): 1000.0})
    with model.applied():
        assert selected[0](Product())[0] == "library"
    assert model.decisions == []


def test_what_was_decided_for_a_product_that_hardly_matters_is_used(selected) -> None:
    session, model = frozen_model()
    model.shares = ProductShares({(2, 8, 8): 1.0, (512, 512, 512): 1000.0})
    own = store_product(session, Product())
    with model.applied():
        assert selected[0](Product()) == ("template", own.key.digest)


def test_keys_of_shipped_products_lack_what_compiling_ahead_sets_for_itself(selected) -> None:
    session, model = frozen_model()
    decision = store_product(session, Product())
    with model.applied(), adapter.inductor_config(cpp_wrapper=True, freezing=True):
        assert selected[0](Product()) == ("template", decision.key.digest)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["full", "bfloat16", "int8"])
def test_a_bundle_has_the_products_and_the_precision_that_were_decided(precision, session, tmp_path) -> None:
    model, call = small(64), Call(torch.randn(4, 64))
    numerics = [precision] if precision != "full" else []
    chosen = FROZEN.with_value("products", "chosen")
    own = decide(session, model, call, chosen.with_value("precision", precision) if numerics else chosen, numerics)
    frozen = Session(Settings(mode="frozen"), store=session.store)
    made = shipping.compile_bundle(model, [call], {}, session=frozen, numerics=numerics)
    assert made.notes == []
    assert own in [decision.key for decision in made.decisions]
    loaded = tt.load(tmp_path / "m.bundle", pin=made.write(tmp_path / "m.bundle", None))
    assert precision in loaded.manifest.compatibility.config.get("precision", "full")
    with torch.no_grad():
        error = relative_error([loaded(*call.args)], [model(*call.args).double()])
    assert error < 1e-6 if precision == "full" else 1e-4 < error < 0.05


@pytest.mark.slow
def test_a_bundle_is_not_reduced_unless_that_is_allowed_again(session) -> None:
    model, call = small(64), Call(torch.randn(4, 64))
    decide(session, model, call, FROZEN.with_value("precision", "bfloat16"), ["bfloat16"])
    found = find_decided(model, [call], session)
    assert (found.precision, found.notes[0][:19]) == ("full", "nothing was decided")
