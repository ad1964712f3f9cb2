"""Bundles as artifacts in an OCI registry: one manifest with the bundle, and optionally the list of its signers."""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

from tunewright.errors import BundleError
from tunewright.shipping.registry import MANIFEST_TYPE, Access, Descriptor, OciManifest, OciRegistry, Reference
from tunewright.stores import files
from tunewright.stores.bundle import digests
from tunewright.stores.bundle.layout import MAX_BYTES
from tunewright.stores.bundle.signers import MAX_BYTES as MAX_LIST_BYTES
from tunewright.stores.bundle.signers import read_signers
from tunewright.stores.bundle.store import BundleStore, Manifest, VerifiedBundle
from tunewright.stores.bundle.transfer import SECONDS, HttpTransfer

BUNDLE_TYPE = "application/vnd.tunewright.bundle.v1"
SIGNERS_TYPE = "application/vnd.tunewright.signers.v1"
CHANNEL, VERSION = "io.github.tunewright.channel", "io.github.tunewright.version"
_EMPTY_TYPE, _EMPTY = "application/vnd.oci.empty.v1+json", b"{}"


class Fetched(NamedTuple):
    """What came with a bundle: the digest of its manifest, its annotations, and a list of signers if there is one."""

    digest: str
    annotations: dict[str, str]
    signers: bytes | None


def annotate(manifest: Manifest) -> dict[str, str]:
    """Returns the annotations of a bundle, so that a registry shows what it has; they are checked on arrival."""
    if not manifest.channel:
        return {}
    return {CHANNEL: manifest.channel, VERSION: str(manifest.version)}


def push(
    path: Path,
    reference: Reference,
    access: Access,
    *,
    signers: Path | None = None,
    cosign_key: Path | None = None,
    seconds: float = SECONDS,
) -> str:
    """Uploads the bundle at `path` under the tag of `reference`, and returns the digest of its manifest."""
    if reference.digest:
        raise BundleError(f"{reference}: a digest cannot be chosen; push to a tag, as oci://HOST/REPO:TAG")
    body = files.read_bounded(path, MAX_BYTES)
    manifest = _read_manifest(path, body)
    if signers is not None:
        read_signers(signers)
    contents = [(BUNDLE_TYPE, body)]
    contents += [(SIGNERS_TYPE, files.read_bounded(signers, MAX_LIST_BYTES))] if signers is not None else []
    registry = OciRegistry(reference, HttpTransfer(seconds, access.ca), access)
    described = [_describe(kind, content) for kind, content in [*contents, (_EMPTY_TYPE, _EMPTY)]]
    for blob, content in zip(described, [*(content for _, content in contents), _EMPTY], strict=True):
        registry.put_blob(io.BytesIO(content), blob)
    *layers, empty = described
    made = OciManifest(2, MANIFEST_TYPE, empty, tuple(layers), BUNDLE_TYPE, annotate(manifest))
    digest = registry.put_manifest(made, reference.tag)
    if cosign_key is not None:
        from tunewright.shipping import cosign  # noqa: PLC0415 - needs `cryptography`

        cosign.push_signature(registry, reference, digest, cosign.load_private_key(cosign_key))
    return digest


def fetch(
    registry: OciRegistry, reference: Reference, sink: IO[bytes], limit: int, cosign_key: Path | None = None
) -> Fetched:
    """Writes the bundle that `reference` names to `sink`; who made it is not checked here."""
    found = registry.get_manifest(reference.digest or reference.tag)
    if found is None:
        raise BundleError(f"there is no {reference}; check repository and tag")
    manifest, digest = found
    kinds = [layer.media_type for layer in manifest.layers]
    if kinds not in ([BUNDLE_TYPE], [BUNDLE_TYPE, SIGNERS_TYPE]):
        raise BundleError(f"{reference} is not a bundle: it has {', '.join(kinds)[:200] or 'nothing'}; check the tag")
    if cosign_key is not None:
        from tunewright.shipping import cosign  # noqa: PLC0415 - needs `cryptography`

        cosign.verify(registry, digest, cosign.load_public_key(cosign_key))
    registry.get_blob(manifest.layers[0], sink, limit)
    signers = io.BytesIO()
    for layer in manifest.layers[1:]:
        registry.get_blob(layer, signers, MAX_LIST_BYTES)
    return Fetched(digest, manifest.annotations, signers.getvalue() if len(kinds) > 1 else None)


def own_manifest(path: Path) -> Manifest:
    """Returns the manifest of a bundle of ours, trusted because it is here."""
    return _read_manifest(path, files.read_bounded(path, MAX_BYTES))


def _read_manifest(path: Path, body: bytes) -> Manifest:
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    try:
        content, _ = signing.split_trailers(memoryview(body))
        return BundleStore(VerifiedBundle(path, content, digests.digest(content).hex(), None)).manifest
    except BundleError as error:
        raise BundleError(f"{path}: {error}; make it with `tunewright bundle build`") from error


def _describe(kind: str, content: bytes) -> Descriptor:
    return Descriptor(kind, f"sha256:{sha256(content).hexdigest()}", len(content))
