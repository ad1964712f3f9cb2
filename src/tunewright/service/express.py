"""Express: what a service is asked for most, answered without the framework: warm records, bundles that are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from litestar.types import Receive

from tunewright.service.answering import WORTH_PACKING
from tunewright.service.asking import Lookup, is_digest
from tunewright.service.bundles import FOREVER, KIND, Held
from tunewright.service.desk import Desk
from tunewright.service.tokens import Scope, Token

DECISION, LOOKUP, BUNDLE = "/v1/decisions/", "/v1/decisions/lookup", "/v1/bundles/"
TEMPLATES = {DECISION: "/v1/decisions/{digest}", LOOKUP: LOOKUP, BUNDLE: "/v1/bundles/{digest}"}
_JSON = (b"content-type", b"application/json")


class Ready(NamedTuple):
    """An answer to be sent as it is, and the route that it is counted under."""

    template: str
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Express:
    """Looks at requests that the gate has let in. What it does not know by heart goes to the framework, unread."""

    def __init__(self, desk: Desk, held: Held) -> None:
        self._desk, self._held = desk, held

    async def __call__(
        self, scope: Any, headers: dict[bytes, bytes], token: Token, receive: Receive
    ) -> tuple[Ready | None, Receive]:
        """The answer if it is known, and the body for whoever answers if not."""
        path, method = scope["path"], scope["method"]
        if not token.may(Scope.READ):
            return None, receive
        if method == "GET" and path.startswith(DECISION):
            return self._decision(path[len(DECISION) :]), receive
        if method == "GET" and path.startswith(BUNDLE):
            return self._bundle(path[len(BUNDLE) :], headers), receive
        if method == "POST" and path == LOOKUP and headers.get(b"content-type") == b"application/json":
            return await self._lookup(headers, receive)
        return None, receive

    def _decision(self, digest: str) -> Ready | None:
        body = self._desk.warm.get(digest)
        if body is None:
            return None
        self._desk.meters.warm.inc()
        return _ready(DECISION, 200, [_JSON], body)

    def _bundle(self, digest: str, headers: dict[bytes, bytes]) -> Ready | None:
        """That it has not changed, which bytes under their own digest never do; if they were asked for lately."""
        tag = b'"%s"' % digest.encode("latin-1", "replace")
        if tag not in headers.get(b"if-none-match", b"") or not is_digest(digest) or digest not in self._held:
            return None
        lasting = [(b"etag", tag), (b"cache-control", FOREVER.encode()), (b"accept-ranges", b"bytes")]
        return _ready(BUNDLE, 304, [(b"content-type", KIND.encode()), *lasting], b"")

    async def _lookup(self, headers: dict[bytes, bytes], receive: Receive) -> tuple[Ready | None, Receive]:
        message: Any = await receive()
        again = _replayed(message, receive)
        if message["type"] != "http.request" or message.get("more_body"):
            return None, again
        try:
            asked = msgspec.json.decode(message["body"], type=Lookup)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None, again  # whoever knows how to say what is wrong
        found, missing = self._desk.warm.get_many(asked.digests)
        size = sum(map(len, found.values()))
        if missing or (size >= WORTH_PACKING and b"gzip" in headers.get(b"accept-encoding", b"")):
            return None, again
        self._desk.meters.warm.inc(len(found))
        return _ready(LOOKUP, 200, [_JSON], b'{"found":{%s}}' % b",".join(found.values())), again


def _ready(route: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Ready:
    sized = [*headers, (b"content-length", b"%d" % len(body))]
    return Ready(TEMPLATES[route], status, sized, body)


def _replayed(message: Any, receive: Receive) -> Receive:
    """A body whose first message was heard already, from its beginning."""
    waiting = [message]

    async def again() -> Any:
        return waiting.pop() if waiting else await receive()

    return again
