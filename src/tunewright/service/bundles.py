"""Bundles: kept by the digest of their bytes, never changed, so that any cache on the way may keep them for ever."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from litestar import HttpMethod, get, put, route
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp

from tunewright.errors import BundleError
from tunewright.service.answering import Asking, bare, desk_of, needs, plain, sent
from tunewright.service.describing import TakesBytes
from tunewright.service.desk import Desk
from tunewright.service.lookups import sound
from tunewright.service.tokens import Scope
from tunewright.sharing import wire
from tunewright.stores.bundle.layout import TRAILER
from tunewright.stores.bundle.store import BundleStore, Manifest, Verified

SHELF, LISTED = "service:bundles", "service:bundle list"
KIND = "application/octet-stream"
FOREVER = "public, max-age=31536000, immutable"
MOST_HELD = 256 << 20


class Listed(msgspec.Struct, frozen=True):
    """A bundle that is kept: what it is called, how large it is, who signed it, what it says of itself."""

    digest: str
    bytes: int
    signer: str
    manifest: Manifest | None = None


class Held:
    """The bundles asked for last, whole, in a bounded number of bytes. For one thread."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    def __contains__(self, digest: object) -> bool:
        return digest in self._bodies

    async def get(self, desk: Desk, digest: str) -> bytes | None:
        """A bundle, from the store if need be; one that is damaged there is nowhere."""
        if (body := self._bodies.get(digest)) is not None:
            self._bodies.move_to_end(digest)
            return body
        found: dict[str, bytes] = await desk.call(desk.archive.truth.fetch, SHELF, [digest])
        body = found.get(digest)
        if body is None or await desk.call(named, body) != digest:
            return None
        self._bodies[digest] = body
        while sum(map(len, self._bodies.values())) > MOST_HELD:
            self._bodies.popitem(last=False)
        return body


@get("/bundles", **needs(Scope.READ), summary="The bundles that are kept")
async def every(request: Asking) -> ASGIApp:
    """Each with its digest, size and signer."""
    desk = desk_of(request)
    found = await desk.call(lambda: [wire.decode(body, Listed) for _, body in desk.archive.truth.entries(LISTED)])
    return plain({"bundles": found})


@route(
    "/bundles/{digest:str}",
    http_method=[HttpMethod.GET, HttpMethod.HEAD],
    media_type=KIND,
    **needs(Scope.READ),
    summary="A bundle, or a part of it",
)
async def one(request: Asking, digest: str) -> ASGIApp:
    """Its bytes. `If-None-Match` and `Range` are heeded; a digest never stands for other bytes."""
    tagged = f'"{sound(digest)}"'
    known = sent(request, b"if-none-match")
    body = await request.app.state.held.get(desk_of(request), digest)
    if body is None:
        raise HTTPException(status_code=404, detail="no bundle has that digest")
    lasting = {"etag": tagged, "cache_control": FOREVER, "accept_ranges": "bytes"}
    if tagged in known or known.strip() == "*":
        return bare(b"", 304, KIND, **lasting)
    part = _range(sent(request, b"range"), len(body))
    if part is None or (sent(request, b"if-range") or tagged) != tagged:
        return bare(body, 200, KIND, **lasting)
    start, end = part
    if start >= end:
        return bare(b"", 416, KIND, content_range=f"bytes */{len(body)}")
    return bare(body[start:end], 206, KIND, content_range=f"bytes {start}-{end - 1}/{len(body)}", **lasting)


@put(
    "/bundles/{digest:str}",
    status_code=200,
    operation_class=TakesBytes,
    **needs(Scope.SIGN),
    summary="Keep a bundle",
)
async def keep(request: Asking, digest: str) -> ASGIApp:
    """A bundle sent as it is, under the SHA-256 of all its bytes; signed by a signer, where there is a list of them."""
    desk = desk_of(request)
    body = b"".join([part async for part in request.stream()])
    listed = await desk.call(_kept, desk, sound(digest), body)
    return plain(listed)


def _kept(desk: Desk, digest: str, body: bytes) -> Listed:
    if named(body) != digest:
        raise HTTPException(status_code=400, detail="these bytes have another digest")
    try:
        signer = _signer(desk, body)
        listed = Listed(digest, len(body), signer, opened(digest, body, signer).manifest)
    except BundleError as error:
        raise HTTPException(status_code=400, detail=str(error)) from error
    desk.archive.truth.keep(SHELF, digest, body, replace=False)
    desk.archive.truth.keep(LISTED, digest, wire.encode(listed), replace=False)
    return listed


def _signer(desk: Desk, body: bytes) -> str:
    """Who signed a bundle; a BundleError if it must be somebody else."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    public = signing.signer(body[-TRAILER:], sha256(body[:-TRAILER]).digest())
    if desk.signers and (public is None or public not in desk.signers):
        raise BundleError("it is not signed by anybody on the list of signers")
    return "" if public is None else desk.signers.get(public, signing.text_of(public))


def opened(digest: str, body: bytes, signer: str) -> BundleStore:
    """A bundle from its bytes; who vouches for it was looked at when it was kept."""
    content = memoryview(body)[:-TRAILER]
    return BundleStore(Verified(Path(f"{digest[:12]}.bundle"), content, digest, signer or None))


def named(body: Any) -> str:
    """What a bundle is known by here: the SHA-256 of all its bytes."""
    return sha256(body).hexdigest()


def _range(text: str, size: int) -> tuple[int, int] | None:
    """The first and the last byte but one that are asked for; None if all of them are, or it cannot be understood."""
    unit, _, asked = text.partition("=")
    first, dash, last = asked.strip().partition("-")
    if unit.strip() != "bytes" or not dash or len(asked) > 40 or not f"{first}{last}".isdecimal():
        return None
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1 if last else size)
