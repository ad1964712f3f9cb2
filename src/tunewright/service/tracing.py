"""Tracing: a span for each request, by OpenTelemetry, where that is asked for."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tunewright.errors import SettingsError


def traced(app: Any) -> Any:
    """The same application, whose requests leave spans, as parts of the traces that clients begin (`traceparent`).

    Where spans go is set by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
    """
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")  # noqa: TID251 - theirs; the names that will stay
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional; said with the extra to install
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as above
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware  # noqa: PLC0415 - as above
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ImportError as error:
        raise SettingsError(
            "traces need OpenTelemetry, which is not installed; try: pip install 'tunewright[otel]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "tunewright"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    async def named(scope: Any, receive: Any, send: Any) -> None:
        """Answer, and say by which route: only whoever answers knows."""
        span = trace.get_current_span()

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                route = str(scope.get("path_template") or "refused")
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)
                span.set_attribute("tunewright.request", dict(message["headers"])[b"x-request-id"].decode())
            await send(message)

        await app(scope, receive, answer)

    spanned = OpenTelemetryMiddleware(named, tracer_provider=provider, exclude_spans=["receive", "send"])

    async def whole(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await spanned(scope, receive, send)
            return
        try:
            await app(scope, receive, send)
        finally:
            await asyncio.to_thread(provider.shutdown)  # what is still to be sent

    return whole
