"""The ASGI application of a service: its routes behind the access middleware."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Router, get
from litestar.datastructures import State
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp

from tunewright.service import bundles, lookups, publishing, recording
from tunewright.service.config import ServiceConfig
from tunewright.service.context import RequestContext
from tunewright.service.dashboard import page_routes
from tunewright.service.fastpath import FastPath
from tunewright.service.logs import RequestLog
from tunewright.service.middleware import AccessMiddleware
from tunewright.service.openapi import StrictOpenApi, operation_id
from tunewright.service.publishing import Publisher
from tunewright.service.responses import (
    ServiceRequest,
    check_request,
    context_of,
    error_response,
    json_response,
    raw_response,
    requires,
)
from tunewright.service.storage import key_from_digest
from tunewright.service.tokens import Scope
from tunewright.service.tracing import with_tracing
from tunewright.version import __version__


@get("/health", summary="Whether this process is there")
async def health() -> ASGIApp:
    """Returns the same answer as long as the process runs."""
    return json_response({"status": "here", "version": __version__})


@get("/ready", summary="Whether requests can be answered")
async def ready(request: ServiceRequest) -> ASGIApp:
    """Fails with status 503 while the store is unavailable."""
    context = context_of(request)
    await context.run(context.storage.primary.get, key_from_digest("0" * 64))
    return json_response({"status": "ready"})


@get("/metrics", **requires(Scope.READ), include_in_schema=False)
async def metrics(request: ServiceRequest) -> ASGIApp:
    """Returns counts and durations in the text format of Prometheus."""
    return raw_response(context_of(request).metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = Router(
    "/v1",
    route_handlers=[
        *(lookups.get_decision, lookups.lookup_decisions, lookups.nearest_decisions, lookups.related_decisions),
        *(lookups.list_decisions, lookups.decision_history, lookups.list_keys, lookups.list_trials),
        lookups.list_devices,
        *(publishing.publish, publishing.list_audit),
        *(recording.record_trials, recording.add_misses, recording.list_misses),
        *(recording.claim_lease, recording.release_lease),
        *(recording.fetch_entries, recording.keep_entry, recording.list_entries, recording.clear_entries),
        *(bundles.list_bundles, bundles.get_bundle, bundles.put_bundle),
        *(health, ready),
    ],
)


def create_app(config: ServiceConfig) -> Any:
    """Creates the ASGI application of a service."""
    context, log = RequestContext(config), RequestLog(config.logs)

    @asynccontextmanager
    async def lifespan(app: Litestar) -> Any:
        yield
        context.close()

    bundle_cache = bundles.BundleCache()
    state = {
        "context": context,
        "log": log,
        "publisher": Publisher(context.storage),
        "bundle_cache": bundle_cache,
    }
    app = Litestar(
        [ROUTES, metrics, *page_routes(context)],
        state=State(state),
        lifespan=[lifespan],
        before_request=check_request,
        exception_handlers={Exception: error_response},
        request_max_body_size=None,  # the middleware limits it, by token and after decompression
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title="Tunewright",
            version="1",
            description="Decisions, trials and bundles of a team, shared over HTTP.",
            components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
            operation_id_creator=operation_id,
            render_plugins=[StrictOpenApi()],
            path="/schema",
        ),
    )
    middleware = AccessMiddleware(app, context, log, FastPath(context, bundle_cache))
    return with_tracing(middleware) if config.traces else middleware
