"""A race written down: small, and nobody can say afterwards that it showed something else."""

import logging

import msgspec
import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import StoreError
from tunewright.shipping.transcript_check import find_inconsistency
from tunewright.stores import serialization
from tunewright.stores.bundle import BundleStore, verify_bundle
from tunewright.stores.bundle.build import Attachment, build, write
from tunewright.stores.memory import MemoryStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.tiered import TieredStore
from tunewright.stores.transcripts import NAMESPACE, Transcript, encode_for_bundle, keep_transcript, load_transcript
from tunewright.testing.torture import SCENARIOS, TunewrightTuner, tuners
from tunewright.testing.torture.machine import SimulatedMachine

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
    found = load_transcript(session.store, decision.key)
    assert found.configs[found.chosen] == decision.config
    assert found.configs[found.default] == tw.Config(step=4)
    assert len(found.times()) == len(found.configs) >= 2
    assert [len(own) for own in found.times()] == list(found.counts)
    assert '"shape":[1000]' in found.recipe
    assert (found.clock, found.seed, found.when) == (decision.evidence.clock, 0, decision.evidence.when)
    assert serialization.decode(serialization.encode(found), Transcript) == found


def test_it_is_small(decided) -> None:
    session, decision = decided
    found = load_transcript(session.store, decision.key)
    largest = changed(found, configs=found.configs * 9, counts=(200,) * 18, samples=bytes(18 * 200 * 4))
    assert len(serialization.encode(found)) < 1000 + 6 * sum(found.counts)
    assert len(serialization.encode(largest)) < 25_000


def test_a_choice_follows_from_its_samples_and_a_doctored_one_does_not(decided) -> None:
    session, decision = decided
    told = load_transcript(session.store, decision.key)
    assert find_inconsistency(told, decision) is None
    other = next(i for i in range(len(told.configs)) if i != told.chosen)
    forged = decision.replace(config=told.configs[other])
    assert "was chosen" in find_inconsistency(told, forged)
    assert "its samples choose" in find_inconsistency(changed(told, chosen=other), forged)
    assert "another key" in find_inconsistency(changed(told, key="0" * 64), decision)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_an_honest_race_is_never_objected_to_under_any_disturbance(scenario, monkeypatch) -> None:
    stores = []
    monkeypatch.setattr(tuners, "MemoryStore", lambda: stores.append(MemoryStore()) or stores[-1])
    for number in range(2):
        truth, disturbance = scenario.problem(number, 0)
        TunewrightTuner().choose(SimulatedMachine(truth, disturbance, scenario.seeds(number, 0)))
        (decision,) = stores[-1].decisions()
        assert find_inconsistency(load_transcript(stores[-1], decision.key), decision) is None


def test_evidence_that_says_more_than_its_samples_is_seen(decided) -> None:
    session, decision = decided
    told, said = load_transcript(session.store, decision.key), decision.evidence
    faster = decision.replace(evidence=msgspec.structs.replace(said, seconds=said.seconds * 0.9))
    assert "its time is claimed to be" in find_inconsistency(told, faster)
    gain = msgspec.structs.replace(said.over_default, ratio=2 * said.over_default.ratio)
    assert "gain over the default" in find_inconsistency(
        told, decision.replace(evidence=changed(said, over_default=gain))
    )


def test_who_was_sent_away_without_being_slower_is_seen(decided) -> None:
    """The best is made to leave, so that another can win."""
    _, decision = decided
    rng = np.random.default_rng(0)
    fast, slow = (seconds * (1 + 0.01 * rng.random(12)) for seconds in (1e-3, 2e-3))
    configs = tuple(tw.Config(step=step) for step in (1, 2))

    def told(left, cut):
        samples = np.concatenate([fast[: cut or 12], slow]).astype("<f4").tobytes()
        return Transcript(decision.key.digest, configs, 1, (cut or 12, 12), (left, None), samples, 0.01)

    forged = decision.replace(config=configs[1])
    assert "its samples choose" in find_inconsistency(told(None, None), forged)
    for cut in (2, 4, 6, 8, 12):
        assert "was not shown to be slower" in find_inconsistency(told(cut, cut), forged)


def test_parts_that_do_not_fit_are_no_crash(decided) -> None:
    session, decision = decided
    told = load_transcript(session.store, decision.key)
    rounds = max(told.counts)
    nonsense = [
        {"chosen": 99}, {"default": -1}, {"counts": (rounds,)}, {"left": ()}, {"samples": told.samples[:-4]},
        {"samples": bytes(len(told.samples))}, {"margin": float("nan")}, {"margin": -1.0}, {"configs": ()},
        {"counts": tuple(-count for count in told.counts)}, {"left": (1,) * len(told.configs)},
    ]  # fmt: skip
    for more in nonsense:
        assert "contradicts itself" in find_inconsistency(changed(told, **more), decision), more


def test_no_place_of_this_machine_travels(decided) -> None:
    session, decision = decided
    told = load_transcript(session.store, decision.key)
    assert changed(told, target="package.kernels:gemm").without_local_path().target == "package.kernels:gemm"
    for place in ("/somewhere/kernels.py:gemm", "kernels.py:gemm", "../x:gemm", ""):
        assert changed(told, target=place).without_local_path().target == ""


def test_a_store_without_shelves_keeps_nothing_and_one_that_fails_is_said(decided, caplog) -> None:
    session, decision = decided
    told = load_transcript(session.store, decision.key)
    keep_transcript(object(), told)
    assert load_transcript(object(), decision.key) is None

    class Full(MemoryStore):
        def keep(self, *args, **more):
            raise StoreError("no room")

    with caplog.at_level(logging.WARNING):
        keep_transcript(Full(), told)
    assert "cannot store the transcript of a race: no room" in caplog.text


def test_it_is_found_on_any_shelf_and_enclosed_in_a_bundle(decided, tmp_path, caplog) -> None:
    session, decision = decided
    told = load_transcript(session.store, decision.key)
    store = SqliteStore(tmp_path / "some.sqlite")
    keep_transcript(TieredStore(MemoryStore(), store), told)
    assert load_transcript(store, decision.key) == told

    race = Attachment("race", decision.key.digest, serialization.encode(told))
    pin = write(tmp_path / "some.bundle", build([decision], [race]))
    bundle = BundleStore(verify_bundle(tmp_path / "some.bundle", pin=pin))
    assert load_transcript(TieredStore(MemoryStore(), bundle), decision.key) == told
    store.keep(NAMESPACE, decision.key.digest, b"{}")
    with caplog.at_level(logging.WARNING):
        assert load_transcript(store, decision.key) is None
    assert "is skipped" in caplog.text


def test_only_the_race_that_made_a_decision_is_enclosed_with_it(decided) -> None:
    session, decision = decided
    told = load_transcript(session.store, decision.key)
    assert serialization.decode(encode_for_bundle(session.store, decision), Transcript) == told.without_local_path()
    rolled_back = decision.replace(evidence=changed(decision.evidence, when="2020-01-01T00:00:00+00:00"))
    assert encode_for_bundle(session.store, rolled_back) is None
    assert encode_for_bundle(session.store, decision.replace(config=tw.Config(step=80))) is None
    assert encode_for_bundle(MemoryStore(), decision) is None
