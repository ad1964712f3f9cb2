"""Responses to the most frequent requests without the web framework: cached records and known bundles."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from litestar.types import Receive

from tunewright.service.bundles import CACHE_FOREVER, MEDIA_TYPE, BundleCache
from tunewright.service.context import RequestContext
from tunewright.service.responses import MIN_COMPRESSED_BYTES
from tunewright.service.schemas import LookupRequest, is_digest
from tunewright.service.tokens import Scope, Token

DECISION, LOOKUP, BUNDLE = "/v1/decisions/", "/v1/decisions/lookup", "/v1/bundles/"
TEMPLATES = {DECISION: "/v1/decisions/{digest}", LOOKUP: LOOKUP, BUNDLE: "/v1/bundles/{digest}"}
_JSON = (b"content-type", b"application/json")


class ReadyResponse(NamedTuple):
    """A response that can be sent as it is, and the route under which it is counted."""

    template: str
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class FastPath:
    """Answers admitted requests from memory; the others go to the framework with their body unread."""

    def __init__(self, context: RequestContext, bundle_cache: BundleCache) -> None:
        self._context, self._bundle_cache = context, bundle_cache

    async def __call__(
        self, scope: Any, headers: dict[bytes, bytes], token: Token, receive: Receive
    ) -> tuple[ReadyResponse | None, Receive]:
        """Returns the response if it is in memory, and otherwise None and a `receive` that still has the body."""
        path, method = scope["path"], scope["method"]
        if not token.allows(Scope.READ):
            return None, receive
        if method == "GET" and path.startswith(DECISION):
            return self._decision(path[len(DECISION) :]), receive
        if method == "GET" and path.startswith(BUNDLE):
            return self._bundle(path[len(BUNDLE) :], headers), receive
        if method == "POST" and path == LOOKUP and headers.get(b"content-type") == b"application/json":
            return await self._lookup(headers, receive)
        return None, receive

    def _decision(self, digest: str) -> ReadyResponse | None:
        body = self._context.record_cache.get(digest)
        if body is None:
            return None
        self._context.metrics.warm.inc()
        return _response(DECISION, 200, [_JSON], body)

    def _bundle(self, digest: str, headers: dict[bytes, bytes]) -> ReadyResponse | None:
        """Returns 304 for a cached bundle that the client has: the bytes of a digest never change."""
        etag = b'"%s"' % digest.encode("latin-1", "replace")
        if etag not in headers.get(b"if-none-match", b"") or not is_digest(digest) or digest not in self._bundle_cache:
            return None
        caching = [(b"etag", etag), (b"cache-control", CACHE_FOREVER.encode()), (b"accept-ranges", b"bytes")]
        return _response(BUNDLE, 304, [(b"content-type", MEDIA_TYPE.encode()), *caching], b"")

    async def _lookup(self, headers: dict[bytes, bytes], receive: Receive) -> tuple[ReadyResponse | None, Receive]:
        message: Any = await receive()
        replayed = _replay(message, receive)
        if message["type"] != "http.request" or message.get("more_body"):
            return None, replayed
        try:
            lookup = msgspec.json.decode(message["body"], type=LookupRequest)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None, replayed  # the handler explains what is wrong
        fragments, missing = self._context.record_cache.get_many(lookup.digests)
        size = sum(map(len, fragments.values()))
        if missing or (size >= MIN_COMPRESSED_BYTES and b"gzip" in headers.get(b"accept-encoding", b"")):
            return None, replayed
        self._context.metrics.warm.inc(len(fragments))
        return _response(LOOKUP, 200, [_JSON], b'{"found":{%s}}' % b",".join(fragments.values())), replayed


def _response(route: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> ReadyResponse:
    return ReadyResponse(TEMPLATES[route], status, [*headers, (b"content-length", b"%d" % len(body))], body)


def _replay(message: Any, receive: Receive) -> Receive:
    """Returns a `receive` that yields the message that was already received, then the rest."""
    pending = [message]

    async def receive_again() -> Any:
        return pending.pop() if pending else await receive()

    return receive_again
