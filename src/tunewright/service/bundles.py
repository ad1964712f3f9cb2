"""Routes of bundles, which are stored under the digest of their bytes and never change, so caches may keep them."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from litestar import HttpMethod, get, put, route
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp

from tunewright.errors import BundleError, PluginError
from tunewright.service.context import RequestContext
from tunewright.service.lookups import require_digest
from tunewright.service.openapi import BytesOperation
from tunewright.service.responses import (
    ServiceRequest,
    context_of,
    json_response,
    raw_response,
    request_header,
    requires,
)
from tunewright.service.tokens import Scope
from tunewright.stores import namespaces, serialization
from tunewright.stores.bundle import digests
from tunewright.stores.bundle.store import BundleStore, Manifest, VerifiedBundle

BUNDLE_NAMESPACE, LISTING_NAMESPACE = namespaces.BUNDLES.name, namespaces.BUNDLE_LIST.name
MEDIA_TYPE = "application/octet-stream"
CACHE_FOREVER = "public, max-age=31536000, immutable"
MAX_CACHED_BYTES = 256 << 20


class BundleListing(msgspec.Struct, frozen=True):
    """A stored bundle: its digest, size, signer and manifest."""

    digest: str
    bytes: int
    signer: str
    manifest: Manifest | None = None


class BundleCache:
    """The bytes of recently requested bundles, limited in total. Not thread-safe."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    def __contains__(self, digest: object) -> bool:
        return digest in self._bodies

    async def get(self, context: RequestContext, digest: str) -> bytes | None:
        """Returns a bundle, from the store if necessary; None if it is missing or damaged there."""
        if (body := self._bodies.get(digest)) is not None:
            self._bodies.move_to_end(digest)
            return body
        entries: dict[str, bytes] = await context.run(context.storage.primary.fetch, BUNDLE_NAMESPACE, [digest])
        body = entries.get(digest)
        if body is None or await context.run(digest_of, body) != digest:
            return None
        self._bodies[digest] = body
        while sum(map(len, self._bodies.values())) > MAX_CACHED_BYTES:
            self._bodies.popitem(last=False)
        return body


@get("/bundles", **requires(Scope.READ), summary="The bundles that are stored")
async def list_bundles(request: ServiceRequest) -> ASGIApp:
    """Returns the digest, size and signer of each bundle."""
    context = context_of(request)

    def read_listings() -> list[BundleListing]:
        entries = context.storage.primary.entries(LISTING_NAMESPACE)
        return [serialization.decode(body, BundleListing) for _, body in entries]

    return json_response({"bundles": await context.run(read_listings)})


@route(
    "/bundles/{digest:str}",
    http_method=[HttpMethod.GET, HttpMethod.HEAD],
    media_type=MEDIA_TYPE,
    **requires(Scope.READ),
    summary="A bundle, or a part of it",
)
async def get_bundle(request: ServiceRequest, digest: str) -> ASGIApp:
    """Returns the bytes of a bundle. Supports `If-None-Match` and `Range`; the bytes of a digest never change."""
    etag = f'"{require_digest(digest)}"'
    known = request_header(request, b"if-none-match")
    body = await request.app.state.bundle_cache.get(context_of(request), digest)
    if body is None:
        raise HTTPException(status_code=404, detail="no bundle has this digest")
    headers = {"etag": etag, "cache_control": CACHE_FOREVER, "accept_ranges": "bytes"}
    if etag in known or known.strip() == "*":
        return raw_response(b"", 304, MEDIA_TYPE, **headers)
    byte_range = _range(request_header(request, b"range"), len(body))
    if byte_range is None or (request_header(request, b"if-range") or etag) != etag:
        return raw_response(body, 200, MEDIA_TYPE, **headers)
    start, end = byte_range
    if start >= end:
        return raw_response(b"", 416, MEDIA_TYPE, content_range=f"bytes */{len(body)}")
    content_range = f"bytes {start}-{end - 1}/{len(body)}"
    return raw_response(body[start:end], 206, MEDIA_TYPE, content_range=content_range, **headers)


@put(
    "/bundles/{digest:str}",
    status_code=200,
    operation_class=BytesOperation,
    **requires(Scope.SIGN),
    summary="Store a bundle",
)
async def put_bundle(request: ServiceRequest, digest: str) -> ASGIApp:
    """Stores a bundle under the SHA-256 of its bytes. If the service has a list of signers, one must have signed it."""
    context = context_of(request)
    body = b"".join([part async for part in request.stream()])
    return json_response(await context.run(_store_bundle, context, require_digest(digest), body))


def _store_bundle(context: RequestContext, digest: str, body: bytes) -> BundleListing:
    if digest_of(body) != digest:
        raise HTTPException(status_code=400, detail="the digest of the body differs from the one in the path")
    try:
        signer = _signer(context, body)
        listing = BundleListing(digest, len(body), signer, open_bundle(digest, body, signer).manifest)
    except BundleError as error:
        raise HTTPException(status_code=400, detail=str(error)) from error
    except PluginError as error:
        raise HTTPException(status_code=501, detail=str(error)) from error
    context.storage.primary.keep(BUNDLE_NAMESPACE, digest, body, replace=False)
    context.storage.primary.keep(LISTING_NAMESPACE, digest, serialization.encode(listing), replace=False)
    return listing


def _signer(context: RequestContext, body: bytes) -> str:
    """Returns the signer of a bundle; raises BundleError if the service does not trust them."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    content, trailers = signing.split_trailers(memoryview(body))
    digest = digests.digest(content)
    publics = [signing.verify_signer(trailer, digest) or b"" for trailer in trailers]
    if context.signers:
        publics = [public for public in publics if public in context.signers]
        if not publics:
            raise BundleError("the bundle is not signed by a key in the list of signers")
    return ", ".join(context.signers.get(public, signing.encode_public_key(public)) for public in publics)


def open_bundle(digest: str, body: bytes, signer: str) -> BundleStore:
    """Opens a bundle from its bytes; its signature was checked when it was stored."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    content, _ = signing.split_trailers(memoryview(body))
    return BundleStore(VerifiedBundle(Path(f"{digest[:12]}.bundle"), content, digest, signer or None))


def digest_of(body: Any) -> str:
    """Returns the SHA-256 of all bytes of a bundle."""
    return sha256(body).hexdigest()


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Parses a `Range` header into start and end; None if it asks for everything or is not understood."""
    unit, _, spec = text.partition("=")
    first, dash, last = spec.strip().partition("-")
    if unit.strip() != "bytes" or not dash or len(spec) > 40 or not f"{first}{last}".isdecimal():
        return None
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1 if last else size)
