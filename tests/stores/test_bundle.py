"""A bundle is trusted for its signer or its digest, and for nothing else."""

import random
import struct
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunewright import Config, Session
from tunewright.errors import BundleError, StoreError
from tunewright.model.decision import Problem, Tier
from tunewright.stores import choice_digest
from tunewright.stores.bundle import BundleStore, signing, verify_bundle
from tunewright.stores.bundle.build import Attachment, build, write
from tunewright.stores.bundle.layout import HEADER, BundleReader, BundleRecord, pack
from tunewright.stores.memory import MemoryStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key

MANY = [other_decision(key=other_key(mode={"number": str(i)}), config=Config(tile=i)) for i in range(50)]


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "key.pem"
    signing.generate_key(path)
    return signing.load_private_key(path)


@pytest.fixture(scope="module")
def signer(secret):
    return signing.encode_public_key(signing.public_bytes(secret))


@pytest.fixture
def path(tmp_path, secret):
    write(tmp_path / "some.bundle", build([DECISION, *MANY], [Attachment("build", "ab.so", b"machine code")]), secret)
    return tmp_path / "some.bundle"


def test_what_was_packed_is_found(path, signer) -> None:
    store = BundleStore(verify_bundle(path, signers=[signer]))
    assert store.get(KEY) == DECISION
    assert store.get_many([one.key for one in MANY]) == {one.key: one for one in MANY}
    assert store.get(other_key(kernel="conv")) is None
    assert {decision.key for decision in store.decisions("gemm")} == {DECISION.key, *(one.key for one in MANY)}
    assert set(store.keys()) == {DECISION.key, *(one.key for one in MANY)}
    assert store.read_attachment("build", "ab.so") == b"machine code"
    assert store.read_attachment("build", "other.so") is None
    assert store.view_attachment("build", "ab.so") == b"machine code"
    assert store.view_attachment("build", "other.so") is None
    assert (store.manifest.decisions, store.manifest.artifacts) == (51, 1)


def test_relatives_are_found_by_their_kin(path, signer) -> None:
    larger = other_key(signature=msgspec.structs.replace(KEY.signature, dims={"M": 1024, "K": 256, "N": 128}))
    store = BundleStore(verify_bundle(path, signers=[signer]))
    assert list(store.relatives(larger)) == [DECISION]
    session = Session(mode="frozen", store=TieredStore(MemoryStore(), store))
    from tunewright import Knob, Space

    space = Space(Knob("tile", [64]), Knob("fast", [True]), Knob("order", ["ikj"]), Knob("share", [0.5]))
    answer = session.lookup_or_policy(Problem(larger, space, space.first))
    assert answer.tier is Tier.NEAREST


def test_it_cannot_be_changed(path, signer) -> None:
    store = BundleStore(verify_bundle(path, signers=[signer]))
    with pytest.raises(StoreError, match="which cannot be changed"):
        store.put(DECISION)
    with pytest.raises(StoreError, match="cannot store trials"):
        store.record(KEY, [TIMED])
    assert list(store.trials(KEY)) == []


def test_equal_contents_make_equal_bytes() -> None:
    there = [Attachment("race", "a", b"1"), Attachment("race", "b", b"2")]
    assert build(MANY, there) == build(reversed(MANY), reversed(there))
    assert build(MANY) != build(MANY[1:])


def test_the_choice_is_the_same_whoever_found_it() -> None:
    other = other_decision(evidence=msgspec.structs.replace(DECISION.evidence, seed=8, when="2027"))
    assert chosen(DECISION, *MANY) == chosen(*MANY, other)
    assert chosen(DECISION) != chosen(other_decision(config=Config(tile=8)))


def chosen(*decisions):
    return choice_digest.digest((decision.key, decision.config) for decision in decisions)


