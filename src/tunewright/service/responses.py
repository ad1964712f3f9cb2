"""Helpers of all handlers: required scopes, responses as bytes, JSON or lines, and error responses."""

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
from tunewright.service.context import RequestContext
from tunewright.service.tokens import Scope

JSON, NDJSON = "application/json", "application/x-ndjson"

MIN_COMPRESSED_BYTES = 16 << 10
"""Size in bytes from which a response is compressed; below it, compression takes longer than it saves."""

ServiceRequest = Request[Any, Any, Any]


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of an error response: the reason, and the id of the request."""

    error: str
    request: str = ""


ERROR_RESPONSES = {
    status: ResponseSpec(ErrorBody, description=description, generate_examples=False)
    for status, description in {
        400: "The request is invalid.",
        401: "The token is missing or unknown.",
        403: "The token lacks the scope, or the request comes from another web site.",
        404: "Not found.",
        408: "The body took too long to arrive.",
        409: "Another decision was already published for this key; read it, then publish over it.",
        413: "The body is too large.",
        415: "The content encoding of the body is unknown.",
        429: "Rate limit exceeded: wait for the seconds in `Retry-After`.",
        501: "The store of this service does not support the operation.",
        503: "The store is unavailable.",
    }.items()
}
"""The error responses that any route may return."""


def context_of(request: ServiceRequest) -> RequestContext:
    """Returns the context of the service that handles a request."""
    context: RequestContext = request.app.state.context
    return context


def requires(scope: Scope, body: type[msgspec.Struct] | None = None) -> dict[str, Any]:
    """Returns the keyword arguments of a route that requires a token with this scope and a body of this type."""
    security: list[dict[str, list[str]]] = [{"token": [str(scope)]}]
    return {"opt": {"scope": scope, "body": body}, "security": security, "responses": ERROR_RESPONSES}


async def check_request(request: ServiceRequest) -> None:
    """Refuses a request whose token lacks the scope or whose body is invalid; runs before every handler.

    The framework's guards are slower, and its own decoding accepts "1" for 1.
    """
    requirements = request.scope["route_handler"].opt
    scope: Scope | None = requirements.get("scope")
    if scope is not None and not request.scope["state"]["token"].allows(scope):
        context_of(request).metrics.refused.labels("scope").inc()
        raise HTTPException(status_code=403, detail=f"this token lacks the scope {scope!s}")
    if (body_type := requirements.get("body")) is not None:
        try:
            msgspec.json.decode(await request.body(), type=body_type)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise HTTPException(status_code=400, detail=str(error)) from error


def raw_response(body: bytes, status: int = 200, media_type: str = JSON, **headers: str) -> ASGIResponse:
    """Returns a response with this body; `cache_control` sets the header `cache-control`."""
    dashed = {name.replace("_", "-"): value for name, value in headers.items()}
    # The framework adds the charset to text types.
    media_type = media_type.removesuffix("; charset=utf-8")
    return ASGIResponse(body=body, status_code=status, media_type=media_type, headers=dashed)


def compressed_response(request: ServiceRequest, body: bytes) -> ASGIResponse:
    """Returns a JSON response, compressed if it is large and the client accepts gzip."""
    if len(body) < MIN_COMPRESSED_BYTES or "gzip" not in request_header(request, b"accept-encoding"):
        return raw_response(body)
    compressor = zlib.compressobj(1, wbits=31)
    compressed = compressor.compress(body) + compressor.flush()
    return raw_response(compressed, content_encoding="gzip", vary="accept-encoding")


def request_header(request: ServiceRequest, name: bytes) -> str:
    """Returns the value of a header, given by its lower-case name; empty if it is missing."""
    headers: dict[bytes, bytes] = request.scope["state"]["headers"]
    return headers.get(name, b"").decode("latin-1")


def json_response(value: Any, status: int = 200) -> ASGIResponse:
    """Returns a value as a JSON response."""
    return raw_response(msgspec.json.encode(value), status)


async def lines_response(request: ServiceRequest, make_lines: Callable[[], Iterator[bytes]]) -> Stream:
    """Returns records, one per line. The first are read before the response starts, so that store errors are errors."""
    chunks = context_of(request).stream_lines(make_lines)
    first = await anext(chunks)

    async def all_chunks() -> Any:
        yield first
        async for chunk in chunks:
            yield chunk

    return Stream(all_chunks, media_type=NDJSON)


def record_tag(body: bytes) -> str:
    """Returns the SHA-256 of a record, which identifies it."""
    return sha256(body).hexdigest()


def error_response(request: ServiceRequest, error: Exception) -> Response[ErrorBody]:
    """Returns the response to an error that a handler raised."""
    request_id = request.scope["state"].get("request", "")
    status, detail, headers = 500, "internal error; see the log of the service", dict[str, str]()
    if isinstance(error, HTTPException):
        status, detail, headers = error.status_code, _detail(error), dict(error.headers or {})
    elif isinstance(error, WireError):
        status, detail = 400, str(error)
    elif isinstance(error, RecursionError):  # only the decoding of a body recurses
        status, detail = 400, "the body is nested too deeply"
    elif isinstance(error, StoreError):
        context_of(request).metrics.failures.inc()
        status, detail, headers = 503, "the store is unavailable; try again in a moment", {"retry-after": "1"}
    if status >= 500:
        request.app.state.log.failed(request_id, error)
    return Response(ErrorBody(detail, request_id), status_code=status, headers=headers)


def _detail(error: HTTPException) -> str:
    """Returns the reason, with the invalid fields if the framework knows them."""
    extra = error.extra if isinstance(error.extra, list) else []
    fields = [f"{item.get('key', '')}: {item.get('message', '')}" for item in extra if isinstance(item, dict)]
    return "; ".join([error.detail, *fields])[:2000]
