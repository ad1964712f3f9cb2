import logging

import msgspec
import pytest

import tunewright as tw
from tunewright.errors import BundleError, NoDecision, SettingsError
from tunewright.model.decision import Decision, Evidence, Problem, Tier
from tunewright.model.signature import Signature
from tunewright.shapes.cover import cover
from tunewright.shapes.rules import fit_rule
from tunewright.shapes.serving import rule_decision, rule_key
from tunewright.spaces.shape_rule import RuleLeaf, RuleSplit, ShapeRule
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY, other_key

SPACE = tw.Space(tw.Knob("x", [1, 2, 3]))
LOW = RuleLeaf({"x": 1}, ((4,), (8,)))
HIGH = RuleLeaf({"x": 2}, ((64,),))
RULE = ShapeRule(KEY.kernel, ("M",), RuleSplit("M", 8, LOW, HIGH))


def key_of(m, **changes):
    return msgspec.structs.replace(other_key(**changes), signature=Signature(KEY.signature.args, {"M": m}))


def stored_rule(rule=RULE, **changes):
    return Decision(rule_key(key_of(1, **changes)), X1, Evidence(1.0, 1.0, 1.0, rule=rule))


X1, X3 = tw.Config(x=1), tw.Config(x=3)


def session(*decisions, mode="frozen"):
    store = MemoryStore()
    for decision in decisions:
        store.put(decision)
    return tw.Session(mode=mode, store=store)


def answer(session, m, **changes):
    return session.lookup_or_policy(Problem(key_of(m, **changes), SPACE, X3))


def test_frozen_mode_serves_a_rule_between_what_is_decided_and_the_nearest_shape(caplog) -> None:
    own = session(Decision(key_of(7), X3), stored_rule())
    with caplog.at_level(logging.INFO):
        found = [answer(own, m) for m in (7, 5, 60)]
    assert [(d.config["x"], d.tier) for d in found] == [(3, Tier.EXACT), (1, Tier.RULE), (2, Tier.RULE)]
    assert own.counts == {"exact": 1, "rule": 2}
    assert "a rule chose it, verified on this bucket" in caplog.text


def test_a_rule_serves_no_bucket_on_which_its_config_was_not_verified() -> None:
    own = session(Decision(key_of(7), X3), stored_rule())
    assert [(answer(own, m).config["x"], answer(own, m).tier) for m in (2, 200)] == [(3, Tier.NEAREST)] * 2
    alone = session(stored_rule())
    assert answer(alone, 200).tier is Tier.DEFAULT, "a rule that does not serve a shape is no nearest shape either"


def test_a_rule_is_for_its_own_device_and_space_and_answers_no_strict_question() -> None:
    own = session(stored_rule())
    other = msgspec.structs.replace(KEY.device, model="another")
    assert answer(own, 5, device=other).tier is Tier.DEFAULT
    small = Problem(key_of(5), tw.Space(tw.Knob("x", [2, 3])), X3)
    assert own.lookup_or_policy(small).tier is Tier.DEFAULT
    with pytest.raises(NoDecision):
        answer(session(stored_rule(), mode="strict"), 5)


def test_keys_whose_results_must_not_depend_on_a_size_are_not_served_by_a_rule() -> None:
    mode = {**KEY.mode, "invariant": "M"}
    assert answer(session(stored_rule(mode=mode)), 5, mode=mode).tier is Tier.DEFAULT


def test_a_fitted_rule_becomes_a_decision_that_is_served(modeled) -> None:
    found = cover(modeled, 0.05)
    key = msgspec.structs.replace(KEY, signature=Signature(KEY.signature.args, {"M": 8, "N": 8}))
    decision = rule_decision(fit_rule(found, KEY.kernel), found, key)
    assert "a rule of" in decision.evidence.notes[0]
    assert decision.key.signature.dims == {}
    with pytest.raises(SettingsError, match="do not depend on M"):
        rule_decision(fit_rule(found, KEY.kernel), found, msgspec.structs.replace(key, mode={"invariant": "M"}))


def test_a_bundle_has_the_rule_under_its_signature(tmp_path) -> None:
    pytest.importorskip("cryptography")
    from tunewright.stores.bundle import BundleStore, build, signing, verify_bundle

    signing.generate_key(tmp_path / "key.pem")
    secret, path = signing.load_private_key(tmp_path / "key.pem"), tmp_path / "some.bundle"
    build.write(path, build.build([stored_rule(), Decision(key_of(7), X3)]), secret)
    signers = [signing.encode_public_key(signing.public_bytes(secret))]
    frozen = tw.Session(mode="frozen", store=BundleStore(verify_bundle(path, signers=signers)))
    assert [answer(frozen, m).tier for m in (5, 7)] == [Tier.RULE, Tier.EXACT]
    content = path.read_bytes()
    assert content.count(b'"at_most":8') == 1
    path.write_bytes(content.replace(b'"at_most":8', b'"at_most":9'))
    with pytest.raises(BundleError):
        verify_bundle(path, signers=signers)
