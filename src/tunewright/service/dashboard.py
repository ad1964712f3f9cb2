"""Routes of the dashboard: its pages, its static files and its stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import get
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from litestar.types import ASGIApp

from tunewright import dashboard
from tunewright.service.bundle_views import BundleCatalog
from tunewright.service.context import RequestContext
from tunewright.service.responses import ServiceRequest, context_of, raw_response, requires
from tunewright.service.tokens import Scope

POLL_SECONDS = 2.0
"""Seconds between two checks for new trials."""

STREAM_SECONDS = 30.0
"""Seconds after which a stream of events ends and the browser reconnects, so that a shutdown need not wait longer."""


def page_routes(context: RequestContext) -> list[HTTPRouteHandler]:
    """Returns a route for each page, for static files and for events."""
    views = dashboard.Views(context.storage.primary, bundles=BundleCatalog(context.storage), live=True)
    pages = [_page_route(path, handler, views) for path, handler in dashboard.PAGES.items()]
    return [*pages, _static_route(dashboard.STATIC), _events_route(views)]


def _page_route(path: str, handler: Any, views: Any) -> HTTPRouteHandler:
    @get(path, **requires(Scope.READ), include_in_schema=False, name=f"page {path}")
    async def page(request: ServiceRequest) -> ASGIApp:
        response = await context_of(request).run(handler, views, dict(request.query_params))
        return raw_response(response.html.encode(), response.status, response.media_type, cache_control="no-store")

    return page


def _static_route(static: Any) -> HTTPRouteHandler:
    @get("/static/{name:str}", **requires(Scope.READ), include_in_schema=False)
    async def file(name: str) -> ASGIApp:
        if name not in static:
            raise HTTPException(status_code=404, detail="no such file")
        body, media_type = static[name]
        return raw_response(body, 200, media_type, cache_control="private, max-age=3600")

    return file


def _events_route(views: Any) -> HTTPRouteHandler:
    @get("/events", **requires(Scope.READ), include_in_schema=False)
    async def events(request: ServiceRequest) -> Stream:
        stream = _trial_events(context_of(request), views)
        return Stream(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})

    return events


async def _trial_events(context: RequestContext, views: Any) -> AsyncIterator[bytes]:
    """Yields an event for each key that got new trials."""

    async def count_trials() -> dict[Any, int]:
        return {count.key: count.trials for count in await context.run(views.trial_counts)}

    before, until = await count_trials(), asyncio.get_running_loop().time() + STREAM_SECONDS
    yield b"retry: 1000\n\n"
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(POLL_SECONDS)
        now = await count_trials()
        for key, trials in now.items():
            if (new := trials - before.get(key, 0)) > 0:
                event = {"kernel": key.kernel, "said": f"{new} new trials, {trials} in total, on {key.device}"}
                yield b"event: tried\ndata: " + msgspec.json.encode(event) + b"\n\n"
        before = now
