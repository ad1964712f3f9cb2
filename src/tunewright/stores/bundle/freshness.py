"""Freshness: of a channel, a machine accepts only later versions than it has seen, unless a person names another.

A signature says who made a bundle, not that it is the latest: whoever serves files could serve an old one for ever.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tunewright.errors import BundleError, StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.stores import files, serialization
from tunewright.stores.bundle.expiry import is_past
from tunewright.stores.file_lock import exclusive_lock

if TYPE_CHECKING:
    from tunewright.stores.bundle.signers import SignerList
    from tunewright.stores.bundle.store import Manifest

log = LazyLogger(__name__)

MAX_STEP = 1_000_000
"""How far a version may be ahead of the last: dates such as 20270101 fit, but not a number that nothing exceeds."""


class Expectation(NamedTuple):
    """What this machine expects: a channel, its own name as audience, and a version that a person allows."""

    channel: str | None = None
    audience: str | None = None
    allow: int | None = None

    @classmethod
    def parse(cls, channel: str | None, audience: str | None, allow: str | None) -> Expectation:
        """Returns an expectation from the options of a location."""
        if allow is not None and not (allow.isascii() and allow.isdecimal()):
            raise BundleError(f"allow={allow[:20]} is not a version; write its number, such as allow=7")
        return cls(channel, audience, None if allow is None else int(allow))


class Release(NamedTuple):
    """What a bundle says of itself under its signature; `is_pinned` if a person named its digest."""

    channel: str
    version: int
    expires: str
    audience: tuple[str, ...]
    digest: str
    is_pinned: bool = False
    signed_by: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, manifest: Manifest, digest: str, is_pinned: bool, signed_by: tuple[bytes, ...]) -> Release:
        """Returns the release that a manifest describes."""
        return cls(
            manifest.channel, manifest.version, manifest.expires, manifest.audience, digest, is_pinned, signed_by
        )

    def __str__(self) -> str:
        return f"version {self.version} of channel {self.channel!r}"


class ChannelState(msgspec.Struct, frozen=True):
    """What a machine has seen of a channel: the highest version, who signed it, and what it accepted last."""

    channel: str
    highest: int
    highest_digest: str
    signed_by: tuple[str, ...]
    current: int
    current_digest: str


class ChannelRecord:
    """The state of one channel on this machine: a readable file beside the cache, on the disk before it counts."""

    def __init__(self, cache: Path, channel: str) -> None:
        self.path = cache / "channels" / f"{sha256(channel.encode()).hexdigest()[:32]}.json"

    def read(self) -> ChannelState | None:
        """Returns the state; None if nothing of the channel was seen here."""
        try:
            return serialization.decode(self.path.read_bytes(), ChannelState)
        except FileNotFoundError:
            return None
        except (OSError, WireError) as error:
            # Do not treat it as new: that would accept any old version.
            raise StoreError(
                f"{self.path}, which says what was seen of a channel, cannot be read: {error}; "
                "remove it, and name the version with `--allow` the next time"
            ) from error

    def write(self, state: ChannelState) -> None:
        """Stores the state durably."""
        try:
            files.write_atomic(self.path, serialization.encode(state), durable=True)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error}; set another cache") from error


class FreshnessCheck:
    """Compares releases of a channel with what this machine expects and has seen."""

    def __init__(
        self,
        record: ChannelRecord,
        expected: Expectation,
        signers: SignerList | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._record, self._expected, self._signers, self._clock = record, expected, signers, clock

    def require(self, release: Release, *, in_use: bool = False) -> None:
        """Raises BundleError unless the release may be used; `in_use` accepts what was accepted before it expired."""
        expected = self._expected
        if expected.channel is not None and release.channel != expected.channel:
            found = f"of channel {release.channel!r}" if release.channel else "of no channel"
            raise BundleError(f"the bundle is {found}, not of {expected.channel!r}; get the right one")
        if release.audience and expected.audience not in release.audience and not release.is_pinned:
            names, own = ", ".join(release.audience), expected.audience
            told = "say which this machine is with `--audience`" if own is None else f"this machine is {own}"
            raise BundleError(f"the bundle is for {names}; {told}")
        if not release.channel:
            return  # built before there were channels, or not meant as a release
        if expected.allow == release.version or release.is_pinned:
            return
        state = self._record.read()
        is_current = state is not None and release.digest == state.current_digest
        if is_past(release.expires, self._clock()) and not (in_use and is_current):
            raise BundleError(f"{release} expired at {release.expires}; {self._remedy(release)}")
        least = 0 if self._signers is None else self._signers.minimum.get(release.channel, 0)
        if release.version < least:
            raise BundleError(
                f"{release} is older than {least}, the minimum in your list of signers; {self._remedy(release)}"
            )
        if state is not None and not is_current and self._is_valid(state):
            self._require_later(release, state)

    def accept(self, release: Release) -> None:
        """Remembers a release that is now in use; if nothing can be written, warns only."""
        if not release.channel:
            return
        try:
            with exclusive_lock(self._record.path.with_suffix(".lock")):
                state = self._record.read()
                after = self._after(release, state)
                if after != state:
                    self._record.write(after)
        except StoreError as error:
            log.warning("%s is not remembered, so an older one would be accepted: %s", release, error)

    def _after(self, release: Release, state: ChannelState | None) -> ChannelState:
        signed_by = tuple(base64.b64encode(public).decode() for public in release.signed_by)
        highest = (release.version, release.digest, signed_by)
        if state is not None and state.highest >= release.version and self._is_valid(state):
            highest = (state.highest, state.highest_digest, state.signed_by)
        return ChannelState(release.channel, *highest, release.version, release.digest)

    def _is_valid(self, state: ChannelState) -> bool:
        """Whether the highest version still counts; not if those who signed it are no longer trusted."""
        if self._signers is None or not state.signed_by:
            return True
        publics = {base64.b64decode(text) for text in state.signed_by}
        return len(publics & set(self._signers.names) - set(self._signers.revoked)) >= self._signers.threshold

    def _require_later(self, release: Release, state: ChannelState) -> None:
        if release.version < state.highest:
            raise BundleError(f"{release} is older than {state.highest}, seen here before; {self._remedy(release)}")
        if release.version > state.highest + MAX_STEP:
            raise BundleError(
                f"{release} is too far ahead of {state.highest}: no later one could follow; {self._remedy(release)}"
            )
        if release.version == state.highest and release.digest != state.highest_digest:
            raise BundleError(
                f"{release} is not the bundle that was seen here as this version; ask its signers which is right, "
                "and have the next version built"
            )
        if release.version == state.highest:
            raise BundleError(
                f"{release} was replaced here by version {state.current} on purpose; {self._remedy(release)}"
            )

    @staticmethod
    def _remedy(release: Release) -> str:
        allow = f"`--allow {release.version}` (in a location: allow={release.version})"
        return f"get a later one, or allow exactly this one with {allow}"
