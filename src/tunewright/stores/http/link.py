"""Link: requests to a service: with a time-out, again where that is harmless, packed where it is worth it."""

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
from tunewright.stores import process
from tunewright.stores.http.target import Target

WORTH_PACKING = 16 << 10
"""Bytes from which a body is packed."""

_AGAIN = (429, 502, 503, 504)
"""What a service or a proxy before it answers when it would answer otherwise in a moment."""

_LONGEST_PAUSE = 1.0
_END = b'{"lines":'


class _Wrong(msgspec.Struct):
    error: str = ""
    request: str = ""


class Link:
    """A service as seen from here. Threads share it; after a fork a child makes connections of its own."""

    def __init__(self, target: Target, sleep: Callable[[float], None] = time.sleep) -> None:
        try:
            import httpx  # noqa: PLC0415 - optional; said with the extra to install, whatever scheme named us
        except ImportError as error:
            raise missing("stores", "http", error) from error
        self._httpx, self._target, self._sleep = httpx, target, sleep
        self._clients: dict[int, Any] = {}

    @property
    def _client(self) -> Any:
        if (found := self._clients.get(process.number)) is None:
            target, httpx = self._target, self._httpx
            headers = {"user-agent": "tunewright"} | (
                {"authorization": f"Bearer {target.token}"} if target.token else {}
            )
            if not target.pack:
                headers["accept-encoding"] = "identity"
            try:
                found = httpx.Client(
                    base_url=target.base,
                    headers=headers,
                    timeout=httpx.Timeout(target.timeout, connect=min(1.0, target.timeout)),
                    verify=self._trust(),
                    trust_env=False,  # no proxy and no password that this process was not told of
                )
            except OSError as error:
                raise StoreError(f"the certificates in {target.ca} cannot be read: {error}") from error
            self._clients = {process.number: found}
            weakref.finalize(self, found.close)
        return found

    def _trust(self) -> Any:
        """The certificates to trust; reading them takes long, and nothing is encrypted where it says http://."""
        if not self._target.base.startswith("https:"):
            return False
        return ssl.create_default_context(cafile=self._target.ca) if self._target.ca else True

    def ask(self, method: str, path: str, body: bytes | None = None, *, again: bool = True) -> Any:
        """The answer to a request; if it may be sent `again`, also where it is not known what came of the first."""
        for left in range(self._target.tries - 1, -1, -1):
            try:
                answer = self._client.request(method, path, **self._packed(body))
            except self._httpx.HTTPError as error:
                # What never got there can always be sent again.
                unsent = isinstance(error, self._httpx.ConnectError | self._httpx.ConnectTimeout)
                if not left or not (again or unsent):
                    raise self._failed(method, path, str(error) or type(error).__name__) from error
            else:
                if answer.status_code not in _AGAIN or not left or not again:
                    return answer
            # Those who failed together must not come back together.
            self._sleep(random.uniform(0.0, min(_LONGEST_PAUSE, 0.05 * 4 ** (self._target.tries - left))))
        raise AssertionError("the last try returns or raises")

    def _packed(self, body: bytes | None) -> dict[str, Any]:
        if body is None:
            return {}
        headers = {"content-type": "application/json"}
        if len(body) >= WORTH_PACKING and self._target.pack:
            press = zlib.compressobj(1, wbits=31)
            body, headers["content-encoding"] = press.compress(body) + press.flush(), "gzip"
        return {"content": body, "headers": headers}

    def said(self, answer: Any, *fine: int) -> bytes:
        """What an answer says; a StoreError unless its status is 200, or one of those that are `fine`."""
        if answer.status_code != 200 and answer.status_code not in fine:
            raise self._failed(answer.request.method, answer.request.url.path, self._reason(answer))
        content: bytes = answer.content
        return content

    def lines(
        self, method: str, path: str, body: bytes | None = None, *, query: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """A long answer, line by line; a StoreError if it is cut."""
        count = 0
        with self._listening(method, path, body, query) as answer:
            rest = b""
            for part in answer.iter_bytes():
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    if line.startswith(_END):
                        if line != b'{"lines":%d}' % count:
                            raise self._failed(method, path, "lines are missing")
                        return
                    count += 1
                    yield line
        raise self._failed(method, path, "the answer was cut")

    @contextmanager
    def _listening(self, method: str, path: str, body: bytes | None, query: Mapping[str, str] | None) -> Iterator[Any]:
        try:
            with self._client.stream(method, path, params=query, **self._packed(body)) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise self._failed(method, path, self._reason(answer))
                yield answer
        except self._httpx.HTTPError as error:
            raise self._failed(method, path, str(error) or type(error).__name__) from error

    def _reason(self, answer: Any) -> str:
        try:
            told = msgspec.json.decode(answer.content, type=_Wrong)
        except msgspec.MsgspecError:
            told = _Wrong()
        advice = {401: "; set TUNEWRIGHT_TOKEN to a token of this service", 404: "; is this the address of a service?"}
        number = f" (request {told.request})" if told.request else ""
        return f"{answer.status_code} {told.error[:500]}{advice.get(answer.status_code, '')}{number}"

    def _failed(self, method: str, path: str, reason: str) -> StoreError:
        advice = "see that it runs and can be reached, or set another `store`"
        return StoreError(f"{method} {path} at {self._target.base} failed: {reason}; {advice}")
