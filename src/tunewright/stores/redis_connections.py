"""Connections to a Redis that end at the deadline of their call."""

from __future__ import annotations

import socket
from typing import Any

from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection

from tunewright.stores import deadline


class _Tcp(Connection):
    """Resolves and connects until the deadline."""

    def _connect(self) -> Any:
        connection = deadline.connect(self.host, self.port, self.socket_connect_timeout)
        if self.socket_keepalive:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.settimeout(deadline.remaining(self.socket_timeout))
        return connection


class TcpConnection(_Tcp):
    """`redis://`."""

    def _connect(self) -> Any:
        return deadline.BoundedSocket(super()._connect())


class TlsConnection(SSLConnection, _Tcp):
    """`rediss://`; the time-out of a socket is one for the whole handshake."""

    def _connect(self) -> Any:
        return deadline.BoundedSocket(super()._connect())  # type: ignore[no-untyped-call]


class UnixConnection(UnixDomainSocketConnection):
    """`unix://`."""

    def _connect(self) -> Any:
        return deadline.BoundedSocket(super()._connect())  # type: ignore[no-untyped-call]


CONNECTIONS: dict[str, type[Connection] | type[UnixDomainSocketConnection]] = {
    "redis": TcpConnection,
    "rediss": TlsConnection,
    "unix": UnixConnection,
}
"""The class of connections by the scheme of a location."""
