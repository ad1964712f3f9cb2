"""Servers that are not what they seem: they drip, redirect, send garbage, or never end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hostile_corpus.case import CRASH, LEAK, SECRET, WRONG_CONFIG, Finding, Workspace, attack, held, honest
from tunewright.errors import StoreError
from tunewright.stores import locations
from tunewright.stores.http import HttpStore
from tunewright.testing.keys import DECISION, KEY

SECONDS = 0.2
"""The time-out of the calls below."""

LIMIT = 4.0
"""Seconds within which such a call must end, on a busy machine."""

Speaker = Callable[[socket.socket], None]


@contextmanager
def server(speak: Speaker) -> Iterator[str]:
    """Serves every connection in a thread of its own, and yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        def one(connection: socket.socket) -> None:
            with connection:
                try:
                    connection.recv(1 << 16)
                    speak(connection)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def dripping(head: bytes, drop: bytes) -> Speaker:
    """Returns a speaker that sends a little now and then, for ever."""

    def speak(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            time.sleep(SECONDS / 4)
            connection.sendall(drop)

    return speak


def ended(location: str) -> Finding:
    """Looks a key up, and returns whether that ended in time without an answer."""
    store = locations.open_single(location)  # which loads a client, slowly
    began = time.monotonic()
    try:
        found = store.get(KEY)
    except StoreError:
        found = None
    took = time.monotonic() - began
    if found is not None:
        return Finding(WRONG_CONFIG, f"got {found.config}")
    return held(f"after {took:.1f} s") if took < LIMIT else Finding(CRASH, f"held for {took:.1f} s")


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"


@attack
def a_service_that_drips(workspace: Workspace) -> Finding:
    """A service that sends a byte now and then."""
    with server(dripping(HEAD, b" ")) as address:
        return ended(f"http://{address}?timeout={SECONDS}&tries=3")


@attack
def a_service_that_drips_headers(workspace: Workspace) -> Finding:
    """A service whose headers never end."""
    with server(dripping(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n")) as address:
        return ended(f"http://{address}?timeout={SECONDS}&tries=3")


@attack
def a_redis_that_drips(workspace: Workspace) -> Finding:
    """A Redis that sends a byte now and then."""
    with server(dripping(b"*1\r\n$100000\r\n", b"x")) as address:
        return ended(f"redis://{address}/0?socket_timeout={SECONDS}")


@attack
def a_service_that_redirects(workspace: Workspace) -> Finding:
    """A service that redirects to another host, which waits for the token."""
    heard: list[bytes] = []

    def listen(connection: socket.socket) -> None:
        heard.append(b"connected")

    with server(listen) as other:
        head = f"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{other}/\r\ncontent-length: 0\r\n\r\n".encode()
        with server(lambda connection: connection.sendall(head)) as address:
            for call in (lambda store: store.get(KEY), lambda store: store.put(DECISION)):
                try:
                    call(HttpStore.at(f"http://{SECRET}@{address}?timeout=5&tries=1"))
                except StoreError as error:
                    if SECRET in str(error):
                        return Finding(LEAK, str(error))
    return Finding(LEAK, "the request followed") if heard else held("not followed")


@attack
def a_service_that_answers_garbage(workspace: Workspace) -> Finding:
    """A service that sends random bytes, and valid JSON of another kind."""
    bodies = (b"\x00\xff" * 500, b"[]", b'{"decision":7,"schema":1}', b"[" * 100_000)
    texts = [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body) for body in bodies]
    for text in (bodies[0], *texts):
        with server(lambda connection, text=text: connection.sendall(text)) as address:
            if (finding := ended(f"http://{address}?timeout=2&tries=1")).outcome != "held":
                return finding
    return held("misses and errors")


@attack
def a_service_that_never_ends(workspace: Workspace) -> Finding:
    """A service that sends as fast as it can, for ever."""

    def speak(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")

    with server(speak) as address:
        return ended(f"http://{address}?timeout={SECONDS}&tries=3")


@attack
def a_service_that_answers_for_another_key(workspace: Workspace) -> Finding:
    """A service that sends a decision for another key."""
    from tunewright.stores import serialization
    from tunewright.testing.keys import other_decision, other_key

    body = serialization.dump_decision(other_decision(key=other_key(kernel="conv")))
    text = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    with server(lambda connection: connection.sendall(text)) as address:
        return ended(f"http://{address}?timeout=2&tries=1")


@attack
def a_name_that_is_never_resolved(workspace: Workspace) -> Finding:
    """A resolver that does not answer."""
    real, socket.getaddrinfo = socket.getaddrinfo, lambda *args, **options: time.sleep(30)
    try:
        for location in (f"http://slow.invalid?timeout={SECONDS}", f"redis://slow.invalid/0?socket_timeout={SECONDS}"):
            if (finding := ended(location)).outcome != "held":
                return finding
    finally:
        socket.getaddrinfo = real
    return held("given up")


@honest
def a_service_that_is_slow_but_answers_in_time(workspace: Workspace) -> Finding:
    """A service that sends a right answer in pieces, within the time-out."""
    from tunewright.stores import serialization

    body = serialization.dump_decision(DECISION)

    def speak(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 100):
            time.sleep(0.02)
            connection.sendall(body[start : start + 100])

    with server(speak) as address:
        found = HttpStore.at(f"http://{address}?timeout=20&tries=1").get(KEY)
    return held("used") if found == DECISION else Finding(WRONG_CONFIG, "no answer")
