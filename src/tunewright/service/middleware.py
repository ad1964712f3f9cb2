"""Access middleware: checks the token, rate, origin and size of every request."""

from __future__ import annotations

import base64
import re
import secrets
import time
from math import ceil
from typing import Any

import msgspec
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Message, Receive, Send

from tunewright.dashboard.layout import POLICY
from tunewright.service.context import RequestContext
from tunewright.service.fastpath import FastPath
from tunewright.service.logs import RequestLog
from tunewright.service.request_bodies import BoundedBody
from tunewright.service.tokens import OPEN_TOKEN, Token

PUBLIC_PATHS = frozenset(("/v1/health", "/v1/ready"))
"""Paths that need no token: they only tell whether the service runs."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_LOCAL_HOST = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
_SAFE_METHODS = ("GET", "HEAD")
_BODY_NOT_READ = frozenset((408, 413, 415))
"""Statuses of requests whose body was not read completely, after which the connection must be closed."""

_CLOSE_CONNECTION = [(b"connection", b"close")]
_DATA_PATHS = ("/v1/", "/metrics", "/schema")

_DATA_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
"""Headers of data, so that no browser interprets it as a page."""

_PAGE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
]
"""Headers of pages, so that a browser runs only our script and no other site embeds them."""


class AccessMiddleware:
    """Passes on admitted requests, with the token in their state."""

    def __init__(self, app: ASGIApp, context: RequestContext, log: RequestLog, fast_path: FastPath) -> None:
        self._app, self._context, self._log, self._fast_path = app, context, log, fast_path
        is_encrypted = bool(context.config.certificate)
        self._security_headers = [(b"strict-transport-security", b"max-age=31536000")] if is_encrypted else []

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        headers = dict(scope["headers"])
        sent_id = headers.get(b"x-request-id", b"")
        request_id = sent_id if _REQUEST_ID.fullmatch(sent_id) else secrets.token_hex(8).encode()
        common = _DATA_HEADERS if scope["path"].startswith(_DATA_PATHS) else _PAGE_HEADERS
        extra_headers = [(b"x-request-id", request_id), *common, *self._security_headers]

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                must_close = status in _BODY_NOT_READ and scope.get("http_version", "1.1").startswith("1")
                closing = _CLOSE_CONNECTION if must_close else []
                message["headers"] = [*message["headers"], *extra_headers, *closing]
            await send(message)

        token: Token | None = None
        try:
            token, receive = await self._admit(scope, headers, receive)
            ready, receive = await self._fast_path(scope, headers, token, receive)
            if ready is not None:
                scope["path_template"] = ready.template
                await respond({"type": "http.response.start", "status": ready.status, "headers": ready.headers})
                await respond({"type": "http.response.body", "body": ready.body, "more_body": False})
                return
            scope["state"] = {"token": token, "request": request_id.decode(), "headers": headers}
            await self._app(scope, receive, respond)
        except HTTPException as error:
            await _refuse(error, request_id, respond)
        finally:
            seconds = time.perf_counter() - started
            self._context.metrics.observe(str(scope.get("path_template") or "refused"), status, seconds)
            self._log.request(scope, request_id, status, seconds, token)

    async def _admit(self, scope: Any, headers: dict[bytes, bytes], receive: Receive) -> tuple[Token, Receive]:
        """Returns the token and the bounded body of a request; raises HTTPException if it is refused."""
        context, method = self._context, scope["method"]
        if method == "OPTIONS":  # no other site may use the service, so preflight requests are refused
            raise HTTPException(status_code=405, detail="use GET, POST or PUT, as /schema/openapi.json describes")
        if method not in _SAFE_METHODS or context.config.open:
            self._check_site(headers)
        if scope["path"] in PUBLIC_PATHS:
            return ANONYMOUS, receive
        is_page = method in _SAFE_METHODS and not scope["path"].startswith(_DATA_PATHS)
        token = OPEN_TOKEN if context.config.open else await self._find_token(headers, is_page=is_page)
        if wait := context.token_index.seconds_to_wait(token):
            context.metrics.refused.labels("rate").inc()
            raise HTTPException(
                status_code=429,
                detail=f"Rate limit exceeded: this token allows {token.rate:g} requests per second; "
                f"retry after {ceil(wait)} s",
                headers={"retry-after": str(ceil(wait))},
            )
        if method in _SAFE_METHODS:
            return token, receive
        max_bytes = min(token.largest, context.config.largest)
        if headers.get(b"content-length", b"0").isdigit() and int(headers.get(b"content-length", b"0")) > max_bytes:
            context.metrics.refused.labels("size").inc()
            raise HTTPException(
                status_code=413, detail=f"the body has more than {max_bytes:,} bytes; send smaller batches"
            )
        encoding = headers.get(b"content-encoding", b"").lower()
        return token, BoundedBody(receive, encoding, max_bytes, context.config.patience)

    async def _find_token(self, headers: dict[bytes, bytes], *, is_page: bool) -> Token:
        """Returns the token of a request; for pages it may also be the password of basic authentication."""
        scheme, _, text = headers.get(b"authorization", b"").partition(b" ")
        if is_page and scheme.lower() == b"basic":
            text = _password(text)
        elif scheme.lower() != b"bearer":
            text = b""
        token = await self._context.find_token(text.strip().decode("ascii", "replace"))
        if not self._context.has_tokens:
            raise HTTPException(status_code=503, detail="the store is unavailable", headers={"retry-after": "1"})
        if token is None:
            self._context.metrics.refused.labels("token").inc()
            raise HTTPException(
                status_code=401,
                detail="the token is missing or unknown; send `Authorization: Bearer tw_...`; "
                "`tunewright service token add` creates one",
                headers={"www-authenticate": f'{"Basic" if is_page else "Bearer"} realm="tunewright"'},
            )
        return token

    def _check_site(self, headers: dict[bytes, bytes]) -> None:
        """Refuses requests that another web site made a browser send, with the rights of this machine."""
        host, origin = headers.get(b"host", b""), headers.get(b"origin")
        is_foreign = origin is not None and origin.partition(b"://")[2] != host
        if is_foreign or headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            self._context.metrics.refused.labels("site").inc()
            raise HTTPException(
                status_code=403, detail="the request comes from another web site; open the page directly"
            )
        # With DNS rebinding, a foreign name that resolves to this machine would count as the same site.
        if self._context.config.open and not _LOCAL_HOST.fullmatch(host):
            self._context.metrics.refused.labels("site").inc()
            raise HTTPException(status_code=403, detail="a service without tokens answers only to localhost")


ANONYMOUS = Token("", "nobody", (), "", 0.0)
"""The token of requests that need none."""


def _password(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True).partition(b":")[2]
    except ValueError:
        return b""


async def _refuse(error: HTTPException, request_id: bytes, send: Any) -> None:
    body = msgspec.json.encode({"error": error.detail, "request": request_id.decode()})
    headers = [(name.encode(), value.encode()) for name, value in (error.headers or {}).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": error.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
