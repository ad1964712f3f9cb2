"""Whoever wants to harm us with a bundle: every way in is shut before anything in it is looked at."""

import json
import os
import random
import socket
import struct
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from hashlib import sha256
from time import process_time

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tunewright import Config
from tunewright.cli.bundle import bundle as command
from tunewright.errors import BundleError, TunewrightError
from tunewright.stores import serialization
from tunewright.stores.bundle import BundleStore, signing, verify_bundle
from tunewright.stores.bundle import store as opening
from tunewright.stores.bundle.build import build, write
from tunewright.stores.bundle.layout import HEADER, MAX_MANIFEST_BYTES, SECTIONS, TRAILER, BundleRecord, pack
from tunewright.stores.bundle.store import Manifest
from tunewright.stores.records import checksum, related_prefix
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

MANY = [other_decision(key=other_key(mode={"number": str(i)}), config=Config(tile=i)) for i in range(40)]
SECRET = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
SIGNER = signing.encode_public_key(signing.public_bytes(SECRET))
STRANGER = signing.encode_public_key(signing.public_bytes(OTHER))
SOUND = build([DECISION, *MANY])
WHOLE = SOUND + signing.make_trailer(sha256(SOUND).digest(), SECRET)
SIGNED_PART = 32, 96


class LookedAtTooSoon(BaseException):
    """Something of a bundle was parsed before anybody vouched for it."""


@pytest.fixture
def sealed(monkeypatch):
    """Whoever parses a bundle now stops the test."""

    def parsed(*given):
        raise LookedAtTooSoon

    monkeypatch.setattr(opening, "BundleReader", parsed)
    monkeypatch.setattr(opening, "_read_manifest", parsed)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "some.bundle"


def refused(place, content, match=None, **trust):
    place.write_bytes(content)
    with pytest.raises(BundleError, match=match):
        BundleStore(verify_bundle(place, **(trust or {"signers": [SIGNER]})))


def test_the_seal_of_these_tests_is_one(place, sealed) -> None:
    place.write_bytes(WHOLE)
    with pytest.raises(LookedAtTooSoon):
        BundleStore(verify_bundle(place, signers=[SIGNER]))


def test_what_is_unsigned_or_wrongly_signed_is_refused_unread(place, sealed) -> None:
    digest, others = sha256(SOUND).digest(), sha256(build(MANY)).digest()
    public = signing.public_bytes(SECRET)
    refused(place, SOUND + bytes(TRAILER), "is not signed")
    refused(place, SOUND + signing.make_trailer(others, SECRET), "signature is wrong")
    refused(place, SOUND + public + OTHER.sign(b"tunewright bundle\n" + digest), "signature is wrong")
    for purpose in (b"", b"tunewright\n", b"tunewright bundle", b"tunewright journal\n", b"tunewright bundle\n\n"):
        refused(place, SOUND + public + SECRET.sign(purpose + digest), "signature is wrong")
    refused(place, SOUND + public + SECRET.sign(SOUND), "signature is wrong")
    refused(place, SOUND + public + bytes(64), "signature is wrong")
    refused(place, SOUND + signing.make_trailer(digest, OTHER), "not on your list")
    refused(place, WHOLE, "not on your list", signers=[STRANGER])
    refused(place, WHOLE, "no signer is allowed", signers=[])
    refused(place, WHOLE, "not the pinned", pin=others.hex())
    refused(place, WHOLE, "not the pinned", signers=[SIGNER], pin=others.hex())
    refused(place, WHOLE, "not on your list", signers=[STRANGER], pin=digest.hex())


def test_what_is_cut_anywhere_is_refused_unread(place, sealed) -> None:
    rng = random.Random(6)
    table = [struct.unpack_from("<QQ", SOUND, 16 + 16 * number) for number in range(len(SECTIONS))]
    borders = {0, 8, 16, HEADER, len(SOUND), *(len(SOUND) + part for part in SIGNED_PART[:1])}
    borders |= {at for start, length in table for at in (start, start + length)}
    near = {at + step for at in borders for step in (-1, 0, 1)} - {len(WHOLE)}
    for length in [*(at for at in near if at >= 0), *(rng.randrange(len(WHOLE)) for _ in range(200))]:
        refused(place, WHOLE[:length])
    for more in (b"\0", bytes(TRAILER), WHOLE):
        refused(place, WHOLE + more)
        refused(place, more + WHOLE)


