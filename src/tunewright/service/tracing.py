"""Tracing: a span for each request, by OpenTelemetry, where that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tunewright.errors import SettingsError

Spans = Callable[[str, str], AbstractContextManager[Any]]


def spans() -> Spans:
    """What a request is answered in, by its method and path.

    Where spans go is set by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
    """
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional; said with the extra to install
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as above
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ImportError as error:
        raise SettingsError(
            "traces need OpenTelemetry, which is not installed; try: pip install 'tunewright[otel]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "tunewright"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = trace.get_tracer("tunewright.service", tracer_provider=provider)

    def span(method: str, path: str) -> AbstractContextManager[Any]:
        attributes = {"http.request.method": method, "url.path": path[:200]}
        found: AbstractContextManager[Any] = tracer.start_as_current_span(method, attributes=attributes)
        return found

    return span
