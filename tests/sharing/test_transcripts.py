"""A race written down: small, and nobody can say afterwards that it showed something else."""

import logging

import msgspec
import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import StoreError
from tunewright.fronts.attesting import objection
from tunewright.sharing import wire
from tunewright.sharing.transcripts import SHELF, Transcript, enclosable, keep, transcript_of
from tunewright.stores.bundle import BundleStore, verified
from tunewright.stores.bundle.build import Enclosure, build, write
from tunewright.stores.layers import Layers
from tunewright.stores.memory import MemoryStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.torture import SCENARIOS, Ours, tuners
from tunewright.testing.torture.machine import Machine

STEPS = [1, 2, 3, 4, 40, 80]


def summed(x: tw.In("N"), *, step: int):
    return sum(float(x[i::step].sum()) for i in range(step))


@pytest.fixture(scope="module")
def decided():
    """A kernel tuned for real: its session and its decision."""
    session = tw.Session(store=MemoryStore(), pool="serial", strategy="exhaustive")
    kernel = tw.tune(tw.Space(tw.Knob("step", STEPS)), session=session, default={"step": 4})(summed)
    return session, kernel.decide(np.ones(1000))


def changed(transcript, **more):
    return msgspec.structs.replace(transcript, **more)


def test_a_race_is_kept_with_what_it_was_run_on(decided) -> None:
    session, decision = decided
    found = transcript_of(session.store, decision.key)
    assert found.configs[found.chosen] == decision.config
    assert found.configs[found.default] == tw.Config(step=4)
    assert len(found.times()) == len(found.configs) >= 2
    assert [len(own) for own in found.times()] == list(found.counts)
    assert '"shape":[1000]' in found.recipe
    assert (found.clock, found.seed, found.when) == (decision.evidence.clock, 0, decision.evidence.when)
    assert wire.decode(wire.encode(found), Transcript) == found


def test_it_is_small(decided) -> None:
    session, decision = decided
    found = transcript_of(session.store, decision.key)
    largest = changed(found, configs=found.configs * 9, counts=(200,) * 18, samples=bytes(18 * 200 * 4))
    assert len(wire.encode(found)) < 1000 + 6 * sum(found.counts)
    assert len(wire.encode(largest)) < 25_000


def test_a_choice_follows_from_its_samples_and_a_doctored_one_does_not(decided) -> None:
    session, decision = decided
    told = transcript_of(session.store, decision.key)
    assert objection(told, decision) is None
    other = next(i for i in range(len(told.configs)) if i != told.chosen)
    forged = decision.having(config=told.configs[other])
    assert "was chosen" in objection(told, forged)
    assert "is to be chosen" in objection(changed(told, chosen=other), forged)
    assert "another key" in objection(changed(told, key="0" * 64), decision)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_an_honest_race_is_never_objected_to_whatever_the_weather(scenario, monkeypatch) -> None:
    stores = []
    monkeypatch.setattr(tuners, "MemoryStore", lambda: stores.append(MemoryStore()) or stores[-1])
    for number in range(2):
        truth, weather = scenario.problem(number, 0)
        Ours().choose(Machine(truth, weather, scenario.seeds(number, 0)))
        (decision,) = stores[-1].decisions()
        assert objection(transcript_of(stores[-1], decision.key), decision) is None


def test_evidence_that_says_more_than_its_samples_is_seen(decided) -> None:
    session, decision = decided
    told, said = transcript_of(session.store, decision.key), decision.evidence
    faster = decision.having(evidence=msgspec.structs.replace(said, seconds=said.seconds * 0.9))
    assert "its time is said to be" in objection(told, faster)
    gain = msgspec.structs.replace(said.over_default, ratio=2 * said.over_default.ratio)
    assert "gain over the default" in objection(told, decision.having(evidence=changed(said, over_default=gain)))


def test_who_was_sent_away_without_being_slower_is_seen(decided) -> None:
    """The best is made to leave, so that another can win."""
    _, decision = decided
    rng = np.random.default_rng(0)
    fast, slow = (seconds * (1 + 0.01 * rng.random(12)) for seconds in (1e-3, 2e-3))
    configs = tuple(tw.Config(step=step) for step in (1, 2))

    def told(left, cut):
        samples = np.concatenate([fast[: cut or 12], slow]).astype("<f4").tobytes()
        return Transcript(decision.key.digest, configs, 1, (cut or 12, 12), (left, None), samples, 0.01)

    forged = decision.having(config=configs[1])
    assert "is to be chosen" in objection(told(None, None), forged)
    for cut in (2, 4, 6, 8, 12):
        assert "was not shown to be slower" in objection(told(cut, cut), forged)


def test_parts_that_do_not_fit_are_no_crash(decided) -> None:
    session, decision = decided
    told = transcript_of(session.store, decision.key)
    rounds = max(told.counts)
    nonsense = [
        {"chosen": 99}, {"default": -1}, {"counts": (rounds,)}, {"left": ()}, {"samples": told.samples[:-4]},
        {"samples": bytes(len(told.samples))}, {"margin": float("nan")}, {"margin": -1.0}, {"configs": ()},
        {"counts": tuple(-count for count in told.counts)}, {"left": (1,) * len(told.configs)},
    ]  # fmt: skip
    for more in nonsense:
        assert "do not fit" in objection(changed(told, **more), decision), more


def test_no_place_of_this_machine_travels(decided) -> None:
    session, decision = decided
    told = transcript_of(session.store, decision.key)
    assert changed(told, target="package.kernels:gemm").travelling().target == "package.kernels:gemm"
    for place in ("/somewhere/kernels.py:gemm", "kernels.py:gemm", "../x:gemm", ""):
        assert changed(told, target=place).travelling().target == ""


def test_a_store_without_shelves_keeps_nothing_and_one_that_fails_is_said(decided, caplog) -> None:
    session, decision = decided
    told = transcript_of(session.store, decision.key)
    keep(object(), told)
    assert transcript_of(object(), decision.key) is None

    class Full(MemoryStore):
        def keep(self, *args, **more):
            raise StoreError("no room")

    with caplog.at_level(logging.WARNING):
        keep(Full(), told)
    assert "a race is not kept: no room" in caplog.text


def test_it_is_found_on_any_shelf_and_enclosed_in_a_bundle(decided, tmp_path, caplog) -> None:
    session, decision = decided
    told = transcript_of(session.store, decision.key)
    store = SqliteStore(tmp_path / "some.sqlite")
    keep(Layers(MemoryStore(), store), told)
    assert transcript_of(store, decision.key) == told

    race = Enclosure("race", decision.key.digest, wire.encode(told))
    pin = write(tmp_path / "some.bundle", build([decision], [race]))
    bundle = BundleStore(verified(tmp_path / "some.bundle", pin=pin))
    assert transcript_of(Layers(MemoryStore(), bundle), decision.key) == told
    store.keep(SHELF, decision.key.digest, b"{}")
    with caplog.at_level(logging.WARNING):
        assert transcript_of(store, decision.key) is None
    assert "is passed over" in caplog.text


def test_only_the_race_that_made_a_decision_is_enclosed_with_it(decided) -> None:
    session, decision = decided
    told = transcript_of(session.store, decision.key)
    assert wire.decode(enclosable(session.store, decision), Transcript) == told.travelling()
    rolled_back = decision.having(evidence=changed(decision.evidence, when="2020-01-01T00:00:00+00:00"))
    assert enclosable(session.store, rolled_back) is None
    assert enclosable(session.store, decision.having(config=tw.Config(step=80))) is None
    assert enclosable(MemoryStore(), decision) is None
