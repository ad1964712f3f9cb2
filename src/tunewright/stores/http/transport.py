"""How requests reach a service: every step ends at the deadline of the call."""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from tunewright.stores import deadline

CONNECT_SECONDS = 1.0
"""How long one address of a host may take to connect: a host that does not answer at all is not worth more."""


class _Stream(httpcore.NetworkStream):
    """A connection, plain or encrypted."""

    def __init__(self, connection: Any) -> None:
        self._socket = deadline.BoundedSocket(connection)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Reads what has arrived."""
        with _translated(httpcore.ReadTimeout, httpcore.ReadError):
            received: bytes = self._socket.recv(max_bytes)
            return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Writes everything."""
        if buffer:
            with _translated(httpcore.WriteTimeout, httpcore.WriteError):
                self._socket.sendall(buffer)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Encrypts the connection; the time-out of a socket is one for the whole handshake."""
        with _translated(httpcore.ConnectTimeout, httpcore.ConnectError):
            try:
                self._socket.settimeout(deadline.remaining())
                plain = self._socket.__dict__["_socket"]
                return _Stream(ssl_context.wrap_socket(plain, server_hostname=server_hostname))
            except OSError:
                self.close()
                raise

    def get_extra_info(self, info: str) -> Any:
        """Returns what the connection pool asks for."""
        if info == "is_readable":
            poll = select.poll()
            poll.register(self._socket.fileno(), select.POLLIN)
            return bool(poll.poll(0))
        plain = self._socket.__dict__["_socket"]
        if info == "ssl_object":
            return plain if isinstance(plain, ssl.SSLSocket) else None
        return plain if info == "socket" else None


class _Backend(httpcore.NetworkBackend):
    """Opens connections."""

    def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.NetworkStream:
        """Resolves the name of a host and connects to it."""
        with _translated(httpcore.ConnectTimeout, httpcore.ConnectError):
            return _Stream(deadline.connect(host, port, CONNECT_SECONDS))


class DeadlineTransport(httpx.BaseTransport):
    """Sends requests of one client."""

    def __init__(self, certificates: ssl.SSLContext | None) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=certificates, max_connections=100, max_keepalive_connections=20, network_backend=_Backend()
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, and returns the beginning of the response."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        sent = httpcore.Request(request.method, url, headers=request.headers.raw, content=request.stream)
        with _as_httpx():
            received = self._pool.handle_request(sent)
        return httpx.Response(received.status, headers=received.headers, stream=_Body(received.stream))

    def close(self) -> None:
        """Closes all connections."""
        self._pool.close()


class _Body(httpx.SyncByteStream):
    """The content of a response, as it arrives."""

    def __init__(self, stream: Any) -> None:
        self._stream: Iterable[bytes] = stream
        self._close: Callable[[], None] = getattr(stream, "close", lambda: None)

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._stream

    def close(self) -> None:
        """Gives the connection back, or closes it if something is unread."""
        self._close()


@contextmanager
def _translated(late: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """Raises the errors that the connection pool expects."""
    try:
        yield
    except TimeoutError as error:
        raise late(str(error) or "no answer in time") from error
    except OSError as error:
        raise failed(str(error)) from error


@contextmanager
def _as_httpx() -> Iterator[None]:
    """Raises the errors of the connection pool as those of the client, which have the same names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        kind = getattr(httpx, type(error).__name__, httpx.TransportError)
        raise kind(str(error)) from error
