"""Whatever an allowed signer signs, a bundle is read, or refused with a BundleError; what is in it, too."""

import json
import struct
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from damage import bent, effort, file_of, spoilt, twisted
from hypothesis import given
from hypothesis import strategies as st

from tunewright.errors import BundleError, WireError
from tunewright.model.decision import Decision
from tunewright.spaces.config import Config
from tunewright.stores import artifacts, serialization
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.bundle import BundleStore
from tunewright.stores.bundle.build import build
from tunewright.stores.bundle.content import read
from tunewright.stores.bundle.layout import HEADER, SECTIONS, BundleRecord, pack
from tunewright.stores.bundle.signers import read_signers
from tunewright.stores.bundle.store import AttachmentEntry, Manifest, VerifiedBundle
from tunewright.stores.records import checksum, related_prefix
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

MANY = [DECISION, *(other_decision(key=other_key(kernel=name), config=Config(tile=3)) for name in "abc")]
BLOBS = {sha256(text).digest(): text for text in (b"machine code", b"")}
RECORDS = [
    BundleRecord(digest, related_prefix(one.key), body, checksum(body, digest))
    for one in MANY
    for digest, body in [(bytes.fromhex(one.key.digest), serialization.dump_decision(one))]
]
MANIFEST = serialization.encode(
    Manifest("us", len(MANY), len(BLOBS), "0" * 64, {"gemm": 1}, {"cpu": 4}, ({"gcc": "12"},), "note")
)
SOUND = pack(MANIFEST, RECORDS, BLOBS)
PARTS = [
    SOUND[start : start + length]
    for number in range(len(SECTIONS))
    for start, length in [struct.unpack_from("<QQ", SOUND, 16 + 16 * number)]
]
NUMBERS = st.sampled_from([0, 1, 3, 4, 32, HEADER, len(SOUND), 2**31, 2**32 - 1, 2**63, 2**64 - 1]) | st.integers(
    0, 2**64 - 1
)


def put_together(parts) -> bytes:
    at, table = HEADER, b""
    for part in parts:
        table += struct.pack("<QQ", at, len(part))
        at += len(part)
    return SOUND[:16] + table + b"".join(parts)


@st.composite
def sections(draw):
    """A bundle of which some sections are spoilt, and fit each other all the same."""
    parts = list(PARTS)
    for number in draw(st.lists(st.integers(0, len(parts) - 1), min_size=1, max_size=3)):
        parts[number] = draw(bent(parts[number]))
    return put_together(parts)


@st.composite
def numbers(draw):
    """A bundle of which some numbers are others: in its header, in its lists of places, in its kin."""
    made = bytearray(SOUND)
    lists = [
        at
        for start in (16, *_starts("places", "kin", "spots"))
        for at in range(start, start + 64, 4)
        if at <= len(SOUND) - 8
    ]
    for at in draw(st.lists(st.sampled_from(lists), min_size=1, max_size=3)):
        struct.pack_into("<Q", made, at, draw(NUMBERS))
    return bytes(made)


def _starts(*names):
    return [struct.unpack_from("<Q", SOUND, 16 + 16 * SECTIONS.index(name))[0] for name in names]


def walked(content: bytes) -> list[Decision]:
    """Everything in a bundle; a BundleError if it is none."""
    store = BundleStore(VerifiedBundle(Path("some.bundle"), memoryview(content), "0" * 64, "us"))
    found = [*store.decisions(), *store.relatives(KEY)]
    for one in MANY:
        if (kept := store.get(one.key)) is not None:
            with suppress(WireError):  # it is read when it is looked at
                serialization.encode(kept.config)
    for name in store._bundle.blob_digests():
        store._bundle.blob(name)
    serialization.encode(store.manifest)
    for kind, name in store.attachments:
        store.read_attachment(kind, name)
    store.artifact_labels("gemm")
    return found


def test_the_sound_one_is_read() -> None:
    assert put_together(PARTS) == SOUND
    assert set(walked(SOUND)) == set(MANY)
    assert set(walked(build(MANY))) == set(MANY)