@pytest.mark.slow
def test_a_flipped_bit_at_any_of_a_thousand_places_is_refused_unread(place, sealed) -> None:
    rng = random.Random(7)
    for _ in range(1000):
        at, bit = rng.randrange(len(WHOLE)), rng.randrange(8)
        refused(place, WHOLE[:at] + bytes([WHOLE[at] ^ 1 << bit]) + WHOLE[at + 1 :])
    for at in range(len(SOUND), len(WHOLE)):  # and everywhere in what vouches for it
        refused(place, WHOLE[:at] + bytes([WHOLE[at] ^ 1 << at % 8]) + WHOLE[at + 1 :])


WEAK = [
    bytes(32),
    b"\1" + bytes(31),
    bytes(31) + b"\x80",
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
    b"\xec" + b"\xff" * 30 + b"\x7f",
    b"\xed" + b"\xff" * 30 + b"\x7f",
]


@pytest.mark.parametrize("public", WEAK, ids=lambda public: public.hex()[:6])
def test_a_key_that_anyone_can_sign_with_is_no_signer(public, tmp_path, place) -> None:
    """Zeros that keep a line's place in a list are such a key: signatures that fit are found by trying a few."""
    text = signing.encode_public_key(public)
    refused(place, WHOLE, "anyone can sign with", signers=[text])
    refused(place, WHOLE, "anyone can sign with", signers={public: "us"})
    (tmp_path / "signers").write_text(f"{SIGNER} us\n{text} to be filled in\n")
    with pytest.raises(BundleError, match=r"line 2.*anyone can sign with"):
        BundleStore.open_trusted(place, tmp_path / "signers")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"# none yet\n", b"x" * (2 << 20), b"A" * 43, b"\0" * 44])
def test_a_list_of_signers_that_lists_nobody_is_refused(content, tmp_path, place) -> None:
    place.write_bytes(WHOLE)
    (tmp_path / "signers").write_bytes(content)
    for pin in (None, sha256(SOUND).hexdigest()):
        with pytest.raises(BundleError):
            BundleStore.open_trusted(place, tmp_path / "signers", pin)


def used(store) -> list:
    """Everything that can be asked of a bundle."""
    found = [store.get(decision.key) for decision in (DECISION, *MANY)]
    found += [*store.relatives(KEY), *store.decisions(), *store.keys("gemm")]
    for decision in found:
        serialization.encode(decision)
    for name in store._bundle.blob_digests():
        store._bundle.blob(name)
    return found


def resized(section, length):
    """A bundle whose header claims another length for a section."""
    made = bytearray(SOUND)
    struct.pack_into("<Q", made, 16 + 16 * SECTIONS.index(section) + 8, length)
    return bytes(made)


def saying(manifest: bytes):
    return pack(manifest, [], {})


def said(**more):
    return serialization.encode(Manifest("us", 0, 0, "")).replace(
        b"{", b"{" + json.dumps(more).encode()[1:-1] + b",", 1
    )


def holding(*bodies, key=KEY):
    """A bundle of records as they are, sealed and counted as they must be."""
    digest = bytes.fromhex(key.digest)
    records = [BundleRecord(digest, related_prefix(key), body, checksum(body, digest)) for body in bodies]
    return pack(serialization.encode(Manifest("us", len(records), 0, "")), records, {})


def overlapping():
    """Ten thousand records that are all the same million bytes."""
    count, body = 10_000, b" " * 1_000_000
    record = BundleRecord(
        bytes.fromhex(KEY.digest), related_prefix(KEY), body, checksum(body, bytes.fromhex(KEY.digest))
    )
    parts = [serialization.encode(Manifest("us", count, 0, "")), record.digest * count]
    parts += [struct.pack("<QLL", 0, len(body), record.crc) * count]
    parts += [b"".join(record.related + struct.pack("<L", number) for number in range(count)), body, b"", b"", b""]
    at, table = HEADER, b""
    for part in parts:
        table += struct.pack("<QQ", at, len(part))
        at += len(part)
    return struct.pack("<8sQ", b"TWBUNDLE", 1) + table + b"".join(parts)


