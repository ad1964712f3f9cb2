"""The layout of all pages: head, landmarks and navigation; error pages; handlers that return complete responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tunewright.dashboard.saved_reports import MissingReportExtension
from tunewright.dashboard.views import PageNotFound, Views
from tunewright.errors import StoreError, TunewrightError
from tunewright.report.markup import Markup, el, join_markup, json_text, link
from tunewright.version import __version__

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of pages: only our scripts run; Plotly needs inline styles."""

HTML, JSON = "text/html; charset=utf-8", "application/json"

NAVIGATION = {
    "/": "Overview",
    "/explore": "Spaces",
    "/strategies": "Strategies",
    "/races": "Races",
    "/resources": "Resources",
    "/counts": "Counts",
    "/schedules": "Schedules",
    "/torch": "Torch",
    "/campaigns": "Campaigns",
    "/bundles": "Bundles",
}


class PageResponse(NamedTuple):
    """A complete page, or data for one, with its HTTP status and media type."""

    html: str
    status: int = 200
    media_type: str = HTML


class PageContent(NamedTuple):
    """The title and body of a page, and the entry of the navigation that it belongs to."""

    title: str
    body: Markup
    section: str = "/"
    status: int = 200


Query = Mapping[str, str]
PageRenderer = Callable[[Views, Query], PageContent]
DataLoader = Callable[[Views, Query], str]
RequestHandler = Callable[[Views, Query], PageResponse]


def page_handler(render: PageRenderer) -> RequestHandler:
    """Returns a handler that responds with the complete page, or with an error page."""

    def handle(views: Views, query: Query) -> PageResponse:
        try:
            content = render(views, query)
        except TunewrightError as error:
            content = error_content(error)
        return PageResponse(render_page(views, content), content.status)

    return handle


def data_handler(load: DataLoader) -> RequestHandler:
    """Returns a handler that responds with data for the script of a page, or with an error as JSON."""

    def handle(views: Views, query: Query) -> PageResponse:
        try:
            return PageResponse(load(views, query), 200, JSON)
        except TunewrightError as error:
            return PageResponse(json_text({"error": str(error)}), error_content(error).status, JSON)

    return handle


def error_content(error: TunewrightError) -> PageContent:
    """Returns the content of an error page."""
    if isinstance(error, PageNotFound):
        title, status = "Not found", 404
    elif isinstance(error, StoreError):
        title, status = "The store does not answer", 503
    elif isinstance(error, MissingReportExtension):
        title, status = "An extension is missing", 501
    else:
        title, status = "This cannot be shown", 400
    body = join_markup([el("p", error, class_="lead"), el("p", link("Back to the overview", "/"))])
    return PageContent(title, body, "", status)


def not_found(views: Views, path: str) -> PageResponse:
    """Returns the response to an unknown path."""
    content = error_content(PageNotFound(f"There is no page {path}; see the navigation above."))
    return PageResponse(render_page(views, content), content.status)


def render_page(views: Views, content: PageContent) -> str:
    """Returns the complete page; its style sheet and script are separate files."""
    head = (
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{content.title} · Tunewright"),
        el("link", rel="icon", href="data:,"),
        el("link", rel="stylesheet", href="/static/dashboard.css"),
        el("script", src="/static/dashboard.js"),
    )
    plotly = "/static/plotly.js" if views.has_plotly else None
    body = (*page_header(views, content.section), main_landmark(content), page_footer())
    return f'<!doctype html><html lang="en">{el("head", head)}{el("body", body, data_plotly=plotly)}</html>\n'


def main_landmark(content: PageContent, **attributes: str) -> Markup:
    """Returns the content as the main landmark of a page."""
    return el("main", el("h1", content.title), content.body, id="main", tabindex=-1, **attributes)


def page_header(views: Views, section: str) -> tuple[Markup, ...]:
    """Returns the skip link, the navigation, the name of the store and the theme button."""
    items = [
        el("li", el("a", name, href=path, aria_current="page" if path == section else None))
        for path, name in NAVIGATION.items()
    ]
    theme = el("button", "Theme", type="button", id="theme", aria_label="Theme: as the system says")
    return (
        el("a", "Skip to the content", href="#main", class_="skip"),
        el(
            "header",
            el("a", "Tunewright", href="/", class_="mark"),
            el("nav", el("ul", items), aria_label="Main"),
            el("span", views.name, class_="store", title="The store shown"),
            theme,
        ),
    )


def page_footer() -> Markup:
    """Returns the footer of a page."""
    return el(
        "footer",
        f"Tunewright {__version__} · times are measured seconds per launch; gains are relative to the default",
    )
