"""HTTP client of a service: time-outs, retries where they are harmless, compression where it pays off."""

from __future__ import annotations

import random
import ssl
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from tunewright.errors import StoreError, WriteRefused
from tunewright.ports.plugins import missing
from tunewright.stores import process_id
from tunewright.stores.deadline import Deadline
from tunewright.stores.http.location import ServiceLocation

MIN_COMPRESSED_BYTES = 16 << 10
"""Bytes from which a body is compressed."""

_RETRY_STATUS = (429, 502, 503, 504)
"""Temporary failures of a service, or of a proxy in front of it."""

_REFUSED_STATUS = (400, 403, 413, 415, 422)
"""Answers of a service that works and does not accept what it was sent."""

_MAX_PAUSE = 1.0
_LAST_LINE = b'{"lines":'


MAX_RESPONSE_BYTES = 256 << 20
MAX_LIST_BYTES = 1 << 30
MAX_LINE_BYTES = 16 << 20
"""Limits of what a service may send: in one response, in a list, and in a line of a list."""

BYTES_PER_TIMEOUT = 64 << 10
"""A list may take as long as it likes if this much of it arrives within each time-out."""


class Response(NamedTuple):
    """A response that was read to its end."""

    status_code: int
    content: bytes
    method: str
    path: str


class _ErrorBody(msgspec.Struct):
    error: str = ""
    request: str = ""


