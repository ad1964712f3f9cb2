"""A store in one signed file, which nobody changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

import msgspec

from tunewright.errors import BundleError, StoreError, WireError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.remarks import Remarks
from tunewright.sharing import files, wire
from tunewright.sharing.artefacts import Label
from tunewright.stores.bodies import Bodies, check_digest, kin_of, read_decision
from tunewright.stores.bundle.layout import MOST_BYTES, TRAILER, Parcel
from tunewright.stores.bundle.quarantine import Held, Quarantine

log = Remarks(__name__)


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a bundle says of itself; `choice` is a digest over all its decisions' keys and configs."""

    made_by: str
    decisions: int
    artefacts: int
    choice: str
    kernels: dict[str, int] = {}
    devices: dict[str, int] = {}
    toolchains: tuple[dict[str, str], ...] = ()
    note: str = ""
    enclosed: str = ""  # the digest of the list of what is enclosed


class Enclosed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that comes along: a `build` with its label, or the transcript of a `race`; its content by digest."""

    kind: str
    name: str
    digest: str
    label: Label | None = None


class Verified(NamedTuple):
    """The content of a bundle that somebody vouches for: a signer by name, or None where its digest was pinned."""

    path: Path
    content: memoryview
    digest: str
    signer: str | None


def verified(
    path: Path | str, *, signers: Mapping[bytes, str] | Iterable[str] = (), pin: str | None = None
) -> Verified:
    """The bundle at `path`, read once from end to end: signed by one of `signers`, or the one with the digest `pin`."""
    place = _home(path)
    content, end = _parted(place)
    digest = sha256(content).hexdigest()
    return Verified(place, content, digest, _vouched(place, end, digest, signers, pin))


class BundleStore:
    """Decisions of a verified bundle. Nothing of it is looked at before its signer or its digest is found good.

    Location: `bundle:PATH?signers=FILE` or `bundle:PATH?pin=DIGEST`. A look-up costs the logarithm of how many
    decisions there are; opening costs reading the file once, to verify it.
    """

    def __init__(self, bundle: Verified) -> None:
        self.path, content, self.digest, self.signer = bundle
        self._parcel = Parcel(content)
        self._bodies = Bodies(str(self.path))
        self.manifest = _manifest(self._parcel)
        self._held: Mapping[str, Held] = {}
        self._said = False

    @classmethod
    def at(cls, location: str) -> BundleStore:
        """The bundle at `bundle:PATH?signers=FILE` or `bundle:PATH?pin=DIGEST`."""
        place, _, query = location.removeprefix("bundle:").partition("?")
        options = dict(parse_qsl(query))
        if unknown := set(options) - {"signers", "pin"}:
            raise BundleError(f"{location}: no option {unknown.pop()!r}; there are `signers` and `pin`")
        return cls.trusted(place, options.get("signers"), options.get("pin"))

    @classmethod
    def trusted(cls, path: Path | str, signers: Path | str | None, pin: str | None = None) -> BundleStore:
        """The bundle at `path`, signed by one of those listed in the file `signers`, or with the digest `pin`."""
        from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

        if signers is None and pin is None:
            raise BundleError(
                f"{path}: say whom you trust: ?signers=FILE with the signers' public keys, or ?pin=DIGEST"
            )
        listed = {} if signers is None else signing.allowed(_home(signers))
        if signers is not None and not listed:
            raise BundleError(f"{signers} lists no signer; put the public keys there of those whom you trust")
        return cls(verified(path, signers=listed, pin=pin))

    def heed(self, cache: Path) -> None:
        """From now on pass over what was found bad on this machine, as the quarantine in its cache says."""
        self._held = Quarantine(cache, self.digest).entries()

    def is_held(self, key: Key) -> bool:
        """Whether the entry for a key is in quarantine; said aloud for the first that is."""
        if not self._held or key.digest not in self._held:
            return False
        if not self._said:
            self._said, held = True, self._held[key.digest]
            said = "%s: what was found bad here is passed over: %d entries, such as %s for %s (%s)"
            log.warning(said, self.path, len(self._held), held.config, key.kernel, held.reason)
        return True

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key, unless it is in quarantine."""
        if self.is_held(key):
            return None
        digest = bytes.fromhex(key.digest)
        number = self._parcel.found(digest)
        return None if number is None else self._bodies.decision(digest, *self._parcel.body(number), key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`."""
        return {key: decision for key in keys if (decision := self.get(key)) is not None}

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Nothing: a bundle does not change."""
        raise StoreError(f"{self.path} is a bundle, which nobody changes; put a store before it")

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin that are not in quarantine."""
        found = (self._at(number) for number in self._parcel.of_kin(kin_of(key)))
        ours = (decision for decision in found if decision is not None and decision.key.kin == key.kin)
        sound = (decision for decision in ours if not self.is_held(decision.key))
        return (decision for _, decision in zip(range(most), sound, strict=False))

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel; also those in quarantine, since this is what the bundle says."""
        for number in range(self._parcel.count):
            if (decision := self._at(number)) is not None and kernel in (None, decision.key.kernel):
                yield decision

    def _at(self, number: int) -> Decision | None:
        return self._bodies.believed("a decision", _read, *self._parcel.body(number), self._parcel.digest(number))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Nothing: a bundle does not change."""
        raise StoreError(f"{self.path} is a bundle, which takes no trials; put a store before it")

    def trials(self, key: Key) -> Iterator[Trial]:
        """None: a bundle carries decisions and their evidence."""
        return iter(())

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision."""
        return (decision.key for decision in self.decisions(kernel))

    @cached_property
    def enclosures(self) -> dict[tuple[str, str], Enclosed]:
        """What is enclosed, by kind and name; read when it is first asked for."""
        if not self.manifest.enclosed:
            return {}
        listed = self._artefact(self.manifest.enclosed)
        try:
            found = wire.decode(listed or b"", list[Enclosed])
        except WireError as error:
            raise BundleError(f"{self.path}: its list of what is enclosed cannot be read: {error}") from error
        return {(one.kind, one.name): one for one in found}

    def enclosed(self, kind: str, name: str) -> bytes | None:
        """What is enclosed under that name."""
        one = self.enclosures.get((kind, name))
        return None if one is None else self._artefact(one.digest)

    def builds(self, kernel: str) -> Sequence[Label]:
        """What is built for a kernel."""
        return [one.label for one in self.enclosures.values() if one.label is not None and one.label.kernel == kernel]

    def _artefact(self, digest: str) -> bytes | None:
        try:
            return self._parcel.artefact(bytes.fromhex(digest))
        except ValueError as error:
            raise BundleError(f"{self.path}: {digest[:20]!r} is no digest") from error


def _home(path: Path | str) -> Path:
    """A path in which ~ is a home, if there is one of that name."""
    return Path(os.path.expanduser(path))


def _read(body: bytes, sealed: int, digest: bytes) -> Decision:
    """The decision in `body`; a WireError if it is not the one for the key that it lies under."""
    decision = read_decision(body, sealed, digest)
    check_digest(decision.key, digest)
    return decision


def _parted(path: Path) -> tuple[memoryview, bytes]:
    """The content of the file and what ends it: a copy, since what is only mapped can still change once verified."""
    try:
        whole = memoryview(files.content(path, MOST_BYTES))
    except (OSError, ValueError, MemoryError) as error:
        raise BundleError(f"the bundle {path} cannot be read: {error}") from error
    if len(whole) <= TRAILER:
        raise BundleError(f"{path} is too short to be a bundle")
    return whole[:-TRAILER], bytes(whole[-TRAILER:])


def _vouched(
    path: Path, end: bytes, digest: str, signers: Mapping[bytes, str] | Iterable[str], pin: str | None
) -> str | None:
    """Who vouches for it: the name of a signer that is allowed; None where only its digest was pinned."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    trusted = signing.named(signers)
    if pin is not None and pin.lower() != digest:
        raise BundleError(
            f"{path} has the digest {digest[:16]}..., pinned is {pin[:16]}...; it is not the one you mean"
        )
    try:
        signed_by = signing.signer(end, bytes.fromhex(digest))
    except BundleError as error:
        raise BundleError(f"{path}: {error}; get it again from whom you trust") from error
    if not trusted:
        if pin is None:
            raise BundleError(f"{path}: nobody is allowed to sign, and no digest is pinned; say whom you trust")
        return None
    if signed_by is None:
        raise BundleError(f"{path} is not signed; sign it with `tunewright bundle build --sign KEY`")
    if signed_by not in trusted:
        raise BundleError(
            f"{path} is signed by {signing.text_of(signed_by)}, who is not on your list of signers; "
            "add the key if you trust it"
        )
    return trusted[signed_by]


def _manifest(parcel: Parcel) -> Manifest:
    try:
        said = wire.decode(parcel.manifest, Manifest)
    except WireError as error:
        raise BundleError(f"its manifest cannot be read: {error}") from error
    if said.decisions != parcel.count:
        raise BundleError(f"its manifest says {said.decisions} decisions, and there are {parcel.count}; do not use it")
    return said
