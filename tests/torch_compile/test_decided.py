"""A model is shipped as it was decided, with its own decisions only."""

import pytest
import torch

import tunewright.torch as tt
from tunewright.model.decision import Decision
from tunewright.session import Session
from tunewright.settings import Settings
from tunewright.spaces.config import Config
from tunewright.stores.memory import MemoryStore
from tunewright.torch import graph_space, shipping
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
    decided = find_decided(model, [call], session)
    assert decided.settings == {"freezing": True}
    assert [decision.key for decision in decided.decisions] == [own]
    assert decided.notes == []


@pytest.mark.parametrize(("config", "said"), [(None, "nothing was decided"), (EAGER, "eager mode was decided")])
def test_what_cannot_be_shipped_as_decided_is_said(config, said, session) -> None:
    model, call = small(), Call(torch.ones(2, 8))
    if config is not None:
        decide(session, model, call, config)
    decided = find_decided(model, [call], session)
    assert decided.settings == {}
    assert said in decided.notes[0]


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
