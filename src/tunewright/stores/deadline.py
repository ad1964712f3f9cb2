"""One deadline for a whole call to a server: resolving its name, connecting, sending and reading.

A time-out of a socket begins anew with every byte, so a server that sends one now and then holds a call for ever; and
resolving a name has no time-out at all.
"""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from ipaddress import ip_address
from time import monotonic
from typing import Any

_thread = threading.local()


class Deadline:
    """The time until which calls in this thread must end, as a context: `with Deadline(2.0): ...`."""

    __slots__ = ("_outer", "_seconds", "at")

    def __init__(self, seconds: float) -> None:
        self._seconds, self.at = seconds, monotonic() + seconds

    def renew(self) -> None:
        """Starts anew, for a server that made progress."""
        self.at = monotonic() + self._seconds

    def __enter__(self) -> Deadline:
        self._outer: Deadline | None = getattr(_thread, "current", None)
        _thread.current = self
        return self

    def __exit__(self, *exc: object) -> None:
        _thread.current = self._outer


def remaining(most: float | None = None) -> float | None:
    """Returns the seconds that are left, at most `most`; None if there is no limit. Raises TimeoutError if none are."""
    current: Deadline | None = getattr(_thread, "current", None)
    if current is None:
        return most
    left = current.at - monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left if most is None else min(left, most)


def connect(host: str, port: int, most: float | None = None) -> socket.socket:
    """Returns a connected socket; each address of the host is tried in turn, for `most` seconds."""
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in resolve(host, port):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(remaining(most))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def resolve(host: str, port: int) -> list[Any]:
    """Returns the addresses of a host, looked up in a thread of its own that may be left behind."""
    with suppress(ValueError):
        ip_address(host)
        return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
    answer: Future[list[Any]] = Future()

    def look_up() -> None:
        try:
            answer.set_result(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.set_exception(error if isinstance(error, OSError) else OSError(str(error)))

    threading.Thread(target=look_up, daemon=True, name="tunewright resolves").start()
    try:
        return answer.result(remaining())
    except TimeoutError:
        raise TimeoutError(f"the name {host} was not resolved in time") from None


class BoundedSocket:
    """A connected socket whose calls end at the deadline of their thread, if it has one."""

    def __init__(self, connection: Any) -> None:
        self._socket = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def _bound(self) -> Any:
        left = remaining()
        if left is not None:
            self._socket.settimeout(left)
        return self._socket

    def recv(self, *args: Any) -> Any:
        """Reads, as `socket.recv`."""
        return self._bound().recv(*args)

    def recv_into(self, *args: Any) -> Any:
        """Reads, as `socket.recv_into`."""
        return self._bound().recv_into(*args)

    def sendall(self, data: Any) -> None:
        """Writes everything; the time-out of a socket is one for all of it."""
        self._bound().sendall(data)
