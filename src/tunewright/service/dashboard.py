"""Dashboard: the pages of `report.pages`, behind the same gate."""

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

from tunewright.report import pages
from tunewright.service.answering import Asking, bare, desk_of, needs
from tunewright.service.desk import Desk
from tunewright.service.shown import Gallery
from tunewright.service.tokens import Scope

GLANCE = 2.0
"""Seconds between two looks at the journals for whoever listens."""

LISTEN = 30.0
"""Seconds a listener is served before it asks again, as browsers do: who drains waits no longer."""


def mounted(desk: Desk) -> list[HTTPRouteHandler]:
    """A route for each page and each file they need."""
    views = pages.Views(desk.archive.truth, bundles=Gallery(desk.archive), live=True)
    shown = [_page(path, function, views) for path, function in pages.PAGES.items()]
    return [*shown, _files(pages.STATIC), _events(views)]


def _page(path: str, function: Any, views: Any) -> HTTPRouteHandler:
    @get(path, **needs(Scope.READ), include_in_schema=False, name=f"page {path}")
    async def page(request: Asking) -> ASGIApp:
        made = await desk_of(request).call(function, views, dict(request.query_params))
        return bare(made.html.encode(), made.status, made.kind, cache_control="no-store")

    return page


def _files(static: Any) -> HTTPRouteHandler:
    @get("/static/{name:str}", **needs(Scope.READ), include_in_schema=False)
    async def file(name: str) -> ASGIApp:
        if name not in static:
            raise HTTPException(status_code=404, detail="no such file")
        body, kind = static[name]
        return bare(body, 200, kind, cache_control="private, max-age=3600")

    return file


def _events(views: Any) -> HTTPRouteHandler:
    @get("/events", **needs(Scope.READ), include_in_schema=False)
    async def events(request: Asking) -> Stream:
        told = _tried(desk_of(request), views)
        return Stream(told, media_type="text/event-stream", headers={"cache-control": "no-store"})

    return events


async def _tried(desk: Desk, views: Any) -> AsyncIterator[bytes]:
    """An event for each journal that grew, as long as somebody may listen."""

    async def counted() -> dict[Any, int]:
        return {tally.key: tally.trials for tally in await desk.call(views.tallies)}

    seen, until = await counted(), asyncio.get_running_loop().time() + LISTEN
    yield b"retry: 1000\n\n"
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(GLANCE)
        now = await counted()
        for key, trials in now.items():
            if (more := trials - seen.get(key, 0)) > 0:
                said = {"kernel": key.kernel, "said": f"{more} more, {trials} in all, on {key.device}"}
                yield b"event: tried\ndata: " + msgspec.json.encode(said) + b"\n\n"
        seen = now
