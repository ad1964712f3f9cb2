"""App: the routes of a service, put together behind its gate."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Router, get
from litestar.datastructures import State
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp

from tunewright.service import bundles, lookups, publishing, recording
from tunewright.service.answering import Asking, bare, check, desk_of, needs, plain, wrong
from tunewright.service.archive import key_of
from tunewright.service.dashboard import mounted
from tunewright.service.describing import Description
from tunewright.service.desk import Desk
from tunewright.service.express import Express
from tunewright.service.gate import Gate
from tunewright.service.logs import Log
from tunewright.service.publishing import Press
from tunewright.service.serving import Serving
from tunewright.service.tokens import Scope
from tunewright.service.tracing import traced
from tunewright.version import __version__


@get("/health", summary="Whether this process is there")
async def health() -> ASGIApp:
    """Always the same."""
    return plain({"status": "here", "version": __version__})


@get("/ready", summary="Whether requests can be answered")
async def ready(request: Asking) -> ASGIApp:
    """An error 503 while the store is away."""
    desk = desk_of(request)
    await desk.call(desk.archive.truth.get, key_of("0" * 64))
    return plain({"status": "ready"})


@get("/metrics", **needs(Scope.READ), include_in_schema=False)
async def metrics(request: Asking) -> ASGIApp:
    """Counts and times, as Prometheus reads them."""
    return bare(desk_of(request).meters.text(), kind="text/plain; version=0.0.4; charset=utf-8")


ROUTES = Router(
    "/v1",
    route_handlers=[
        *(lookups.one, lookups.many, lookups.nearest, lookups.relatives, lookups.every, lookups.history),
        *(lookups.keys, lookups.trials, lookups.devices),
        *(publishing.publish, publishing.audit),
        *(recording.record, recording.want, recording.wanted, recording.claim, recording.release),
        *(recording.fetch, recording.keep, recording.entries, recording.clear),
        *(bundles.every, bundles.one, bundles.keep),
        *(health, ready),
    ],
)


def application(serving: Serving) -> Any:
    """The ASGI application of a service."""
    desk, log = Desk(serving), Log(serving.logs)

    @asynccontextmanager
    async def lifespan(app: Litestar) -> Any:
        yield
        desk.close()

    held = bundles.Held()
    state = {"desk": desk, "log": log, "press": Press(desk.archive), "held": held}
    app = Litestar(
        [ROUTES, metrics, *mounted(desk)],
        state=State(state),
        lifespan=[lifespan],
        before_request=check,
        exception_handlers={Exception: wrong},
        request_max_body_size=None,  # the gate bounds it, by token, and unpacked
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title="Tunewright",
            version="1",
            description="Decisions, trials and bundles of a team, shared over HTTP.",
            components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
            render_plugins=[Description()],
            path="/schema",
        ),
    )
    gate = Gate(app, desk, log, Express(desk, held))
    return traced(gate) if serving.traces else gate
