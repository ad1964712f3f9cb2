"""Frame: what all pages have in common: head, landmarks, navigation; and what is said where there is no page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tunewright.errors import StoreError, TunewrightError
from tunewright.report.pages.markup import Markup, el, json_of, link, put
from tunewright.report.pages.views import NotThere, Views
from tunewright.version import __version__

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy that pages are made for: no script but ours; Plotly styles what it draws in place."""

HTML, JSON = "text/html; charset=utf-8", "application/json"

ROOMS = {
    "/": "Overview",
    "/explore": "Spaces",
    "/strategies": "Strategies",
    "/races": "Races",
    "/resources": "Resources",
    "/schedules": "Schedules",
    "/torch": "Torch",
    "/campaigns": "Campaigns",
    "/bundles": "Bundles",
}


class Page(NamedTuple):
    """What is sent: a whole page, or data for one, with an HTTP status and what kind of text it is."""

    html: str
    status: int = 200
    kind: str = HTML


class Sheet(NamedTuple):
    """A page without its frame: a title, what stands under it, and the room of the navigation it belongs to."""

    title: str
    body: Markup
    room: str = "/"
    status: int = 200


Query = Mapping[str, str]
Draws = Callable[[Views, Query], Sheet]
Tells = Callable[[Views, Query], str]
Answers = Callable[[Views, Query], Page]


def framed(draw: Draws) -> Answers:
    """From a function that draws sheets to one that answers with pages, whatever happens to the store."""

    def answer(views: Views, query: Query) -> Page:
        try:
            sheet = draw(views, query)
        except TunewrightError as error:
            sheet = trouble(error)
        return Page(whole(views, sheet), sheet.status)

    return answer


def told(tell: Tells) -> Answers:
    """The same for data that the script of a page asks for."""

    def answer(views: Views, query: Query) -> Page:
        try:
            return Page(tell(views, query), 200, JSON)
        except TunewrightError as error:
            return Page(json_of({"error": str(error)}), trouble(error).status, JSON)

    return answer


def trouble(error: TunewrightError) -> Sheet:
    """What is said instead of a page."""
    if isinstance(error, NotThere):
        title, status = "Nothing is here", 404
    elif isinstance(error, StoreError):
        title, status = "The store does not answer", 503
    else:
        title, status = "This cannot be shown", 400
    return Sheet(title, put([el("p", error, class_="lead"), el("p", link("Back to the overview", "/"))]), "", status)


def missing(views: Views, path: str) -> Page:
    """What is answered to a path that no page has."""
    sheet = trouble(NotThere(f"There is no page {path}; the navigation above lists those there are."))
    return Page(whole(views, sheet), sheet.status)


def whole(views: Views, sheet: Sheet) -> str:
    """A sheet in its frame, with the style sheet and the script beside it."""
    head = (
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{sheet.title} · Tunewright"),
        el("link", rel="icon", href="data:,"),
        el("link", rel="stylesheet", href="/static/dashboard.css"),
        el("script", src="/static/dashboard.js"),
    )
    drawn_by = "/static/plotly.js" if views.draws else None
    body = (*top(views, sheet.room), main(sheet), bottom())
    return f'<!doctype html><html lang="en">{el("head", head)}{el("body", body, data_plotly=drawn_by)}</html>\n'


def main(sheet: Sheet, **attributes: str) -> Markup:
    """The sheet as a page's main landmark."""
    return el("main", el("h1", sheet.title), sheet.body, id="main", tabindex=-1, **attributes)


def top(views: Views, room: str) -> tuple[Markup, ...]:
    """What stands above every page: the way past it, a name, the navigation, the switch between light and dark."""
    listed = [
        el("li", el("a", name, href=path, aria_current="page" if path == room else None))
        for path, name in ROOMS.items()
    ]
    switch = el("button", "Theme", type="button", id="theme", aria_label="Theme: as the system says")
    return (
        el("a", "Skip to the content", href="#main", class_="skip"),
        el(
            "header",
            el("a", "Tunewright", href="/", class_="mark"),
            el("nav", el("ul", listed), aria_label="Main"),
            el("span", views.name, class_="store", title="The store shown"),
            switch,
        ),
    )


def bottom() -> Markup:
    """What stands below every page."""
    return el(
        "footer", f"Tunewright {__version__} · times are seconds a launch, as measured; gains are over the default"
    )
