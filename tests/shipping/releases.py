"""Releases for tests: keys, lists of signers, bundles of a channel, and servers that answer as a test says."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tunewright.spaces.config import Config
from tunewright.stores.bundle import signing
from tunewright.stores.bundle.build import ReleaseInfo, build, write
from tunewright.testing.keys import other_decision

ALICE, BOB, CAROL, MALLORY = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(1, 5))
FAR = "2099-01-01T00:00:00+00:00"
PAST = "2026-01-01T00:00:00+00:00"


def public(key) -> str:
    return signing.encode_public_key(signing.public_bytes(key))


def list_of(**signers) -> str:
    """The lines of a list of signers."""
    return "".join(f"{public(key)} {name}\n" for name, key in signers.items())


def release(path, version, *keys, channel="prod", expires=FAR, audience=(), tile=None):
    """Writes a bundle of that version, signed by Alice unless keys are given; another version decides otherwise."""
    decision = other_decision(config=Config(tile=tile or version))
    info = ReleaseInfo(channel, version, expires, tuple(audience))
    write(path, build([decision], release=info), *(keys or (ALICE,)))
    return path


@contextmanager
def answering(answer, tls=None):
    """An HTTP server on loopback that calls `answer(handler)` for each request; yields `host:port` and the requests."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self):
            seen.append((self.command, self.path, dict(self.headers.items())))
            self.close_connection = True
            try:
                answer(self)
            except OSError:
                return  # the client has had enough

        do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815 - as the library calls them

        def log_message(self, *given):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.handle_error = True, lambda *given: None
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(handler, status=200, body=b"", **headers):
    handler.send_response(status)
    for name, value in {"content_length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)
