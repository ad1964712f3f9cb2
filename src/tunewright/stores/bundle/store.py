"""Bundle store: the decisions of one signed file, which cannot be changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from tunewright.errors import BundleError, StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores import serialization
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.bundle import content
from tunewright.stores.bundle.content import BundleContent
from tunewright.stores.bundle.freshness import ChannelRecord, Expectation, FreshnessCheck, Release
from tunewright.stores.bundle.layout import BundleReader
from tunewright.stores.bundle.quarantine import Quarantine, QuarantinedEntry
from tunewright.stores.records import RecordReader, check_digest, read_decision, related_prefix

if TYPE_CHECKING:
    from tunewright.stores.bundle.signers import SignerList

log = LazyLogger(__name__)

_OPTIONS = ("signers", "pin", "channel", "audience", "allow")


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describes a bundle; `choice` is a digest over the keys and configs of all its decisions.

    `attachments` is the digest of the list of attachments. A release has a `channel`, a `version` in it, a time when
    it `expires`, and an `audience`, the names of those it is for; empty means everybody.
    """

    made_by: str
    decisions: int
    artifacts: int = msgspec.field(name="artefacts")
    choice: str
    kernels: dict[str, int] = {}
    devices: dict[str, int] = {}
    toolchains: tuple[dict[str, str], ...] = ()
    note: str = ""
    attachments: str = msgspec.field(default="", name="enclosed")
    channel: str = ""
    version: int = 0
    expires: str = ""
    audience: tuple[str, ...] = ()


class AttachmentEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attachment in the list: a `build` with its label, or the transcript of a `race`; its content by digest."""

    kind: str
    name: str
    digest: str
    label: ArtifactLabel | None = None


class VerifiedBundle(NamedTuple):
    """The content of a trusted bundle, and the names of its signers; None if it was trusted by its digest alone.

    `signers` is the list that it was checked against, `signed_by` the keys on it that signed.
    """

    path: Path
    content: memoryview
    digest: str
    signer: str | None
    signers: SignerList | None = None
    signed_by: tuple[bytes, ...] = ()


def verify_bundle(
    path: Path | str, *, signers: SignerList | Mapping[bytes, str] | Iterable[str] = (), pin: str | None = None
) -> VerifiedBundle:
    """Reads the bundle at `path` once and checks that enough of `signers` signed it, or that its digest is `pin`.

    `path` may be an address that begins with https://.
    """
    if isinstance(path, str) and path.startswith(("https://", "http://")):
        from tunewright.stores.bundle import transfer  # noqa: PLC0415 - only for bundles elsewhere

        downloaded = BundleContent.of(transfer.download(path))
        return verify_content(Path(path.rpartition("/")[2]), downloaded, signers, pin)
    return verify_content(_expand(path), _read_file(_expand(path)), signers, pin)


class BundleStore:
    """Decisions of a verified bundle. Nothing in it is used before its signer or its digest is checked.

    Only the table of its sections is read before, to align the largest attachment in memory. That is harmless: reads
    are bounded, numbers beyond the file are cut, and the bytes that are hashed are those that are used.
    Location: `bundle:PATH?signers=FILE` or `bundle:PATH?pin=DIGEST`. A look-up takes logarithmic time; opening reads
    the file once, to verify it.
    """

    def __init__(self, bundle: VerifiedBundle, expected: Expectation | None = None) -> None:
        self.path, self.digest, self.signer = bundle.path, bundle.digest, bundle.signer
        self.signers, self.signed_by = bundle.signers, bundle.signed_by
        self._expected = expected or Expectation()
        self._bundle = BundleReader(bundle.content)
        self._reader = RecordReader(str(self.path))
        self.manifest = _read_manifest(self._bundle)
        self._quarantined: Mapping[str, QuarantinedEntry] = {}
        self._warned = False

    @classmethod
    def at(cls, location: str) -> BundleStore:
        """Opens the bundle at `bundle:PATH?signers=FILE` or `bundle:PATH?pin=DIGEST`.

        `channel=`, `audience=` and `allow=VERSION` say which release is expected.
        """
        path, _, query = location.removeprefix("bundle:").partition("?")
        options = dict(parse_qsl(query))
        if unknown := set(options) - set(_OPTIONS):
            raise BundleError(f"{location}: no option {unknown.pop()!r}; there are {', '.join(_OPTIONS)}")
        expected = Expectation.parse(options.get("channel"), options.get("audience"), options.get("allow"))
        return cls.open_trusted(path, options.get("signers"), options.get("pin"), expected)

    @classmethod
    def open_trusted(
        cls,
        path: Path | str,
        signers: Path | str | None,
        pin: str | None = None,
        expected: Expectation | None = None,
    ) -> BundleStore:
        """Opens the bundle at `path`, signed by those listed in the file `signers`, or with the digest `pin`."""
        from tunewright.stores.bundle.signers import SignerList, read_signers  # noqa: PLC0415 - needs `cryptography`

        if signers is None and pin is None:
            raise BundleError(
                f"{path}: say whom you trust: ?signers=FILE with the signers' public keys, or ?pin=DIGEST"
            )
        trusted = SignerList({}) if signers is None else read_signers(_expand(signers))
        if signers is not None and not trusted.names:
            raise BundleError(f"{signers} lists no signer; add the public keys of those you trust")
        return cls(verify_bundle(path, signers=trusted, pin=pin), expected)

    def require_fresh(self, cache: Path, *, in_use: bool = True, record: bool = True) -> None:
        """Raises BundleError unless the bundle is the release that is expected, and no older than this machine knows.

        `in_use` accepts an expired bundle that was accepted here before it expired: production must be able to start.
        `record` remembers the version for later.
        """
        release = Release.of(self.manifest, self.digest, self.signer is None, self.signed_by)
        check = FreshnessCheck(ChannelRecord(cache, self.manifest.channel), self._expected, self.signers)
        check.require(release, in_use=in_use)
        if record:
            check.accept(release)

    def apply_quarantine(self, cache: Path) -> None:
        """Skips the entries that the quarantine in this cache lists, from now on."""
        self._quarantined = Quarantine(cache, self.digest).entries()

    def is_quarantined(self, key: Key) -> bool:
        """Returns whether the entry for a key is in quarantine; the first one is logged."""
        if not self._quarantined or key.digest not in self._quarantined:
            return False
        if not self._warned:
            self._warned, entry = True, self._quarantined[key.digest]
            message = "%s: skipping %d entries that were found bad on this machine, such as %s for %s (%s)"
            log.warning(message, self.path, len(self._quarantined), entry.config, key.kernel, entry.reason)
        return True

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key, unless it is in quarantine."""
        if self.is_quarantined(key):
            return None
        digest = bytes.fromhex(key.digest)
        number = self._bundle.find(digest)
        return None if number is None else self._reader.decision(digest, *self._bundle.body(number), key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`."""
        return {key: decision for key in keys if (decision := self.get(key)) is not None}

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Raises StoreError."""
        raise StoreError(f"{self.path} is a bundle, which cannot be changed; put a store in front of it")

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys that are not in quarantine."""
        decisions = (self._decision(number) for number in self._bundle.related(related_prefix(key)))
        related = (
            decision
            for decision in decisions
            if decision is not None and decision.key.related_digest == key.related_digest
        )
        usable = (decision for decision in related if not self.is_quarantined(decision.key))
        return (decision for _, decision in zip(range(limit), usable, strict=False))

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel, including those in quarantine."""
        for number in range(self._bundle.count):
            if (decision := self._decision(number)) is not None and kernel in (None, decision.key.kernel):
                yield decision

    def _decision(self, number: int) -> Decision | None:
        record = (*self._bundle.body(number), self._bundle.digest(number))
        return self._reader.read_or_skip("a decision", _read_decision, *record)

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Raises StoreError."""
        raise StoreError(f"{self.path} is a bundle, which cannot store trials; put a store in front of it")

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields nothing: a bundle has decisions and their evidence only."""
        return iter(())

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision."""
        return (decision.key for decision in self.decisions(kernel))

    @cached_property
    def attachments(self) -> dict[tuple[str, str], AttachmentEntry]:
        """The attachments by kind and name; read on first use."""
        if not self.manifest.attachments:
            return {}
        index = self._blob(self.manifest.attachments)
        try:
            entries = serialization.decode(index or b"", list[AttachmentEntry])
        except WireError as error:
            raise BundleError(f"{self.path}: its list of attachments cannot be read: {error}") from error
        return {(entry.kind, entry.name): entry for entry in entries}

    def read_attachment(self, kind: str, name: str) -> bytes | None:
        """Returns the content of an attachment."""
        entry = self.attachments.get((kind, name))
        return None if entry is None else self._blob(entry.digest)

    def view_attachment(self, kind: str, name: str) -> memoryview | None:
        """Returns the content of a large attachment in place: not copied, and hashed only as a part of the bundle."""
        entry = self.attachments.get((kind, name))
        return None if entry is None else self._bundle.view(self._digest_bytes(entry.digest))

    def artifact_labels(self, kernel: str) -> Sequence[ArtifactLabel]:
        """Returns the labels of the artifacts built for a kernel."""
        labels = (entry.label for entry in self.attachments.values())
        return [label for label in labels if label is not None and label.kernel == kernel]

    def _blob(self, digest: str) -> bytes | None:
        return self._bundle.blob(self._digest_bytes(digest))

    def _digest_bytes(self, digest: str) -> bytes:
        try:
            return bytes.fromhex(digest)
        except ValueError as error:
            raise BundleError(f"{self.path}: {digest[:20]!r} is not a digest") from error


def _expand(path: Path | str) -> Path:
    """Returns a path with ~ expanded, if there is such a home."""
    return Path(os.path.expanduser(path))


def _read_decision(body: bytes, crc: int, digest: bytes) -> Decision:
    """Returns the decision in `body`; raises WireError if it is for another key."""
    decision = read_decision(body, crc, digest)
    check_digest(decision.key, digest)
    return decision


def _read_file(path: Path) -> BundleContent:
    try:
        return content.read(path)
    except (OSError, ValueError, MemoryError) as error:
        raise BundleError(f"the bundle {path} cannot be read: {error}") from error


def verify_content(
    path: Path,
    whole: BundleContent,
    signers: SignerList | Mapping[bytes, str] | Iterable[str] = (),
    pin: str | None = None,
) -> VerifiedBundle:
    """Checks that enough of `signers` signed the bytes of a bundle, or that its digest is `pin`."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`
    from tunewright.stores.bundle.signers import SignerList  # noqa: PLC0415 - as above

    trusted = SignerList.of(signers)
    try:
        signed, trailers = signing.split_trailers(whole.whole)
        digest = whole.digest(signed)
        publics = [signing.verify_signer(trailer, digest) for trailer in trailers]
    except BundleError as error:
        raise BundleError(f"{path}: {error}; get it again from someone you trust") from error
    name = digest.hex()
    if pin is not None and pin.lower() != name:
        raise BundleError(f"{path} has the digest {name[:16]}..., not the pinned {pin[:16]}...; get the right bundle")
    if not trusted.names:
        if pin is None:
            raise BundleError(f"{path}: no signer is allowed and no digest is pinned; say whom you trust")
        return VerifiedBundle(path, signed, name, None)
    trusted.check_current(time.time())
    signed_by = trusted.check_signed([public for public in publics if public is not None], str(path))
    names = ", ".join(trusted.names[public] for public in signed_by)
    return VerifiedBundle(path, signed, name, names, trusted, signed_by)


def _read_manifest(bundle: BundleReader) -> Manifest:
    try:
        manifest = serialization.decode(bundle.manifest, Manifest)
    except WireError as error:
        raise BundleError(f"its manifest cannot be read: {error}") from error
    if manifest.decisions != bundle.count:
        raise BundleError(
            f"its manifest says {manifest.decisions} decisions, but there are {bundle.count}; do not use it"
        )
    return manifest