class HttpClient:
    """Requests to one service. Threads share it; a forked child opens its own connections."""

    def __init__(self, location: ServiceLocation, sleep: Callable[[float], None] = time.sleep) -> None:
        try:
            import httpx  # noqa: PLC0415 - optional; the error names the extra to install

            from tunewright.stores.http.transport import DeadlineTransport  # noqa: PLC0415 - the same
        except ImportError as error:
            raise missing("stores", "http", error) from error
        self._httpx, self._location, self._sleep, self._transport = httpx, location, sleep, DeadlineTransport
        self._clients: dict[int, Any] = {}

    @property
    def _client(self) -> Any:
        if (client := self._clients.get(process_id.current)) is None:
            location, httpx = self._location, self._httpx
            headers = {"user-agent": "tunewright"}
            if location.token:
                headers["authorization"] = f"Bearer {location.token}"
            if not location.compress:
                headers["accept-encoding"] = "identity"
            try:
                client = httpx.Client(
                    base_url=location.base,
                    headers=headers,
                    transport=self._transport(self._certificates()),
                    follow_redirects=False,  # the token is for this service alone
                    trust_env=False,  # no proxies or passwords from the environment
                )
            except OSError as error:
                raise StoreError(f"the certificates in {location.ca} cannot be read: {error}") from error
            self._clients = {process_id.current: client}
            weakref.finalize(self, client.close)
        return client

    def _certificates(self) -> ssl.SSLContext | None:
        """Returns the certificates to trust; loading them is slow, and http:// needs none."""
        if not self._location.base.startswith("https:"):
            return None
        if self._location.ca:
            return ssl.create_default_context(cafile=self._location.ca)
        return self._httpx.create_ssl_context()

    def request(self, method: str, path: str, body: bytes | None = None, *, idempotent: bool = True) -> Response:
        """Sends a request and returns the response; only `idempotent` requests are repeated after they were sent.

        There is one deadline for all tries together.
        """
        with Deadline(self._location.timeout) as deadline:
            for retries_left in range(self._location.tries - 1, -1, -1):
                # Jitter: clients that failed together must not come back together.
                pause = random.uniform(0.0, min(_MAX_PAUSE, 0.05 * 4 ** (self._location.tries - retries_left)))
                is_last = not retries_left or monotonic() + pause >= deadline.at
                try:
                    response = self._send(method, path, body)
                except self._httpx.HTTPError as error:
                    # A request that was never sent can always be repeated.
                    unsent = isinstance(error, self._httpx.ConnectError | self._httpx.ConnectTimeout)
                    if is_last or not (idempotent or unsent):
                        raise self._failed(method, path, str(error) or type(error).__name__) from error
                else:
                    if response.status_code not in _RETRY_STATUS or is_last or not idempotent:
                        return response
                self._sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _send(self, method: str, path: str, body: bytes | None) -> Response:
        """Sends a request once; raises StoreError if the response is too large."""
        with self._client.stream(method, path, **self._content(body)) as response:
            return Response(response.status_code, self._read(response, method, path), method, path)

    def _read(self, response: Any, method: str, path: str) -> bytes:
        parts, size = [], 0
        for chunk in response.iter_bytes():
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                raise self._failed(method, path, f"the response has more than {MAX_RESPONSE_BYTES:,} bytes")
            parts.append(chunk)
        return b"".join(parts)

    def _content(self, body: bytes | None) -> dict[str, Any]:
        if body is None:
            return {}
        headers = {"content-type": "application/json"}
        if len(body) >= MIN_COMPRESSED_BYTES and self._location.compress:
            compressor = zlib.compressobj(1, wbits=31)
            body, headers["content-encoding"] = compressor.compress(body) + compressor.flush(), "gzip"
        return {"content": body, "headers": headers}

    def content(self, response: Response, *accepted: int, is_write: bool = False) -> bytes:
        """Returns the content of a response; raises StoreError unless its status is 200 or one of `accepted`.

        A write that the service would never accept raises WriteRefused. A missing or expired token does not count:
        with another one the write may be accepted.
        """
        status = response.status_code
        if status != 200 and status not in accepted:
            error = self._failed(response.method, response.path, self._reason(status, response.content))
            raise WriteRefused(str(error)) if is_write and status in _REFUSED_STATUS else error
        return response.content

    def lines(
        self, method: str, path: str, body: bytes | None = None, *, query: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """Yields a long response line by line; raises StoreError if it is truncated."""
        count, rest = 0, b""
        with self._stream(method, path, body, query) as chunks:
            for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    raise self._failed(method, path, f"a line has more than {MAX_LINE_BYTES:,} bytes")
                for line in lines:
                    if line.startswith(_LAST_LINE):
                        if line != b'{"lines":%d}' % count:
                            raise self._failed(method, path, "lines are missing")
                        return
                    count += 1
                    yield line
        raise self._failed(method, path, "the response was truncated")

    @contextmanager
    def _stream(
        self, method: str, path: str, body: bytes | None, query: Mapping[str, str] | None
    ) -> Iterator[Iterator[bytes]]:
        """Yields the content of a long response as it arrives."""
        deadline = Deadline(self._location.timeout)
        try:
            with ExitStack() as stack:
                with deadline:
                    response = stack.enter_context(
                        self._client.stream(method, path, params=query, **self._content(body))
                    )
                    if response.status_code != 200:
                        content = self._read(response, method, path)
                        raise self._failed(method, path, self._reason(response.status_code, content))
                yield self._chunks(response.iter_bytes(), deadline, partial(self._failed, method, path))
        except self._httpx.HTTPError as error:
            raise self._failed(method, path, str(error) or type(error).__name__) from error

    def _chunks(
        self, chunks: Iterator[bytes], deadline: Deadline, failed: Callable[[str], StoreError]
    ) -> Iterator[bytes]:
        """Yields chunks; the deadline starts anew with each `BYTES_PER_TIMEOUT`, and does not run in the caller."""
        total = progress = 0
        while True:
            with deadline:
                chunk = next(chunks, None)
            if chunk is None:
                return
            total, progress = total + len(chunk), progress + len(chunk)
            if total > MAX_LIST_BYTES:
                raise failed(f"the response has more than {MAX_LIST_BYTES:,} bytes")
            if progress >= BYTES_PER_TIMEOUT:
                progress = 0
                deadline.renew()
            waited = monotonic()
            yield chunk
            deadline.at += monotonic() - waited

    def _reason(self, status: int, content: bytes) -> str:
        try:
            body = msgspec.json.decode(content, type=_ErrorBody)
        except (msgspec.MsgspecError, RecursionError):
            body = _ErrorBody()
        advice = {401: "; set TUNEWRIGHT_TOKEN to a token of this service", 404: "; is this the address of a service?"}
        number = f" (request {body.request[:100]})" if body.request else ""
        return f"{status} {body.error[:500]}{advice.get(status, '')}{number}"

    def _failed(self, method: str, path: str, reason: str) -> StoreError:
        advice = "check that it runs and is reachable, or set another `store`"
        return StoreError(f"{method} {path} at {self._location.base} failed: {reason}; {advice}")
