"""Signing: who vouches for a bundle. Ed25519, by the `cryptography` package."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from tunewright.errors import BundleError
from tunewright.ports.plugins import missing
from tunewright.sharing import files

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError as error:
    raise missing("stores", "bundle", error) from error

_RAW = serialization.Encoding.Raw
_PURPOSE = b"tunewright bundle\n"
"""What is signed begins with what it is for, so that no signature of anything else can be taken for it."""

_DECISION = b"tunewright decision\n"
"""The same for a decision that is published on its own."""

_MOST_BYTES = 1 << 20
"""Of a key, or of a list of signers."""

_PRIME = 2**255 - 19
_WEAK = {0, 1, _PRIME - 1, *(
    int.from_bytes(bytes.fromhex(text), "little")
    for text in (
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
)}  # fmt: skip
"""The points of small order, by y: anyone can make signatures that fit one, as zeros that keep a line's place do."""


def new_key(path: Path) -> str:
    """Make a private key at `path`, for its owner's eyes only; its public half in text."""
    secret = Ed25519PrivateKey.generate()
    made = secret.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(made)
    return text_of(public_half(secret))


def private_key(path: Path) -> Ed25519PrivateKey:
    """The private key at `path`."""
    try:
        key = serialization.load_pem_private_key(files.content(path, _MOST_BYTES), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise BundleError(f"no private key can be read from {path}: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BundleError(f"{path} holds another kind of key; make one with `tunewright bundle key {path}`")
    return key


def public_half(key: Ed25519PrivateKey) -> bytes:
    """The 32 bytes that others know a signer by."""
    return key.public_key().public_bytes(_RAW, serialization.PublicFormat.Raw)


def text_of(public: bytes) -> str:
    """A public key in text."""
    return base64.b64encode(public).decode()


def trailer(content_digest: bytes, key: Ed25519PrivateKey | None) -> bytes:
    """What ends a bundle: the signer and the signature, or zeros."""
    if key is None:
        return bytes(96)
    return public_half(key) + key.sign(_PURPOSE + content_digest)


def signer(end: bytes, content_digest: bytes) -> bytes | None:
    """Who signed, or None if nobody did; a BundleError if the signature is not theirs."""
    return _signer(end, _PURPOSE + content_digest) if any(end) else None


def _signer(end: bytes, said: bytes) -> bytes:
    public, signature = end[:32], end[32:]
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, said)
    except (InvalidSignature, ValueError) as error:
        raise BundleError("its signature does not fit: it was changed, or never signed by that key") from error
    return public


def vouch(record: bytes, over: str, key: Ed25519PrivateKey) -> str:
    """A signature under the record of a decision and the digest of what it is to replace, in text."""
    return base64.b64encode(public_half(key) + key.sign(_decision(record, over))).decode()


def voucher(text: str, record: bytes, over: str) -> bytes:
    """Who signed a decision; a BundleError if nobody did, or the signature is not theirs."""
    try:
        end = base64.b64decode(text, validate=True)
    except ValueError:
        end = b""
    if len(end) != 96:
        raise BundleError("it is not signed; sign it with `?sign=KEY` behind the location of the service")
    return _signer(end, _decision(record, over))


def _decision(record: bytes, over: str) -> bytes:
    return _DECISION + sha256(record).digest() + over.encode()


def allowed(path: Path) -> dict[bytes, str]:
    """The signers listed in a file: a public key in base64 and a name on each line, # before remarks."""
    found: dict[bytes, str] = {}
    try:
        lines = files.content(path, _MOST_BYTES).decode().splitlines()
    except (OSError, ValueError) as error:
        raise BundleError(f"the list of signers cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        text, _, name = line.partition("#")[0].strip().partition(" ")
        if not text:
            continue
        found[key_of(text, f"{path}, line {number}")] = name.strip() or text[:12]
    return found


def key_of(text: str, where: str) -> bytes:
    """A public key from text."""
    try:
        public = base64.b64decode(text, validate=True)
    except ValueError:
        public = b""
    if len(public) != 32:
        raise BundleError(f"{where}: {text[:20]!r} is no public key of a signer; it has 44 characters of base64")
    if (int.from_bytes(public, "little") & ~(1 << 255)) % _PRIME in _WEAK:
        raise BundleError(f"{where}: {text[:20]!r} is a key that anyone can sign with; put the signer's own there")
    return public


def named(signers: Iterable[str] | Mapping[bytes, str]) -> dict[bytes, str]:
    """Signers given as texts, or already by key."""
    if isinstance(signers, Mapping):
        return {key_of(text_of(public), "a signer"): name for public, name in signers.items()}
    return {key_of(text, "a signer"): text[:12] for text in signers}
