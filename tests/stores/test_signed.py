"""Signed decisions: kept with their signature by every store, and checked by whoever reads."""

import base64

import numpy as np
import pytest

import tunewright as tw
from tunewright import Config
from tunewright.errors import BundleError, StoreError, WriteRefused
from tunewright.model.trial import Timing, Trial
from tunewright.stores import locations, serialization
from tunewright.stores.bundle import signing
from tunewright.stores.capabilities import KeepsRevisions, SupportsFill, SupportsLeases
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import MirrorStore
from tunewright.stores.redis import RedisStore
from tunewright.stores.signed import SignedStore, Trust
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

GOOD = other_decision(config=Config(tile=8))


@pytest.fixture
def trust(tmp_path):
    public = signing.generate_key(tmp_path / "team.pem")
    (tmp_path / "signers").write_text(f"{public} team\n")
    return Trust.read(str(tmp_path / "signers"), str(tmp_path / "team.pem"))


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres", "tiered", "mirror"])
def store(request, tmp_path):
    if request.param in ("redis", "postgres"):
        return locations.open_single(request.getfixturevalue(f"{request.param}_location"))
    sqlite = SqliteStore(tmp_path / "store.sqlite")
    wrapped = {"memory": MemoryStore(), "sqlite": sqlite, "tiered": TieredStore(MemoryStore(), sqlite)}
    return wrapped.get(request.param) or MirrorStore(sqlite, MemoryStore())


def test_what_was_signed_is_read_by_who_trusts_the_signer(store, trust) -> None:
    signed = SignedStore(store, trust)
    assert signed.put(DECISION) == DECISION
    reader = SignedStore(store, Trust(trust.signers))
    assert reader.get(KEY) == reader.get_many([KEY])[KEY] == DECISION
    assert list(reader.decisions()) == list(reader.relatives(KEY)) == [DECISION]
    assert store.get(KEY) == DECISION, "others read it as ever"


def forged(trust, tmp_path):
    other = signing.load_private_key(tmp_path / "other.pem") if signing.generate_key(tmp_path / "other.pem") else None
    record = serialization.dump_decision(DECISION)
    mine = signing.sign_decision(record, "", other)
    theirs = signing.sign_decision(serialization.dump_decision(GOOD), "", trust.key)
    moved = serialization.dump_decision(other_decision(key=other_key(kernel="conv")))
    public = base64.b64decode(theirs)[:32]
    return {
        "not signed": record,
        "signed by somebody else": serialization.with_author(record, mine),
        "signed for another config": serialization.with_author(record, theirs),
        "the right key and a wrong signature": serialization.with_author(
            record, base64.b64encode(public + base64.b64decode(mine)[32:]).decode()
        ),
        "signed for another key": serialization.with_author(record, signing.sign_decision(moved, "", trust.key)),
        "no signature": serialization.with_author(record, ""),
        "zeros": serialization.with_author(record, base64.b64encode(bytes(96)).decode()),
        "not text": b'{"author":"\xff",' + record[1:],
    }


def test_what_nobody_trusted_signed_is_a_miss_told_once_and_healed(store, trust, tmp_path, caplog) -> None:
    signed = SignedStore(store, trust)
    for name, record in forged(trust, tmp_path).items():
        try:
            store.put(serialization.load_decision(record))
        except tw.TunewrightError:
            continue  # it is not even a record
        assert signed.get(KEY) is None, name
        assert signed.get_many([KEY]) == {}, name
        assert list(signed.relatives(KEY)) == list(signed.decisions()) == [], name
    assert sum("skipping a decision" in record.message for record in caplog.records) == 1
    assert signed.put(GOOD, replace=False) == GOOD
    assert signed.get(KEY) == GOOD


def test_an_earlier_signed_decision_keeps_its_signature_in_history(tmp_path, trust) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    signed = SignedStore(store, trust)
    signed.put(DECISION)
    store.put(other_decision(config=Config(tile=666)))
    signed.put(GOOD)
    assert [revision.decision for revision in signed.history(KEY)] == [DECISION, GOOD]
    signed.put(signed.history(KEY)[0].decision)
    assert signed.get(KEY) == DECISION


def test_capabilities_are_those_of_the_store_but_for_fill(trust) -> None:
    signed = SignedStore(MemoryStore(), trust)
    assert isinstance(signed, SupportsLeases | KeepsRevisions)
    assert not isinstance(signed, SupportsFill)


def test_who_cannot_sign_stores_nothing_that_would_be_a_miss(trust) -> None:
    with pytest.raises(WriteRefused, match="signing_key"):
        SignedStore(MemoryStore(), Trust(trust.signers)).put(DECISION)


def test_an_empty_list_of_signers_is_refused(tmp_path) -> None:
    (tmp_path / "signers").write_text("# nobody\n")
    with pytest.raises(BundleError, match="lists no signer"):
        Trust.read(str(tmp_path / "signers"))


def test_ranks_that_agree_cannot_check(trust) -> None:
    class Agreeing(MemoryStore):
        def agree_on(self, key, answer):
            return answer

    with pytest.raises(StoreError, match="torch:"):
        SignedStore(Agreeing(), trust)


def make(session):
    @tw.tune(tw.Space(tw.Knob("step", [1, 2, 3])), session=session)
    def double(x: tw.In("N"), *, step: int):
        return 2 * x if step != 3 else x  # 3 is wrong

    return double


def test_a_session_signs_and_checks(tmp_path, trust, redis_location) -> None:
    options = {"pool": "serial", "trials": 3, "store": redis_location, "signers": tmp_path / "signers"}
    session = tw.Session(signing_key=tmp_path / "team.pem", cache=tmp_path / "a", **options)
    assert make(session)(np.ones(3)).tolist() == [2, 2, 2]
    frozen = tw.Session(mode="strict", cache=tmp_path / "b", **options)
    assert make(frozen)(np.ones(3)).tolist() == [2, 2, 2]
    key = make(frozen).problem((np.ones(3),)).key
    RedisStore.at(redis_location).put(tw.model.decision.Decision(key, Config(step=3)))
    forged_for = tw.Session(mode="strict", cache=tmp_path / "c", **options)
    with pytest.raises(tw.NoDecision):
        make(forged_for)(np.ones(3))


def test_a_member_that_records_can_slow_others_at_most(tmp_path, trust) -> None:
    """Forged trials, decisions, priors and leases lead to no wrong config."""
    shared = SqliteStore(tmp_path / "store.sqlite")
    options = {"pool": "serial", "trials": 3, "store": tmp_path / "store.sqlite", "tuning_wait_seconds": 0.0}
    options |= {"signers": tmp_path / "signers", "signing_key": tmp_path / "team.pem", "cache": tmp_path / "cache"}
    key = make(tw.Session(**options)).problem((np.ones(3),)).key
    near = make(tw.Session(**options)).problem((np.ones(4),)).key
    lies = [Trial(Config(step=3), Timing((1e-9,) * 5)), Trial(Config(step=1), Timing((1e9,) * 5))]
    for journal in (key, near):
        shared.record(journal, lies * 8)
        shared.put(tw.model.decision.Decision(journal, Config(step=3)))
    assert make(tw.Session(**options))(np.ones(3)).tolist() == [2, 2, 2]
    published = SignedStore(SqliteStore(tmp_path / "store.sqlite"), trust).get(key)
    assert published.config["step"] in (1, 2)
    assert shared.claim(f"tune {near.digest}", "an attacker", 3600)
    assert make(tw.Session(**options))(np.ones(4)).tolist() == [2, 2, 2, 2]