@effort(3)
@given(sections() | numbers() | bent(SOUND))
def test_any_layout_is_read_or_refused(content) -> None:
    with suppress(BundleError):
        assert {one.key for one in walked(content)} <= {one.key for one in MANY}


@effort()
@given(sections() | numbers() | bent(SOUND))
def test_any_bytes_are_read_as_they_are_before_they_are_verified(content) -> None:
    with file_of(content, "some.bundle") as path:
        assert bytes(read(path).whole) == content


@effort()
@given(spoilt(json.loads(MANIFEST)))
def test_any_manifest_is_read_or_refused(manifest) -> None:
    with suppress(BundleError):
        walked(pack(manifest, RECORDS, BLOBS))


@effort()
@given(twisted(json.loads(serialization.dump_decision(DECISION))) | bent(serialization.dump_decision(DECISION)))
def test_any_record_under_its_seal_is_read_or_passed_over(body) -> None:
    digest = bytes.fromhex(KEY.digest)
    record = BundleRecord(digest, related_prefix(KEY), body, checksum(body, digest))
    manifest = serialization.encode(Manifest("us", 1, 0, ""))
    assert {one.key for one in walked(pack(manifest, [record], {}))} <= {KEY}


LABEL = ArtifactLabel(
    f"{'ab' * 16}.so", "gemm", "s", Config(tile=3), KEY.signature, {"compiler": "gcc 12", "flags": "-O3"}
)
LISTED = serialization.encode(
    [
        AttachmentEntry("build", LABEL.name, sha256(b"machine code").hexdigest(), LABEL),
        AttachmentEntry("race", KEY.digest, sha256(b"").hexdigest()),
    ]
)


def enclosing(listed: bytes) -> bytes:
    digest = sha256(listed)
    manifest = serialization.encode(Manifest("us", len(MANY), 2, "", attachments=digest.hexdigest()))
    return pack(manifest, RECORDS, {**BLOBS, digest.digest(): listed})


def test_what_is_enclosed_is_found() -> None:
    store = BundleStore(VerifiedBundle(Path("some.bundle"), memoryview(enclosing(LISTED)), "0" * 64, "us"))
    assert store.read_attachment("build", LABEL.name) == b"machine code"
    assert store.artifact_labels("gemm") == [LABEL]


@effort()
@given(twisted(json.loads(LISTED)) | bent(LISTED))
def test_any_list_of_what_is_enclosed_is_read_or_refused(listed) -> None:
    with suppress(BundleError):
        walked(enclosing(listed))


@effort()
@given(
    st.text(max_size=60) | st.sampled_from(["../x.so", "/etc/x.so", "ab/../../x.so", "a\0b.so", ".", "", LABEL.name])
)
def test_an_artefact_is_never_put_outside_of_the_cache(tmp_path_factory, name) -> None:
    cache = tmp_path_factory.mktemp("cache")
    with suppress(BundleError):
        there = artifacts.unpack(cache / "inner", b"code", msgspec.structs.replace(LABEL, name=name))
        assert there.resolve().is_relative_to((cache / "inner").resolve())
    assert {path.name for path in cache.iterdir()} <= {"inner"}


SIGNERS = b"""# the team
AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8= the tuning team

Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=
version 2
expires 2027-06-30
threshold 2
minimum prod 7
revoked AwIBBwYFBAsKCQgPDg0MExIREBcWFRQbGhkYHx4dHAA= gone
"""


@effort()
@given(bent(SIGNERS))
def test_any_list_of_signers_is_read_or_refused(content) -> None:
    with file_of(content, "signers") as path, suppress(BundleError):
        assert all(len(public) == 32 and name for public, name in read_signers(path).names.items())


@effort()
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["bundle:", "x", "?", "&", "signers=", "pin=", "%00", "=", "~"])).map("".join)
)
def test_any_location_is_refused_where_there_is_nothing(location) -> None:
    with suppress(BundleError):
        BundleStore.at(f"bundle:/nowhere/{location}")
        raise AssertionError(location)
