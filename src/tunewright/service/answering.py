"""Answering: what handlers have in common: who may, what an answer in bytes or lines is, what errors become."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from litestar.response import Response, Stream
from litestar.response.base import ASGIResponse

from tunewright.errors import StoreError, WireError
from tunewright.service.desk import Desk
from tunewright.service.tokens import Scope

JSON, NDJSON = "application/json", "application/x-ndjson"

WORTH_PACKING = 16 << 10
"""Bytes from which an answer is packed for whoever takes it so; below, it takes longer than it saves."""

Asking = Request[Any, Any, Any]


class Wrong(msgspec.Struct, frozen=True):
    """What an answer says that is none: why, and in which request."""

    error: str
    request: str = ""


REFUSALS = {
    status: ResponseSpec(Wrong, description=said, generate_examples=False)
    for status, said in {
        400: "It cannot be understood, or may not be kept.",
        401: "No token, or none that is known.",
        403: "The token lacks the scope, or another web site asks.",
        404: "There is no such thing.",
        408: "The body took too long.",
        409: "Another stands.",
        413: "The body is too large.",
        415: "The body is packed in a way that is not known.",
        429: "That is more often than the token may.",
        501: "The store behind this service does not offer it.",
        503: "The store is away.",
    }.items()
}
"""How any request may end."""


def desk_of(request: Asking) -> Desk:
    """What handlers work at."""
    desk: Desk = request.app.state.desk
    return desk


def needs(scope: Scope, body: type[msgspec.Struct] | None = None) -> dict[str, Any]:
    """What a route is declared with, so that only tokens of this scope may use it, and only with such a body."""
    security: list[dict[str, list[str]]] = [{"token": [str(scope)]}]
    return {"opt": {"scope": scope, "body": body}, "security": security, "responses": REFUSALS}


async def check(request: Asking) -> None:
    """Refuse what the token of a request does not allow, and what is not quite what it should be.

    Before every handler: the framework's guards copy theirs each time, and its own reading takes "1" for 1.
    """
    declared = request.scope["route_handler"].opt
    scope: Scope | None = declared.get("scope")
    if scope is not None and not request.scope["state"]["token"].may(scope):
        desk_of(request).meters.refused.labels("scope").inc()
        raise HTTPException(status_code=403, detail=f"this token lacks the scope {scope!s}")
    if (wanted := declared.get("body")) is not None:
        try:
            msgspec.json.decode(await request.body(), type=wanted)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise HTTPException(status_code=400, detail=str(error)) from error


def bare(body: bytes, status: int = 200, kind: str = JSON, **headers: str) -> ASGIResponse:
    """An answer that is ready to be sent."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    # To texts the framework adds in which characters they are.
    kind = kind.removesuffix("; charset=utf-8")
    return ASGIResponse(body=body, status_code=status, media_type=kind, headers=named)


def packed(request: Asking, body: bytes) -> ASGIResponse:
    """The same, packed if it is worth it and whoever asks can unpack it."""
    if len(body) < WORTH_PACKING or "gzip" not in sent(request, b"accept-encoding"):
        return bare(body)
    press = zlib.compressobj(1, wbits=31)
    return bare(press.compress(body) + press.flush(), content_encoding="gzip", vary="accept-encoding")


def sent(request: Asking, name: bytes) -> str:
    """A header of a request, in small letters, as the gate has read it; empty if there is none."""
    headers: dict[bytes, bytes] = request.scope["state"]["headers"]
    return headers.get(name, b"").decode("latin-1")


def plain(value: Any, status: int = 200) -> ASGIResponse:
    """Any plain value as JSON."""
    return bare(msgspec.json.encode(value), status)


async def listed(request: Asking, make: Callable[[], Iterator[bytes]]) -> Stream:
    """Many records, a line each. The first are read before anything is said, so that a dead store is an error."""
    lines = desk_of(request).lines(make)
    first = await anext(lines)

    async def all_of_them() -> Any:
        yield first
        async for part in lines:
            yield part

    return Stream(all_of_them, media_type=NDJSON)


def tag(body: bytes) -> str:
    """What a record is known by: its SHA-256."""
    return sha256(body).hexdigest()


def wrong(request: Asking, error: Exception) -> Response[Wrong]:
    """What an error becomes that a handler raised."""
    number = request.scope["state"].get("request", "")
    status, detail, headers = 500, "something broke here; the log says what", dict[str, str]()
    if isinstance(error, HTTPException):
        status, detail, headers = error.status_code, _told(error), dict(error.headers or {})
    elif isinstance(error, WireError):
        status, detail = 400, str(error)
    elif isinstance(error, RecursionError):  # nothing of ours goes deep but what was sent
        status, detail = 400, "the body is nested too deeply"
    elif isinstance(error, StoreError):
        desk_of(request).meters.failures.inc()
        status, detail, headers = 503, "the store is away; try again in a moment", {"retry-after": "1"}
    if status >= 500:
        request.app.state.log.failed(number, error)
    return Response(Wrong(detail, number), status_code=status, headers=headers)


def _told(error: HTTPException) -> str:
    """The reason, with the fields that are wrong where the framework knows them."""
    extra = error.extra if isinstance(error.extra, list) else []
    fields = [f"{one.get('key', '')}: {one.get('message', '')}" for one in extra if isinstance(one, dict)]
    return "; ".join([error.detail, *fields])[:2000]