DEEP, DIGITS = b"[" * 200_000, b"9" * 100_000
RECORD = serialization.dump_decision(DECISION)
NONSENSE = {
    "nothing": b"\0",
    "zeros": bytes(100_000),
    "a magic alone": b"TWBUNDLE" + bytes(HEADER),
    "another layout": SOUND[:8] + struct.pack("<Q", 2**64 - 1) + SOUND[16:],
    **{f"{name} of 2**64": resized(name, 2**64 - 1) for name in SECTIONS},
    **{f"{name} of 2**63": resized(name, 2**63) for name in SECTIONS},
    "a manifest of a gigabyte, claimed": resized("manifest", 1 << 30),
    "a manifest of five megabytes": SOUND[:HEADER] + bytes(5 << 20) + SOUND[HEADER:],
    "a manifest, deep": saying(DEEP),
    "a manifest, deeper": saying(b'{"x":' * 100_000),
    "a manifest, deep where a value is": saying(b'{"made_by":' + DEEP),
    "a manifest, not text": saying(b'{"made_by":"\xff\xfe"}'),
    "a manifest, half letters": saying(said(note="x").replace(b'"x"', b'"\\ud800"')),
    "a manifest, large numbers": saying(said().replace(b'"decisions":0', b'"decisions":' + DIGITS)),
    "a manifest, infinite": saying(said().replace(b'"decisions":0', b'"decisions":1e999')),
    "a manifest, other kinds": saying(said(kernels=[1])),
    "a manifest, nothing": saying(b""),
    "a manifest, too many": saying(said().replace(b'"decisions":0', b'"decisions":1000000000')),
    "a manifest, less than none": saying(said().replace(b'"decisions":0', b'"decisions":-1')),
    "records upon each other": overlapping(),
    "an artifact by another's name": pack(serialization.encode(Manifest("us", 0, 0, "")), [], {bytes(32): b"code"}),
}
HARMLESS = {
    "a record, deep": holding(DEEP),
    "a record, deep where a value is": holding(RECORD.replace(b'"ikj"', DEEP)),
    "a record, large numbers": holding(RECORD.replace(b"64", DIGITS, 1)),
    "a record, not text": holding(RECORD.replace(b"ikj", b"\xff\xfe")),
    "a record, empty": holding(b""),
    "a record, of another key": holding(RECORD, key=MANY[0].key),
    "a record, of another schema": holding(RECORD.replace(b'"schema":1', b'"schema":2')),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_that_an_allowed_signer_signed_is_refused_soon_and_in_little_memory(name, place) -> None:
    place.write_bytes(NONSENSE[name] + signing.make_trailer(sha256(NONSENSE[name]).digest(), SECRET))
    size = place.stat().st_size
    tracemalloc.start()
    began = process_time()  # our own work alone, however busy the machine is
    try:
        with pytest.raises(BundleError):
            used(BundleStore(verify_bundle(place, signers=[SIGNER])))
        assert process_time() - began < 10
        assert tracemalloc.get_traced_memory()[1] < 4 * size + (8 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", HARMLESS)
def test_a_record_that_cannot_be_believed_is_never_a_decision(name, place) -> None:
    write(place, HARMLESS[name], SECRET)
    store = BundleStore(verify_bundle(place, signers=[SIGNER]))
    assert [*store.decisions(), *store.relatives(KEY)] == []
    with suppress(TunewrightError):  # what is kept unread is refused when it is looked at
        assert store.get(KEY) is None or store.get(KEY).config is None


def test_what_nobody_could_open_is_not_built() -> None:
    with pytest.raises(BundleError, match="build several"):
        pack(b" " * (MAX_MANIFEST_BYTES + 1), [], {})


NAMES = [
    "../../x",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a\0b",
    "a\nb",
    "~/x",
    "C:\\x",
    "x" * 100_000,
    "\x1b]0;mine\x07",
    "%s",
    "'; --",
]


def below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:12])
def test_a_name_is_a_name_and_never_a_place(name, tmp_path, own_cache, monkeypatch) -> None:
    home = tmp_path / "deep" / "deeper"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    key = other_key(kernel=name, source=name, mode={name: name}, toolchain={name: name})
    decision = other_decision(key=key, config=Config({"tile": 1, "order": name}))
    write(home / "some.bundle", build([decision], note=name), SECRET)
    (home / "signers").write_text(f"{SIGNER} us\n")
    told = {}
    for task in (["verify"], ["show"], ["apply", "--store", "new.sqlite"]):
        done = CliRunner().invoke(command, [*task[:1], "some.bundle", "--signers", "signers", *task[1:]])
        assert done.exception is None, done.exception
        told[task[0]] = done.output
    assert not {"\x1b", "\0", "\x07"} & set("".join(told.values()))
    assert SqliteStore(home / "new.sqlite").get(key) == decision
    assert [one.key for one in SqliteStore(home / "new.sqlite").decisions(name)] == [key]
    there = {path for path in below(tmp_path) if not path.startswith("deep/deeper/new.sqlite")}
    assert there == {"deep", "deep/deeper", "deep/deeper/some.bundle", "deep/deeper/signers"}
    assert all(path.split("/")[0] in ("leases", "artifacts", "quarantine") for path in below(own_cache))


