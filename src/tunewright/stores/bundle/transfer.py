"""Transfers over HTTP with a limit of bytes and one deadline for everything: a server may be slow, endless or hostile.

By the standard library: a few requests by each process need no pool of connections.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Timer
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

from tunewright.errors import BundleError
from tunewright.stores.loopback import is_loopback

MAX_BYTES = 1 << 30
"""Largest bundle that is fetched, unless more is allowed."""

SECONDS = 300.0
"""Time for a whole transfer, from the first look-up of a name to the last byte."""

_MAX_REDIRECTS = 5
_PART = 1 << 18
_REDIRECTS = (301, 302, 303, 307, 308)


def origin(url: str) -> tuple[str, str, int]:
    """Returns scheme, host and port of an address; raises BundleError if it is not one, or not encrypted.

    Plain http is for this machine only: elsewhere anybody on the way could read credentials.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:
        raise BundleError(f"{url[:80]!r} is not an address: {error}; write https://HOST/PATH") from error
    if scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable() or " " in url:
        raise BundleError(f"{url[:80]!r} is not an address; write https://HOST/PATH")
    if scheme == "http" and not is_loopback(host):
        raise BundleError(f"{host} would be asked without encryption; use https://")
    return scheme, host, port or (443 if scheme == "https" else 80)


class HttpTransfer:
    """Requests that share one deadline. `received` counts the bytes of bodies."""

    def __init__(self, seconds: float = SECONDS, ca: str | None = None) -> None:
        self._seconds, self._deadline, self._ca = seconds, time.monotonic() + seconds, ca
        self.received = 0

    @property
    def left(self) -> float:
        """Seconds until the deadline; raises BundleError when it has passed."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._late()
        return left

    def _late(self) -> BundleError:
        return BundleError(
            f"the transfer took more than {self._seconds:g} s; try again, or allow more with `--seconds`"
        )

    @contextmanager
    def request(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | IO[bytes] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Sends one request and yields the response, whatever its status; redirects are not followed."""
        scheme, host, port = origin(url)
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            line: Any = socket.create_connection((host, port), timeout=self.left)
        except OSError as error:
            raise BundleError(f"{host}:{port} cannot be reached: {error}; check the address") from error
        # A server that sends a byte now and then never lets a read time out, so the line is cut at the deadline.
        cut = Timer(self.left, _cut, [line])
        cut.daemon = True
        cut.start()
        connection = http.client.HTTPConnection(host, port)
        try:
            try:
                connection.sock = self._encrypt(line, host) if scheme == "https" else line
                sent = {"accept-encoding": "identity", "user-agent": "tunewright", **(headers or {})}
                if hasattr(body, "read"):
                    sent["content-length"] = str(_remaining(body))
                connection.request(method, target, body=body, headers=sent)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                _ = self.left  # says so if the deadline has passed
                reason = str(error) or type(error).__name__
                raise BundleError(f"{host}:{port} did not answer as it should: {reason}; try again") from error
            yield response
        finally:
            cut.cancel()
            connection.close()
            line.close()

    def _encrypt(self, line: socket.socket, host: str) -> ssl.SSLSocket:
        try:
            context = ssl.create_default_context(cafile=self._ca)
        except OSError as error:
            raise BundleError(f"the certificates in {self._ca} cannot be read: {error}; give another file") from error
        return context.wrap_socket(line, server_hostname=host)

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
        """Follows redirects and yields the last response. Credentials never follow to another host."""
        first, sent = origin(url), dict(headers or {})
        for _ in range(_MAX_REDIRECTS + 1):
            with self.request("GET", url, sent) as response:
                if response.status not in _REDIRECTS:
                    yield response
                    return
                url = urljoin(url, response.getheader("location") or "")
            target = origin(url)
            if first[0] == "https" and target[0] == "http":
                raise BundleError(f"{first[1]} redirects to an address without encryption; do not use it")
            if target != first:
                sent = {name: value for name, value in sent.items() if name.lower() != "authorization"}
        raise BundleError(f"{first[1]} redirects in a circle; check the address")

    def parts(self, response: http.client.HTTPResponse, limit: int) -> Iterator[bytes]:
        """Yields the body of a response in parts; raises BundleError if it is longer than `limit` or truncated."""
        encoding = response.getheader("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise BundleError(f"the server sends {encoding[:20]!r} where plain bytes were asked for; do not use it")
        declared = response.length
        if declared is not None and declared > limit:
            raise BundleError(f"the server offers {declared:,} bytes; at most {limit:,} are read")
        total = 0
        try:
            while part := response.read(min(_PART, limit + 1 - total)):
                total += len(part)
                self.received += len(part)
                if total > limit:
                    raise BundleError(f"the server sends more than {limit:,} bytes; no more is read")
                yield part
        except (OSError, http.client.HTTPException) as error:
            _ = self.left
            raise BundleError(f"the transfer broke off: {str(error) or type(error).__name__}; try again") from error
        _ = self.left
        if declared is not None and total != declared:
            raise BundleError(f"the transfer broke off after {total:,} of {declared:,} bytes; try again")

    def read(self, response: http.client.HTTPResponse, limit: int) -> bytes:
        """Returns the body of a response of at most `limit` bytes."""
        return b"".join(self.parts(response, limit))


def _cut(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


def _remaining(body: Any) -> int:
    at = body.tell()
    size = body.seek(0, 2) - at
    body.seek(at)
    return int(size)


def download(url: str, limit: int = MAX_BYTES, transfer: HttpTransfer | None = None) -> bytes:
    """Returns the bytes at an address, which nobody has verified yet."""
    using = transfer or HttpTransfer()
    with using.get(url) as response:
        if response.status != 200:
            raise BundleError(f"{urlsplit(url).hostname} answers {response.status}; check the address")
        return using.read(response, limit)
