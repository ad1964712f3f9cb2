"""Traces, as a collector receives them."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("opentelemetry.instrumentation.asgi")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tunewright.testing.keys import KEY


@contextmanager
def collecting():
    """Where spans may be sent, and those that came."""
    spans = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            import gzip

            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *said):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def said(span):
    """The attributes of a span."""
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_every_request_leaves_a_span_within_the_trace_of_who_asked(serve, monkeypatch) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with collecting() as (place, spans):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", place)
        service = serve("--traces")
        with service.client() as client:
            path = f"/v1/decisions/{KEY.digest}"
            answer = client.get(path, headers={"traceparent": f"00-{trace}-{parent}-01", "x-request-id": "mine"})
            client.get("/v1/devices", headers={"authorization": "Bearer tw_wrong_wrong"})
        service.server.stop()
    assert answer.status_code == 404
    found = {span.name: span for span in spans}
    assert set(found) == {"GET /v1/decisions/{digest}", "GET refused"}
    first, refused = found["GET /v1/decisions/{digest}"], found["GET refused"]
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (trace, parent)
    assert said(first)["tunewright.request"] == "mine"
    assert (said(first)["http.response.status_code"], said(refused)["http.response.status_code"]) == (404, 401)
    assert not any("tw_" in str(span) for span in spans), "tokens are nobody else's business"
