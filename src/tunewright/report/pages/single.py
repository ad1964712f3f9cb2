"""Single: all pages of a store in one file, which needs no server and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tunewright.errors import TunewrightError
from tunewright.report.pages import frame
from tunewright.report.pages.assets import STATIC
from tunewright.report.pages.frame import ROOMS, Draws, Sheet, Tells
from tunewright.report.pages.markup import Markup, el, href, json_of, put
from tunewright.report.pages.reports import SHOWN
from tunewright.report.pages.searching import FEWEST, MOST
from tunewright.report.pages.views import Views


class Bounds(NamedTuple):
    """How much goes into one file: kernels, keys with their evidence, spaces to explore, searches, races."""

    kernels: int = 50
    keys: int = 100
    spaces: int = 8
    searches: int = 3
    races: int = 20


class Place(NamedTuple):
    """A page or data: its path and what is asked of it."""

    path: str
    query: dict[str, str]

    @property
    def address(self) -> str:
        """As links name it."""
        return href(self.path, **self.query)


def whole(views: Views, draws: dict[str, Draws], tells: dict[str, Tells], bounds: Bounds) -> str:
    """The file. Links within it lead to its parts; those beyond its bounds say that they are not in it."""
    sheets = [(place, _drawn(views, draws[place.path], place)) for place in pages(views, bounds)]
    parts = [
        el("section", frame.main(sheet), data_path=place.address, id=place.address, hidden=place.path != "/")
        for place, sheet in sheets
    ]
    told = [_data(views, tells[place.path], place) for place in data(views, bounds)]
    title = f"Tunewright report{f' on {views.name}' if views.name else ''}"
    head = (
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Markup(_text("dashboard.css"))),
        el("noscript", el("style", Markup("[data-path]{display:block!important}"))),
    )
    around = (*frame.top(views, "/"), *parts, frame.bottom(), *told)
    # Text has its quotes escaped, so that nothing but a link of ours reads like this.
    body = (
        str(put(around)).replace(' href="/', ' href="#/').replace(' id="main"', "").replace('href="#main"', 'href="#/"')
    )
    scripts = [el("script", Markup(_text(name))) for name in ("dashboard.js", "plotly.js") if name in STATIC]
    return f'<!doctype html><html lang="en">{el("head", head)}<body data-single>{body}{put(scripts)}</body></html>\n'


def _text(name: str) -> str:
    """A file of ours or Plotly's, in which nothing ends a script."""
    return STATIC[name].body.decode().replace("</script", "<\\/script")


def _drawn(views: Views, draw: Draws, place: Place) -> Sheet:
    try:
        return draw(views, place.query)
    except TunewrightError as error:
        return frame.trouble(error)


def _data(views: Views, tell: Tells, place: Place) -> Markup:
    try:
        said = tell(views, place.query)
    except TunewrightError as error:
        said = json_of({"error": str(error)})
    return el("script", Markup(said), type="application/json", data_path=place.address)


def pages(views: Views, bounds: Bounds) -> Iterator[Place]:
    """Every page that goes into the file."""
    yield from (Place(path, {}) for path in ROOMS)
    yield from (Place("/kernel", {"name": name}) for name in views.kernels()[: bounds.kernels])
    yield from (Place("/decision", {"key": one.key.digest}) for one in views.decisions()[: bounds.keys])
    yield from (Place("/explore", {"key": one.key.digest}) for one in views.tallies()[: bounds.spaces])
    yield from (Place("/strategies", {"key": digest}) for digest in _searched(views, bounds))
    yield from (Place("/race", {"key": one.key.digest}) for one in views.raced()[: bounds.races])
    for kind, path in SHOWN.items():
        yield from (Place(path, {"name": one.name}) for one in views.filed(kind))
    for one in views.bundles:
        yield Place("/bundle", {"digest": one.digest})
        yield Place("/bundle", {"digest": one.digest, "against": "store"})
        others = (other for other in views.bundles if other is not one)
        yield from (Place("/bundle", {"digest": one.digest, "against": other.digest}) for other in others)


def data(views: Views, bounds: Bounds) -> Iterator[Place]:
    """All data that these pages ask for."""
    spaces = [one.key.digest for one in views.tallies()[: bounds.spaces]]
    searched = list(_searched(views, bounds))
    yield from (Place("/data/journal", {"key": digest}) for digest in dict.fromkeys([*spaces, *searched]))
    yield from (Place("/data/search", {"key": digest}) for digest in searched)


def _searched(views: Views, bounds: Bounds) -> Iterator[str]:
    """The largest journals that are not too large to be searched while one waits."""
    fit = [one.key.digest for one in views.tallies() if FEWEST <= one.trials <= MOST]
    return iter(fit[: bounds.searches])
