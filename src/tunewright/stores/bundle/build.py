"""Building bundles of decisions and attachments; equal contents make equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from tunewright.errors import BundleError
from tunewright.model.decision import Decision
from tunewright.stores import choice_digest, files, serialization
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.bundle import digests
from tunewright.stores.bundle.layout import MAX_BYTES, BundleReader, BundleRecord, pack
from tunewright.stores.bundle.store import AttachmentEntry, Manifest
from tunewright.stores.records import checksum, related_prefix
from tunewright.version import __version__


class Attachment(NamedTuple):
    """A `build` with its label, or the transcript of a `race` by the digest of its key."""

    kind: str
    name: str
    content: bytes
    label: ArtifactLabel | None = None


class ReleaseInfo(NamedTuple):
    """Where a bundle stands among others: its channel, its version, when it expires, and whom it is for."""

    channel: str = ""
    version: int = 0
    expires: str = ""
    audience: tuple[str, ...] = ()


def build(
    decisions: Iterable[Decision],
    attachments: Iterable[Attachment] = (),
    *,
    note: str = "",
    release: ReleaseInfo | None = None,
) -> bytes:
    """Returns a bundle without its trailer."""
    unique = {decision.key: decision for decision in decisions}
    ordered = sorted(unique.values(), key=lambda decision: decision.key.digest)
    named = {(attachment.kind, attachment.name): attachment for attachment in attachments}
    attached = [named[name] for name in sorted(named)]
    blobs = {sha256(attachment.content).digest(): attachment.content for attachment in attached}
    index = serialization.encode([_attachment_entry(attachment) for attachment in attached])
    if attached:
        blobs[sha256(index).digest()] = index
    toolchains = {serialization.encode(decision.key.toolchain): decision.key.toolchain for decision in ordered}
    manifest = Manifest(
        made_by=f"tunewright {__version__}",
        decisions=len(ordered),
        artifacts=len(attached),
        choice=choice_digest.digest((decision.key, decision.config) for decision in ordered),
        attachments=sha256(index).hexdigest() if attached else "",
        kernels=dict(sorted(Counter(decision.key.kernel for decision in ordered).items())),
        devices=dict(sorted(Counter(str(decision.key.device) for decision in ordered).items())),
        toolchains=tuple(toolchains[text] for text in sorted(toolchains)),
        note=note,
        **(release or ReleaseInfo())._asdict(),
    )
    return pack(serialization.encode(manifest), [_record(decision) for decision in ordered], blobs)


def _attachment_entry(attachment: Attachment) -> AttachmentEntry:
    digest = sha256(attachment.content).hexdigest()
    return AttachmentEntry(attachment.kind, attachment.name, digest, attachment.label)


def _record(decision: Decision) -> BundleRecord:
    digest, body = bytes.fromhex(decision.key.digest), serialization.dump_decision(decision)
    return BundleRecord(digest, related_prefix(decision.key), body, checksum(body, digest))


def write(path: Path, content: bytes, *keys: Any) -> str:
    """Writes a bundle atomically, signed by the keys that are given, and returns its digest."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    digest = digests.digest(content)
    files.write_atomic(
        path, content, signing.make_trailers(digest, [key for key in keys if key is not None]), durable=True
    )
    return digest.hex()


def add_signature(path: Path, key: Any) -> str:
    """Adds a signature to the bundle at `path`, which keeps its digest, and returns that."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    try:
        content, trailers = signing.split_trailers(memoryview(files.read_bounded(path, MAX_BYTES)))
        BundleReader(content)  # only what is a bundle is signed as one
    except BundleError as error:
        raise BundleError(f"{path} is not signed: {error}; make it with `tunewright bundle build`") from error
    digest = digests.digest(content)
    for trailer in trailers:
        signing.verify_signer(trailer, digest)
    files.write_atomic(
        path, content, signing.join_trailers([*trailers, signing.make_trailer(digest, key)]), durable=True
    )
    return digest.hex()
