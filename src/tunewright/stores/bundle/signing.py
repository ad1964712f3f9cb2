"""Ed25519 signatures of bundles and decisions, by the `cryptography` package."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from tunewright.errors import BundleError
from tunewright.ports.plugins import missing
from tunewright.stores import files
from tunewright.stores.bundle.layout import MAX_SIGNATURES, TRAILER

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError as error:
    raise missing("stores", "bundle", error) from error

_RAW = serialization.Encoding.Raw
_PURPOSE = b"tunewright bundle\n"
"""The signed message begins with its purpose, so that no other signature can be mistaken for it."""

_DECISION_PURPOSE = b"tunewright decision\n"
"""The same for a single decision."""

_LIST_PURPOSE = b"tunewright signers\n"
"""The same for a list of signers."""

_VERDICT_PURPOSE = b"tunewright verdict\n"
"""The same for the transcript of a referee."""

_REPORT_PURPOSE = b"tunewright gpu report\n"
"""The same for the report of an acceptance test."""

_SEVERAL = b"TWSIGNATURES"
"""Begins the last trailer of a bundle with several signatures; no public key of a signer begins with it."""

_MAX_BYTES = 1 << 20
"""Largest file of a key or of a list of signers."""

_PRIME = 2**255 - 19
_WEAK_KEYS = {0, 1, _PRIME - 1, *(
    int.from_bytes(bytes.fromhex(text), "little")
    for text in (
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
)}  # fmt: skip
"""The points of small order, by y: anyone can forge signatures of such keys, such as a placeholder of zeros."""


def generate_key(path: Path) -> str:
    """Creates a private key at `path`, readable only by its owner, and returns the public key as text."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    for part in (path, path.parent):  # what is signed with a key that a power cut takes away cannot be signed again
        files.sync(part)
    return encode_public_key(public_bytes(key))


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """Returns the private key at `path`."""
    try:
        key = serialization.load_pem_private_key(files.read_bounded(path, _MAX_BYTES), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise BundleError(f"no private key can be read from {path}: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BundleError(f"{path} has another kind of key; create one with `tunewright bundle key {path}`")
    return key


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Returns the 32 bytes of the public key."""
    return key.public_key().public_bytes(_RAW, serialization.PublicFormat.Raw)


def encode_public_key(public: bytes) -> str:
    """Returns a public key as text."""
    return base64.b64encode(public).decode()


def make_trailer(content_digest: bytes, key: Ed25519PrivateKey | None) -> bytes:
    """Returns the end of a bundle: the public key of the signer and the signature, or zeros."""
    if key is None:
        return bytes(TRAILER)
    return public_bytes(key) + key.sign(_PURPOSE + content_digest)


def make_trailers(content_digest: bytes, keys: Sequence[Ed25519PrivateKey]) -> bytes:
    """Returns the end of a bundle that all `keys` sign; with one or none it is a single trailer."""
    return join_trailers([make_trailer(content_digest, key) for key in keys])


def join_trailers(trailers: Sequence[bytes]) -> bytes:
    """Returns the end of a bundle with these signatures, one for each signer."""
    by_signer = {trailer[:32]: trailer for trailer in trailers}
    if len(by_signer) > MAX_SIGNATURES:
        raise BundleError(f"a bundle has at most {MAX_SIGNATURES} signatures; sign with fewer keys")
    if len(by_signer) < 2:
        return next(iter(by_signer.values()), bytes(TRAILER))
    count = _SEVERAL + len(by_signer).to_bytes(4, "little")
    return b"".join(by_signer[public] for public in sorted(by_signer)) + count.ljust(TRAILER, b"\0")


def split_trailers(whole: memoryview) -> tuple[memoryview, list[bytes]]:
    """Returns the content of a bundle and its signatures, none of which is verified yet."""
    if len(whole) <= TRAILER:
        raise BundleError("it is too short to be a bundle")
    content, last = whole[:-TRAILER], bytes(whole[-TRAILER:])
    if not last.startswith(_SEVERAL):
        return content, [last] if any(last) else []
    count = int.from_bytes(last[len(_SEVERAL) : len(_SEVERAL) + 4], "little")
    if not 2 <= count <= MAX_SIGNATURES or len(content) <= count * TRAILER or any(last[len(_SEVERAL) + 4 :]):
        raise BundleError("its list of signatures is malformed")
    start = len(content) - count * TRAILER
    return content[:start], [bytes(content[at : at + TRAILER]) for at in range(start, len(content), TRAILER)]


def verify_signer(trailer: bytes, content_digest: bytes) -> bytes | None:
    """Returns the public key of the signer, None if there is none; raises BundleError if the signature is wrong."""
    return _verify(trailer, _PURPOSE + content_digest) if any(trailer) else None


def _verify(trailer: bytes, message: bytes) -> bytes:
    public, signature = trailer[:32], trailer[32:]
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError) as error:
        raise BundleError("its signature is wrong: it was changed, or never signed by that key") from error
    return public


def sign_decision(record: bytes, over: str, key: Ed25519PrivateKey) -> str:
    """Returns a signature of the record of a decision and the digest of the one it replaces, as text."""
    return base64.b64encode(public_bytes(key) + key.sign(_decision_message(record, over))).decode()


def verify_decision_signer(text: str, record: bytes, over: str) -> bytes:
    """Returns the public key of the signer of a decision; raises BundleError if the signature is missing or wrong."""
    missing = "it is not signed; to sign, add `?sign=KEY` to the location of the service"
    return _verify_text(text, _decision_message(record, over), missing)


def _verify_text(text: str, message: bytes, missing: str) -> bytes:
    """Returns the public key of the signer; raises BundleError, with `missing` if the text is no signature."""
    try:
        trailer = base64.b64decode(text, validate=True)
    except ValueError:
        trailer = b""
    if len(trailer) != TRAILER:
        raise BundleError(missing)
    return _verify(trailer, message)


def sign_list(text: bytes, key: Ed25519PrivateKey) -> str:
    """Returns a signature of a list of signers, as text."""
    return base64.b64encode(public_bytes(key) + key.sign(_LIST_PURPOSE + sha256(text).digest())).decode()


def verify_list_signer(signature: str, text: bytes) -> bytes:
    """Returns the public key of one who signed a list of signers; raises BundleError if the signature is wrong."""
    missing = "a signature of the list of signers is malformed; get the list again"
    return _verify_text(signature, _LIST_PURPOSE + sha256(text).digest(), missing)


def sign_report(body: bytes, key: Ed25519PrivateKey) -> str:
    """Returns a signature of the report of an acceptance test, as text."""
    return base64.b64encode(public_bytes(key) + key.sign(_REPORT_PURPOSE + sha256(body).digest())).decode()


def verify_report_signer(signature: str, body: bytes) -> bytes:
    """Returns the public key of the signer of a report; raises BundleError if the signature is missing or wrong."""
    missing = "the report is not signed; run `tunewright gpu accept` again"
    return _verify_text(signature, _REPORT_PURPOSE + sha256(body).digest(), missing)


def _decision_message(record: bytes, over: str) -> bytes:
    return _DECISION_PURPOSE + sha256(record).digest() + over.encode()


def parse_public_key(text: str, where: str) -> bytes:
    """Returns a public key from its text."""
    try:
        public = base64.b64decode(text, validate=True)
    except ValueError:
        public = b""
    if len(public) != 32:
        raise BundleError(f"{where}: {text[:20]!r} is not a public key, which has 44 characters of base64")
    if (int.from_bytes(public, "little") & ~(1 << 255)) % _PRIME in _WEAK_KEYS:
        raise BundleError(f"{where}: {text[:20]!r} is a weak key that anyone can sign with; use the signer's own")
    return public


def sign_verdict(transcript: bytes, key: Ed25519PrivateKey) -> str:
    """Returns a signature of the transcript of a referee's match, as text."""
    return base64.b64encode(public_bytes(key) + key.sign(_VERDICT_PURPOSE + sha256(transcript).digest())).decode()


def verify_verdict_signer(signature: str, transcript: bytes) -> bytes:
    """Returns the public key of the signer of a transcript; raises BundleError if the signature is wrong."""
    missing = "the signature of the transcript is malformed; get the transcript again"
    return _verify_text(signature, _VERDICT_PURPOSE + sha256(transcript).digest(), missing)
