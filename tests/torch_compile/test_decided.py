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
from tunewright.torch import decided, graph_space, shipping
from tunewright.torch.calls import Call
from tunewright.torch.decided import find_decided

FROZEN = graph_space.PLAIN.with_value("freezing", True)
EAGER = Config({"variant": "eager"})


def small(width=8):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()).eval()


@pytest.fixture
def session():
    return Session(Settings(), store=MemoryStore())


def decide(session, model, call, config):
    """Stores a config for the only graph of a model, as if it had won."""
    compiled = tt.compile(model, session=session, overrides={"graph *": dict(config)}, dynamic=False)
    with torch.no_grad():
        call.run(compiled)
    (decision,) = tt.decisions(compiled).values()
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
    model = decided.DecidedModel(session=Session(store=MemoryStore(), mode="frozen"), chooses_gemms=True)
    with pytest.raises(NoDecision, match=r'matmul 2x8x8 .* mode frozen does not tune.*tune="now"'), model.applied():
        selected[0](Product())
    assert model.decisions == []


def test_what_is_tuned_for_a_bundle_is_said_before_and_after(selected, monkeypatch, caplog) -> None:
    model = decided.DecidedModel(session=Session(store=MemoryStore(), mode="tune"), chooses_gemms=True)
    monkeypatch.setattr(Session, "tune", lambda self, problem, *_, **__: Decision(problem.key, problem.default))
    monkeypatch.setattr(decided.GemmSelector, "_evaluator", lambda self, gemm: None)
    with model.applied():
        selected[0](Product())
        assert "matmul 2x8x8 is tuned now, which may take minutes" in caplog.text
    assert model.notes == ["tuned for this bundle, since nothing was decided for it: matmul 2x8x8"]
    assert len(model.decisions) == 1
