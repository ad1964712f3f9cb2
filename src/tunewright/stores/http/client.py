"""HTTP client of a service: time-outs, retries where they are harmless, compression where it pays off."""

from __future__ import annotations

import random
import ssl
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from tunewright.errors import StoreError
from tunewright.ports.plugins import missing
from tunewright.stores import process_id
from tunewright.stores.http.location import ServiceLocation

MIN_COMPRESSED_BYTES = 16 << 10
"""Bytes from which a body is compressed."""

_RETRY_STATUS = (429, 502, 503, 504)
"""Temporary failures of a service, or of a proxy in front of it."""

_MAX_PAUSE = 1.0
_LAST_LINE = b'{"lines":'


class _ErrorBody(msgspec.Struct):
    error: str = ""
    request: str = ""


class HttpClient:
    """Requests to one service. Threads share it; a forked child opens its own connections."""

    def __init__(self, location: ServiceLocation, sleep: Callable[[float], None] = time.sleep) -> None:
        try:
            import httpx  # noqa: PLC0415 - optional; the error names the extra to install
        except ImportError as error:
            raise missing("stores", "http", error) from error
        self._httpx, self._location, self._sleep = httpx, location, sleep
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
                    timeout=httpx.Timeout(location.timeout, connect=min(1.0, location.timeout)),
                    verify=self._certificates(),
                    trust_env=False,  # no proxies or passwords from the environment
                )
            except OSError as error:
                raise StoreError(f"the certificates in {location.ca} cannot be read: {error}") from error
            self._clients = {process_id.current: client}
            weakref.finalize(self, client.close)
        return client

    def _certificates(self) -> Any:
        """Returns the certificates to trust; loading them is slow, and http:// needs none."""
        if not self._location.base.startswith("https:"):
            return False
        return ssl.create_default_context(cafile=self._location.ca) if self._location.ca else True

    def request(self, method: str, path: str, body: bytes | None = None, *, idempotent: bool = True) -> Any:
        """Sends a request and returns the response; only `idempotent` requests are repeated after they were sent."""
        for retries_left in range(self._location.tries - 1, -1, -1):
            try:
                response = self._client.request(method, path, **self._content(body))
            except self._httpx.HTTPError as error:
                # A request that was never sent can always be repeated.
                unsent = isinstance(error, self._httpx.ConnectError | self._httpx.ConnectTimeout)
                if not retries_left or not (idempotent or unsent):
                    raise self._failed(method, path, str(error) or type(error).__name__) from error
            else:
                if response.status_code not in _RETRY_STATUS or not retries_left or not idempotent:
                    return response
            # Jitter: clients that failed together must not come back together.
            self._sleep(random.uniform(0.0, min(_MAX_PAUSE, 0.05 * 4 ** (self._location.tries - retries_left))))
        raise AssertionError("the last try returns or raises")

    def _content(self, body: bytes | None) -> dict[str, Any]:
        if body is None:
            return {}
        headers = {"content-type": "application/json"}
        if len(body) >= MIN_COMPRESSED_BYTES and self._location.compress:
            compressor = zlib.compressobj(1, wbits=31)
            body, headers["content-encoding"] = compressor.compress(body) + compressor.flush(), "gzip"
        return {"content": body, "headers": headers}

    def content(self, response: Any, *accepted: int) -> bytes:
        """Returns the content of a response; raises StoreError unless its status is 200 or one of `accepted`."""
        if response.status_code != 200 and response.status_code not in accepted:
            raise self._failed(response.request.method, response.request.url.path, self._reason(response))
        content: bytes = response.content
        return content

    def lines(
        self, method: str, path: str, body: bytes | None = None, *, query: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """Yields a long response line by line; raises StoreError if it is truncated."""
        count = 0
        with self._stream(method, path, body, query) as response:
            rest = b""
            for chunk in response.iter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.startswith(_LAST_LINE):
                        if line != b'{"lines":%d}' % count:
                            raise self._failed(method, path, "lines are missing")
                        return
                    count += 1
                    yield line
        raise self._failed(method, path, "the response was truncated")

    @contextmanager
    def _stream(self, method: str, path: str, body: bytes | None, query: Mapping[str, str] | None) -> Iterator[Any]:
        try:
            with self._client.stream(method, path, params=query, **self._content(body)) as response:
                if response.status_code != 200:
                    response.read()
                    raise self._failed(method, path, self._reason(response))
                yield response
        except self._httpx.HTTPError as error:
            raise self._failed(method, path, str(error) or type(error).__name__) from error

    def _reason(self, response: Any) -> str:
        try:
            body = msgspec.json.decode(response.content, type=_ErrorBody)
        except msgspec.MsgspecError:
            body = _ErrorBody()
        status = response.status_code
        advice = {401: "; set TUNEWRIGHT_TOKEN to a token of this service", 404: "; is this the address of a service?"}
        number = f" (request {body.request})" if body.request else ""
        return f"{status} {body.error[:500]}{advice.get(status, '')}{number}"

    def _failed(self, method: str, path: str, reason: str) -> StoreError:
        advice = "check that it runs and is reachable, or set another `store`"
        return StoreError(f"{method} {path} at {self._location.base} failed: {reason}; {advice}")
