"""A tiny server for pages, on the loopback alone: what a browser test needs until it is through."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qsl, urlsplit

from tunewright.dashboard import PAGES, POLICY, STATIC, Views, not_found


def handler(views: Views) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if asked.path.startswith("/static/"):
                asset = STATIC.get(asked.path.removeprefix("/static/"))
                self.send(*((200, asset.body, asset.type) if asset else (404, b"", "text/plain")))
            elif asked.path == "/events":
                self.send(200, b'event: tried\ndata: {"kernel": "gemm", "seconds": 0.002}\n\n', "text/event-stream")
            else:
                answer = PAGES.get(asked.path)
                page = answer(views, dict(parse_qsl(asked.query))) if answer else not_found(views, asked.path)
                self.send(page.status, page.html.encode(), page.media_type)

        def send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: object) -> None:
            pass

    return Handler


@contextmanager
def served(views: Views):
    """The address at which pages are served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(views))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
