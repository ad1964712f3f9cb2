"""Pages: the dashboard. Every page is a function of what is kept in a store; whoever serves them adds nothing."""

from __future__ import annotations

from tunewright.report.pages import bundles, campaigns, explorer, kernel, overview, races, reports, searching, single
from tunewright.report.pages.assets import STATIC
from tunewright.report.pages.filed import Filed
from tunewright.report.pages.frame import POLICY, Answers, Draws, Page, Tells, framed, missing, told
from tunewright.report.pages.single import Bounds
from tunewright.report.pages.views import Views

DRAWS: dict[str, Draws] = {
    "/": overview.overview,
    "/kernel": kernel.kernel,
    "/decision": kernel.decision,
    "/explore": explorer.explore,
    "/strategies": searching.strategies,
    "/races": races.races,
    "/race": races.race,
    "/resources": reports.resources,
    "/schedules": reports.schedules,
    "/torch": reports.torch,
    "/campaigns": campaigns.campaigns,
    "/bundles": bundles.bundles,
    "/bundle": bundles.bundle,
}
"""Paths, and what draws the page there."""

TELLS: dict[str, Tells] = {"/data/journal": explorer.journal, "/data/search": searching.search}
"""Paths of data that the script of a page asks for once the page is shown."""

PAGES: dict[str, Answers] = {
    **{path: framed(draw) for path, draw in DRAWS.items()},
    **{path: told(tell) for path, tell in TELLS.items()},
}
"""All that is to be mounted: a path, and what answers `(views, query)` there with a `Page`."""


def report(views: Views, bounds: Bounds | None = None) -> str:
    """All pages of a store in one file."""
    return single.whole(views, DRAWS, TELLS, bounds or Bounds())


__all__ = ["PAGES", "POLICY", "STATIC", "Bounds", "Filed", "Page", "Views", "missing", "report"]
