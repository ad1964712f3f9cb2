"""Bundles fetched from a registry or a server: within limits, verified, no older than known, then installed at once."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from tunewright.errors import BundleError
from tunewright.shipping import artifact
from tunewright.shipping.registry import Access, OciRegistry, Reference
from tunewright.stores import files
from tunewright.stores.bundle.freshness import ChannelRecord, Expectation
from tunewright.stores.bundle.signers import read_signers, rotate
from tunewright.stores.bundle.store import BundleStore
from tunewright.stores.bundle.transfer import MAX_BYTES, SECONDS, HttpTransfer
from tunewright.stores.file_lock import exclusive_lock


class PullOptions(NamedTuple):
    """Whom to trust, which release is expected, how to reach the server, and how much is read for how long."""

    access: Access
    signers: Path | None = None
    pin: str | None = None
    expected: Expectation = Expectation()
    cosign_key: Path | None = None
    max_bytes: int = MAX_BYTES
    seconds: float = SECONDS


class Pulled(NamedTuple):
    """An installed bundle, the digest of its manifest in the registry, and the bytes that were received."""

    store: BundleStore
    digest: str
    received: int
    rotated: bool


def pull(location: str, destination: Path, options: PullOptions, cache: Path) -> Pulled:
    """Fetches the bundle at `location`, `oci://` or `https://`, and installs it at `destination` if it is accepted."""
    if options.signers is None and options.pin is None:
        raise BundleError(f"{location}: say whom you trust: --signers FILE, or --pin DIGEST")
    if options.cosign_key is not None and not location.startswith("oci://"):
        raise BundleError("cosign keeps signatures in registries; give a location that begins with oci://")
    transfer = HttpTransfer(options.seconds, options.access.ca)
    with _scratch_file(destination) as (scratch, file):
        fetched = _fetch(location, transfer, options, file)
        file.flush()
        os.fsync(file.fileno())
        rotated = _take_signers(fetched, options)
        store = _open(scratch, destination, options)
        _compare(fetched, store)
        # One at a time, so that what is installed last is also what is remembered.
        with exclusive_lock(ChannelRecord(cache, store.manifest.channel).path.with_suffix(".pull")):
            store.require_fresh(cache, in_use=False, record=False)
            os.replace(scratch, destination)
            files.sync(destination.parent)
            store.require_fresh(cache)
    store.path = destination
    return Pulled(store, fetched.digest, transfer.received, rotated)


@contextmanager
def _scratch_file(destination: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """Yields a new file beside `destination`, which is removed unless it was renamed."""
    scratch = destination.with_name(f".{destination.name}.{secrets.token_hex(8)}.part")
    try:
        with scratch.open("xb") as file:
            yield scratch, file
    except OSError as error:
        raise BundleError(f"{destination} cannot be written: {error}; give another file") from error
    finally:
        scratch.unlink(missing_ok=True)


def _fetch(location: str, transfer: HttpTransfer, options: PullOptions, sink: IO[bytes]) -> artifact.Fetched:
    if location.startswith("oci://"):
        reference = Reference.parse(location)
        registry = OciRegistry(reference, transfer, options.access)
        return artifact.fetch(registry, reference, sink, options.max_bytes, options.cosign_key)
    with transfer.get(location) as response:
        if response.status != 200:
            raise BundleError(f"the server answers {response.status}; check the address")
        for part in transfer.parts(response, options.max_bytes):
            sink.write(part)
    return artifact.Fetched("", {}, None)


def _take_signers(fetched: artifact.Fetched, options: PullOptions) -> bool:
    """Replaces the list of signers by a later one that came along, if signers of both lists signed it."""
    if fetched.signers is None or options.signers is None:
        return False
    with _scratch_file(options.signers) as (scratch, file):
        file.write(fetched.signers)
        file.flush()
        if read_signers(scratch).version <= read_signers(options.signers).version:
            return False
        rotate(options.signers, scratch)
    return True


def _open(scratch: Path, destination: Path, options: PullOptions) -> BundleStore:
    """Returns the bundle that arrived, after its signers were checked; it must be of the channel that it replaces."""
    expected = options.expected
    if expected.channel is None and destination.exists():
        with suppress(BundleError):  # what cannot be read tells nothing
            before = artifact.own_manifest(destination).channel
            expected = expected._replace(channel=before or None)
    try:
        return BundleStore.open_trusted(scratch, options.signers, options.pin, expected)
    except BundleError as error:
        raise BundleError(str(error).replace(str(scratch), "what arrived")) from error


def _compare(fetched: artifact.Fetched, store: BundleStore) -> None:
    """Raises BundleError if a manifest in a registry describes another bundle than the one that it has."""
    told = {name: fetched.annotations[name] for name in (artifact.CHANNEL, artifact.VERSION)
            if name in fetched.annotations}  # fmt: skip
    if told and told != artifact.annotate(store.manifest):
        raise BundleError("the registry's manifest describes another release than its bundle is; have it pushed again")