def test_who_did_not_sign_is_not_believed(path, tmp_path, secret) -> None:
    signing.generate_key(tmp_path / "other.pem")
    stranger = signing.encode_public_key(signing.public_bytes(signing.load_private_key(tmp_path / "other.pem")))
    with pytest.raises(BundleError, match="not on your list of signers"):
        BundleStore(verify_bundle(path, signers=[stranger]))
    with pytest.raises(BundleError, match="no signer is allowed"):
        BundleStore(verify_bundle(path))
    write(tmp_path / "bare.bundle", build(MANY))
    with pytest.raises(BundleError, match="is not signed"):
        BundleStore(verify_bundle(tmp_path / "bare.bundle", signers=[stranger]))
    taken = path.read_bytes()[:-96] + (tmp_path / "bare.bundle").read_bytes()[-96:-64] + path.read_bytes()[-64:]
    (tmp_path / "forged.bundle").write_bytes(taken)
    with pytest.raises(BundleError):
        BundleStore(verify_bundle(tmp_path / "forged.bundle", signers=[stranger]))


def test_a_pin_holds_for_one_file_alone(path, tmp_path) -> None:
    digest = sha256(path.read_bytes()[:-96]).hexdigest()
    assert BundleStore(verify_bundle(path, pin=digest)).get(KEY) == DECISION
    with pytest.raises(BundleError, match="not the pinned"):
        BundleStore(verify_bundle(path, pin="0" * 64))
    unsigned = tmp_path / "bare.bundle"
    assert BundleStore(verify_bundle(unsigned, pin=write(unsigned, build(MANY)))).get(MANY[3].key) == MANY[3]


def test_a_location_says_whom_to_trust(path, tmp_path, signer) -> None:
    (tmp_path / "signers").write_text(f"# the tuning team\n{signer} the tuning team\n")
    store = BundleStore.at(f"bundle:{path}?signers={tmp_path / 'signers'}")
    assert store.signer == "the tuning team"
    assert BundleStore.at(f"bundle:{path}?pin={store.digest}").signer is None
    for wrong, said in (("", "say whom you trust"), ("?key=1", "no option 'key'"), ("?signers=none", "cannot be read")):
        with pytest.raises(BundleError, match=said):
            BundleStore.at(f"bundle:{path}{wrong}")
    (tmp_path / "signers").write_text("no key at all\n")
    with pytest.raises(BundleError, match="line 1"):
        BundleStore.at(f"bundle:{path}?signers={tmp_path / 'signers'}")


def test_every_flipped_bit_and_every_cut_is_refused_before_use(path, signer, tmp_path) -> None:
    whole, rng = path.read_bytes(), random.Random(0)
    spoilt = tmp_path / "spoilt.bundle"
    for _ in range(1000):
        at = rng.randrange(len(whole))
        spoilt.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        with pytest.raises(BundleError):
            BundleStore(verify_bundle(spoilt, signers=[signer]))
    for length in [0, 1, 95, 96, 97, HEADER, *(rng.randrange(len(whole)) for _ in range(50))]:
        spoilt.write_bytes(whole[:length])
        with pytest.raises(BundleError):
            BundleStore(verify_bundle(spoilt, signers=[signer]))
    with pytest.raises(BundleError, match="cannot be read"):
        BundleStore(verify_bundle(tmp_path / "none.bundle", signers=[signer]))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_numbers_inside_are_not_believed_even_if_someone_signed_them(data) -> None:
    """Whoever holds a key can sign nonsense: it is refused or a miss, never a crash."""
    records = [BundleRecord(sha256(bytes([i])).digest(), bytes(8), b"{}", 0) for i in range(3)]
    whole = bytearray(pack(b"{}", records, {sha256(b"x").digest(): b"x"}))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 8))
        struct.pack_into("<Q", whole, at, data.draw(st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1, len(whole)])))
    try:
        bundle = BundleReader(memoryview(bytes(whole)))
        for number in range(bundle.count):
            bundle.digest(number)
            bundle.body(number)
        list(bundle.related(bytes(8)))
        for name in bundle.blob_digests():
            bundle.blob(name)
    except BundleError:
        pass
