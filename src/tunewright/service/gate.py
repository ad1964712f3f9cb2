"""Gate: what every request passes before it is looked at: who sends it, how often, from which site, how large."""

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

from tunewright.report.pages.frame import POLICY
from tunewright.service.bodies import Intake
from tunewright.service.desk import Desk
from tunewright.service.express import Express
from tunewright.service.logs import Log
from tunewright.service.tokens import OPEN, Token

FREE = frozenset(("/v1/health", "/v1/ready"))
"""What needs no token: it says nothing but whether we are there."""

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
_SAFE = ("GET", "HEAD")
_UNREAD = frozenset((408, 413, 415))
"""How requests end whose body is not read to its end: who sent it must not send another one after it."""

_CLOSE = [(b"connection", b"close")]
_DATA_PATHS = ("/v1/", "/metrics", "/schema")

_DATA = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
"""What data is sent with, so that no browser takes it for a page."""

_PAGE = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
]
"""What pages are sent with, so that a browser runs our script alone, and nobody frames it."""


class Gate:
    """The application behind it sees only requests that it may answer; their state says who asks."""

    def __init__(self, app: ASGIApp, desk: Desk, log: Log, express: Express) -> None:
        self._app, self._desk, self._log, self._express = app, desk, log, express
        self._secure = [(b"strict-transport-security", b"max-age=31536000")] if desk.serving.certificate else []

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        number = given if _ID.fullmatch(given) else secrets.token_hex(8).encode()
        is_data = scope["path"].startswith(_DATA_PATHS)
        mine = [(b"x-request-id", number), *(_DATA if is_data else _PAGE), *self._secure]

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                closing = _CLOSE if status in _UNREAD and scope.get("http_version", "1.1").startswith("1") else []
                message["headers"] = [*message["headers"], *mine, *closing]
            await send(message)

        token: Token | None = None
        try:
            token, receive = await self._admitted(scope, headers, receive)
            ready, receive = await self._express(scope, headers, token, receive)
            if ready is not None:
                scope["path_template"] = ready.template
                await answer({"type": "http.response.start", "status": ready.status, "headers": ready.headers})
                await answer({"type": "http.response.body", "body": ready.body, "more_body": False})
                return
            scope["state"] = {"token": token, "request": number.decode(), "headers": headers}
            await self._app(scope, receive, answer)
        except HTTPException as error:
            await _refuse(error, number, answer)
        finally:
            seconds = time.perf_counter() - began
            self._desk.meters.observe(str(scope.get("path_template") or "refused"), status, seconds)
            self._log.request(scope, number, status, seconds, token)

    async def _admitted(self, scope: Any, headers: dict[bytes, bytes], receive: Receive) -> tuple[Token, Receive]:
        """The token of a request, and its body, bounded; an HTTPException if it may not go on."""
        desk, method = self._desk, scope["method"]
        if method == "OPTIONS":  # no other site is answered, so that none need ask what it may
            raise HTTPException(status_code=405, detail="ask by GET, POST or PUT, as /schema/openapi.json says")
        if method not in _SAFE or desk.serving.open:
            self._check_site(headers)
        if scope["path"] in FREE:
            return NOBODY, receive
        is_page = method in _SAFE and not scope["path"].startswith(_DATA_PATHS)
        token = OPEN if desk.serving.open else await self._token(headers, is_page=is_page)
        if wait := desk.ring.wait(token):
            desk.meters.refused.labels("rate").inc()
            raise HTTPException(
                status_code=429,
                detail="that is more often than this token may",
                headers={"retry-after": str(ceil(wait))},
            )
        if method in _SAFE:
            return token, receive
        most = min(token.largest, desk.serving.largest)
        if headers.get(b"content-length", b"0").isdigit() and int(headers.get(b"content-length", b"0")) > most:
            desk.meters.refused.labels("size").inc()
            raise HTTPException(status_code=413, detail=f"the body has over {most:,} bytes; send less at once")
        return token, Intake(receive, headers.get(b"content-encoding", b"").lower(), most, desk.serving.patience)

    async def _token(self, headers: dict[bytes, bytes], *, is_page: bool) -> Token:
        """The token that a request brings; a browser, which can only be asked for a password, may bring it as one."""
        kind, _, text = headers.get(b"authorization", b"").partition(b" ")
        if is_page and kind.lower() == b"basic":
            text = _password(text)
        elif kind.lower() != b"bearer":
            text = b""
        token = await self._desk.find_token(text.strip().decode("ascii", "replace"))
        if not self._desk.knows_tokens:
            raise HTTPException(status_code=503, detail="the store is away", headers={"retry-after": "1"})
        if token is None:
            self._desk.meters.refused.labels("token").inc()
            raise HTTPException(
                status_code=401,
                detail="send a token: Authorization: Bearer tw_...; `tunewright service token add` makes one",
                headers={"www-authenticate": f'{"Basic" if is_page else "Bearer"} realm="tunewright"'},
            )
        return token

    def _check_site(self, headers: dict[bytes, bytes]) -> None:
        """Refuse what another web site made a browser send: it would come with this machine's rights."""
        host, origin = headers.get(b"host", b""), headers.get(b"origin")
        foreign = origin is not None and origin.partition(b"://")[2] != host
        if foreign or headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            self._desk.meters.refused.labels("site").inc()
            raise HTTPException(status_code=403, detail="another web site asks for this; open it yourself")
        # A name that was made to point here would pass for the same site.
        if self._desk.serving.open and not _LOCAL.fullmatch(host):
            self._desk.meters.refused.labels("site").inc()
            raise HTTPException(status_code=403, detail="an open service answers to localhost alone")


NOBODY = Token("", "nobody", (), "", 0.0)
"""Who asks for what needs no token."""


def _password(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True).partition(b":")[2]
    except ValueError:
        return b""


async def _refuse(error: HTTPException, number: bytes, send: Any) -> None:
    body = msgspec.json.encode({"error": error.detail, "request": number.decode()})
    headers = [(name.encode(), value.encode()) for name, value in (error.headers or {}).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": error.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
