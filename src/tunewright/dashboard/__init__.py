"""The dashboard: pages that are functions of the content of a store, served or written to one file."""

from __future__ import annotations

from tunewright.dashboard import (
    bundles,
    campaigns,
    counts,
    explorer,
    kernel,
    overview,
    races,
    reports,
    search,
    shapes,
    single_file,
)
from tunewright.dashboard.assets import STATIC
from tunewright.dashboard.layout import (
    POLICY,
    DataLoader,
    PageRenderer,
    PageResponse,
    RequestHandler,
    data_handler,
    not_found,
    page_handler,
)
from tunewright.dashboard.saved_reports import SavedReport
from tunewright.dashboard.single_file import ReportLimits
from tunewright.dashboard.views import Views

PAGE_RENDERERS: dict[str, PageRenderer] = {
    "/": overview.overview,
    "/kernel": kernel.kernel,
    "/decision": kernel.decision,
    "/shapes": shapes.shapes,
    "/explore": explorer.explore,
    "/strategies": search.strategies,
    "/races": races.races,
    "/race": races.race,
    "/resources": reports.resources,
    "/counts": counts.counts,
    "/schedules": reports.schedules,
    "/torch": reports.torch,
    "/campaigns": campaigns.campaigns,
    "/bundles": bundles.bundles,
    "/bundle": bundles.bundle,
}
"""The renderers of pages, by path."""

DATA_LOADERS: dict[str, DataLoader] = {"/data/journal": explorer.journal_data, "/data/search": search.search_data}
"""The loaders of data that the script of a page fetches, by path."""

PAGES: dict[str, RequestHandler] = {
    **{path: page_handler(render) for path, render in PAGE_RENDERERS.items()},
    **{path: data_handler(load) for path, load in DATA_LOADERS.items()},
}
"""All routes: handlers that return a `PageResponse` for `(views, query)`, by path."""


def render_report(views: Views, limits: ReportLimits | None = None) -> str:
    """Returns all pages of a store as one HTML file."""
    return single_file.render_file(views, PAGE_RENDERERS, DATA_LOADERS, limits or ReportLimits())


__all__ = [
    "PAGES",
    "POLICY",
    "STATIC",
    "PageResponse",
    "ReportLimits",
    "SavedReport",
    "Views",
    "not_found",
    "render_report",
]
