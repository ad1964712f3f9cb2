"""One deadline for a whole call: a server that drips, a resolver that hangs, an endless body end it, too."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest

from tunewright.errors import StoreError
from tunewright.stores import deadline, locations
from tunewright.stores.deadline import Deadline
from tunewright.stores.http import HttpStore, client
from tunewright.stores.redis import RedisStore
from tunewright.testing.keys import KEY

LIMIT = 3.0
"""Seconds within which a call with a time-out of 0.3 s ends, on a machine where nothing else is sure."""


@contextmanager
def server(answer):
    """A server on loopback that answers each connection by `answer(connection, over)`."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=speak, args=(connection,), daemon=True).start()

        def speak(connection):
            with connection:
                try:
                    answer(connection, over)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        over.set()


def dripping(head: bytes, drop: bytes):
    def answer(connection, over):
        connection.recv(65536)
        connection.sendall(head)
        while not over.wait(0.05):
            connection.sendall(drop)

    return answer


HTTP_HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def took(call) -> float:
    began = time.monotonic()
    with pytest.raises(StoreError):
        call()
    return time.monotonic() - began


CALLS = {
    "get": lambda store: store.get(KEY),
    "get_many": lambda store: store.get_many([KEY]),
    "relatives": lambda store: list(store.relatives(KEY)),
    "trials": lambda store: list(store.trials(KEY)),
    "claim": lambda store: store.claim("a", "b", 1.0),
}


@pytest.mark.clock("3 s for a time-out of 0.3 s")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("tries", [1, 3])
def test_a_service_that_drips_is_given_up(call, tries) -> None:
    with server(dripping(HTTP_HEAD, b" ")) as address:
        store = HttpStore.at(f"http://{address}?timeout=0.3&tries={tries}")
        assert took(lambda: CALLS[call](store)) < LIMIT


@pytest.mark.clock("3 s for a time-out of 0.3 s")
def test_a_service_that_drips_its_headers_is_given_up() -> None:
    with server(dripping(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n")) as address:
        assert took(lambda: HttpStore.at(f"http://{address}?timeout=0.3&tries=3").get(KEY)) < LIMIT


@pytest.mark.clock("3 s for a time-out of 0.3 s")
@pytest.mark.parametrize("call", ["get", "get_many", "trials", "claim"])
def test_a_redis_that_drips_is_given_up(call) -> None:
    with server(dripping(b"*1\r\n$100000\r\n", b"x")) as address:
        store = RedisStore.at(f"redis://{address}/0?socket_timeout=0.3")
        assert took(lambda: CALLS[call](store)) < LIMIT


@pytest.mark.clock("3 s for a time-out of 0.3 s")
def test_a_postgres_that_drips_is_given_up() -> None:
    # R: authentication is not needed; then S, the settings of the server, without end.
    drop = b"S" + (4 + 4).to_bytes(4, "big") + b"a\0b\0"

    def answer(connection, over):
        connection.recv(65536)
        connection.sendall(b"N")  # no encryption
        connection.recv(65536)
        connection.sendall(b"R\0\0\0\x08\0\0\0\0")
        while not over.wait(0.05):
            connection.sendall(drop)

    with server(answer) as address:
        store = locations.open_single(f"postgresql://me@{address}/db?tunewright_timeout=0.3")
        assert took(lambda: store.get(KEY)) < LIMIT


@pytest.fixture
def hanging_resolver(monkeypatch):
    over, real = threading.Event(), socket.getaddrinfo

    def hang(host, *args, **options):
        if host == "slow.invalid":
            over.wait(60)
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    yield
    over.set()


@pytest.mark.clock("3 s for a time-out of 0.3 s")
@pytest.mark.parametrize(
    "location",
    [
        "http://slow.invalid:1?timeout=0.3&tries=3",
        "redis://slow.invalid:1/0?socket_timeout=0.3",
        "rediss://slow.invalid:1/0?socket_timeout=0.3",
        "postgresql://me@slow.invalid:1/db?tunewright_timeout=0.3",
    ],
)
def test_a_resolver_that_hangs_is_given_up(hanging_resolver, location) -> None:
    assert took(lambda: locations.open_single(location).get(KEY)) < LIMIT


def endless(connection, over):
    connection.recv(65536)
    connection.sendall(CHUNKED_HEAD)
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    while not over.is_set():
        connection.sendall(piece)


@pytest.mark.parametrize("call", ["get", "get_many", "trials"])
def test_an_endless_body_ends(monkeypatch, call) -> None:
    for name in ("MAX_RESPONSE_BYTES", "MAX_LIST_BYTES", "MAX_LINE_BYTES"):
        monkeypatch.setattr(client, name, 1 << 20)
    with server(endless) as address, pytest.raises(StoreError, match="more than 1,048,576 bytes"):
        CALLS[call](HttpStore.at(f"http://{address}?timeout=60&tries=1"))


def test_a_token_follows_no_redirect() -> None:
    heard: list[bytes] = []

    def elsewhere(connection, over):
        heard.append(connection.recv(65536))

    with server(elsewhere) as other:

        def redirect(connection, over):
            connection.recv(65536)
            location = f"location: http://{other}/v1/decisions/x\r\n".encode()
            connection.sendall(b"HTTP/1.1 307 Temporary Redirect\r\n" + location + b"content-length: 0\r\n\r\n")

        with server(redirect) as address:
            store = HttpStore.at(f"http://secret-token@{address}?timeout=60&tries=1")
            for call in CALLS.values():
                with pytest.raises(StoreError) as failure:
                    call(store)
                assert "secret-token" not in str(failure.value)
    assert heard == []


GARBAGE = (b"\x00\xff" * 1000, b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[1]", b"", b"HTTP/9.9 999\r\n\r\n")


@pytest.mark.parametrize("text", GARBAGE)
@pytest.mark.parametrize("call", CALLS)
def test_garbage_is_an_error_of_the_store(text, call) -> None:
    def answer(connection, over):
        connection.recv(65536)
        connection.sendall(text)

    with server(answer) as address:
        try:
            found = CALLS[call](HttpStore.at(f"http://{address}?timeout=60&tries=1"))
        except StoreError:
            return
        assert not found, "a malformed record is a miss"


def test_a_deadline_that_is_over_is_over_and_an_outer_one_returns() -> None:
    assert deadline.remaining() is None
    with Deadline(60):
        with Deadline(-1), pytest.raises(TimeoutError):
            deadline.remaining()
        assert 0 < deadline.remaining() <= 60
        assert deadline.remaining(1.0) == 1.0
    assert deadline.remaining() is None
