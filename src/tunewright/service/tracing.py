"""Tracing with OpenTelemetry: a span for each request."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tunewright.errors import SettingsError


def with_tracing(app: Any) -> Any:
    """Wraps an application so that requests create spans, within the traces of clients (`traceparent`).

    The variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_ENDPOINT, set where spans are sent.
    """
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")  # noqa: TID251 - read by OpenTelemetry: stable attribute names
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional dependency
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as above
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware  # noqa: PLC0415 - as above
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ImportError as error:
        raise SettingsError(
            "--traces needs OpenTelemetry, which is not installed; pip install 'tunewright[otel]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "tunewright"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    async def with_route(scope: Any, receive: Any, send: Any) -> None:
        """Names the span after the route, which is known once the response starts."""
        span = trace.get_current_span()

        async def respond(message: Any) -> None:
            if message["type"] == "http.response.start":
                route = str(scope.get("path_template") or "refused")
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)
                span.set_attribute("tunewright.request", dict(message["headers"])[b"x-request-id"].decode())
            await send(message)

        await app(scope, receive, respond)

    instrumented = OpenTelemetryMiddleware(with_route, tracer_provider=provider, exclude_spans=["receive", "send"])

    async def traced_app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await instrumented(scope, receive, send)
            return
        try:
            await app(scope, receive, send)
        finally:
            await asyncio.to_thread(provider.shutdown)  # sends pending spans

    return traced_app