def test_the_name_of_a_file_says_nothing_of_whom_to_trust(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    stranger = tmp_path / "evil.bundle?signers=theirs"
    write(stranger, SOUND, OTHER)
    write(tmp_path / "evil.bundle", SOUND, OTHER)
    for name in ("theirs", "theirs?signers=ours"):
        (tmp_path / name).write_text(f"{STRANGER} them\n")
    (tmp_path / "ours").write_text(f"{SIGNER} us\n")
    for task in ("verify", "show", "apply"):
        done = CliRunner().invoke(command, [task, stranger.name, "--signers", "ours"])
        assert isinstance(done.exception, BundleError)
        assert "not on your list" in str(done.exception)


def test_only_a_file_is_a_bundle_and_nobody_waits_for_anything_else(tmp_path, monkeypatch) -> None:
    place = tmp_path / "some.bundle"
    place.write_bytes(WHOLE)
    (tmp_path / "link").symlink_to(place)
    assert BundleStore(verify_bundle(tmp_path / "link", signers=[SIGNER])).get(KEY) == DECISION
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "to a pipe").symlink_to(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    listening = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(tmp_path)  # a socket's path may not be long
    listening.bind("socket")
    began = process_time()
    names = ("pipe", "loop", "to a pipe", "empty", "huge", "socket", "nowhere", "", "a\0b", "x" * 5000)
    for wrong in (*(tmp_path / name for name in names), "/dev/zero", "/dev/null", "/dev/stdin"):
        with pytest.raises(BundleError):
            BundleStore(verify_bundle(wrong, signers=[SIGNER]))
    for wrong in ("pipe", "huge", "nowhere", ""):
        with pytest.raises(BundleError):
            BundleStore.open_trusted(place, tmp_path / wrong)
        with pytest.raises(BundleError):
            signing.load_private_key(tmp_path / wrong)
    listening.close()
    assert process_time() - began < 10


@pytest.mark.parametrize("how", ["overwritten", "cut to nothing", "replaced", "removed"])
def test_what_was_verified_is_what_is_read_whatever_becomes_of_the_file(how, place) -> None:
    place.write_bytes(WHOLE)
    whole = verify_bundle(place, signers=[SIGNER])
    changed = build([other_decision(config=Config(tile=666))])
    if how == "overwritten":
        with place.open("r+b") as file:
            file.write(changed + bytes(len(WHOLE) - len(changed)))
    elif how == "cut to nothing":
        os.truncate(place, 0)
    elif how == "replaced":
        write(place, changed, OTHER)
    else:
        place.unlink()
    store = BundleStore(whole)
    assert store.get(KEY) == DECISION
    assert {one.key for one in store.decisions()} == {KEY, *(one.key for one in MANY)}


BUILDING = """
import sys, random
from hashlib import sha256
from pathlib import Path
from tunewright import Config
from tunewright.testing.keys import DECISION, other_decision, other_key
from tunewright.stores.bundle import signing
from tunewright.stores.bundle.build import build, write
seed = int(sys.argv[1])
names = [f"name{i}" for i in range(9)]
random.Random(seed).shuffle(names)
tools, config = dict.fromkeys(names, "1"), Config(dict.fromkeys(names, 8))
keys = [other_key(kernel=name, mode=dict.fromkeys(names, "x"), toolchain=tools) for name in map(str, range(9))]
many = [other_decision(key=key, config=config) for key in keys]
random.Random(seed).shuffle(many)
write(Path(sys.argv[2]), build(set([DECISION, *many]), note="same"), signing.load_private_key(Path(sys.argv[3])))
print(sha256(Path(sys.argv[2]).read_bytes()).hexdigest())
"""


def test_two_processes_build_the_same_bytes_whatever_their_order_and_hashing(tmp_path) -> None:
    signing.generate_key(tmp_path / "key.pem")
    said = set()
    for seed in ("0", "1", "4242"):
        command = [sys.executable, "-c", BUILDING, seed, tmp_path / f"{seed}.bundle", tmp_path / "key.pem"]
        environ = os.environ | {"PYTHONHASHSEED": seed}
        said.add(subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert len(said) == 1
    assert len(said.pop()) == 65
