"""All pages of a store in one HTML file, which needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tunewright.dashboard import layout
from tunewright.dashboard.assets import STATIC
from tunewright.dashboard.layout import NAVIGATION, DataLoader, PageContent, PageRenderer
from tunewright.dashboard.reports import REPORT_PATHS
from tunewright.dashboard.search import MAX_CONFIGS, MIN_CONFIGS
from tunewright.dashboard.views import Views
from tunewright.errors import TunewrightError
from tunewright.report.markup import Markup, el, href, join_markup, json_text


class ReportLimits(NamedTuple):
    """Limits of one file: kernels, keys with their evidence, spaces to explore, searches, races."""

    kernels: int = 50
    keys: int = 100
    spaces: int = 8
    searches: int = 3
    races: int = 20


class PageAddress(NamedTuple):
    """The path and query of a page or of data."""

    path: str
    query: dict[str, str]

    @property
    def url(self) -> str:
        """The address as links have it."""
        return href(self.path, **self.query)


def render_file(
    views: Views, renderers: dict[str, PageRenderer], loaders: dict[str, DataLoader], limits: ReportLimits
) -> str:
    """Returns the file. Its links lead to its own pages; for pages beyond the limits it says so."""
    pages = [
        (address, _render_content(views, renderers[address.path], address)) for address in page_addresses(views, limits)
    ]
    sections = [
        el("section", layout.main_landmark(content), data_path=page.url, id=page.url, hidden=page.path != "/")
        for page, content in pages
    ]
    data = [_data_script(views, loaders[address.path], address) for address in data_addresses(views, limits)]
    title = f"Tunewright report{f' on {views.name}' if views.name else ''}"
    head = (
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Markup(_asset_text("dashboard.css"))),
        el("noscript", el("style", Markup("[data-path]{display:block!important}"))),
    )
    body = str(join_markup((*layout.page_header(views, "/"), *sections, layout.page_footer(), *data)))
    # Quotes in text are escaped, so that only our own attributes match.
    for old, new in ((' href="/', ' href="#/'), (' id="main"', ""), ('href="#main"', 'href="#/"')):
        body = body.replace(old, new)
    scripts = join_markup(
        [el("script", Markup(_asset_text(name))) for name in ("dashboard.js", "plotly.js") if name in STATIC]
    )
    return f'<!doctype html><html lang="en">{el("head", head)}<body data-single>{body}{scripts}</body></html>\n'


def _asset_text(name: str) -> str:
    """Returns a style sheet or script, in which nothing ends the script element."""
    return STATIC[name].body.decode().replace("</script", "<\\/script")


def _render_content(views: Views, render: PageRenderer, address: PageAddress) -> PageContent:
    try:
        return render(views, address.query)
    except TunewrightError as error:
        return layout.error_content(error)


def _data_script(views: Views, load: DataLoader, address: PageAddress) -> Markup:
    try:
        text = load(views, address.query)
    except TunewrightError as error:
        text = json_text({"error": str(error)})
    return el("script", Markup(text), type="application/json", data_path=address.url)


def page_addresses(views: Views, limits: ReportLimits) -> Iterator[PageAddress]:
    """Yields the address of every page of the file."""
    yield from (PageAddress(path, {}) for path in NAVIGATION)
    yield from (PageAddress("/kernel", {"name": name}) for name in views.kernels()[: limits.kernels])
    yield from (PageAddress("/shapes", {"name": n}) for n in views.kernels()[: limits.kernels] if views.has_shapes(n))
    for decision in views.decisions()[: limits.keys]:
        yield PageAddress("/decision", {"key": decision.key.digest})
    for count in views.trial_counts()[: limits.spaces]:
        yield PageAddress("/explore", {"key": count.key.digest})
    yield from (PageAddress("/strategies", {"key": digest}) for digest in _searched_keys(views, limits))
    for decision in views.raced_decisions()[: limits.races]:
        yield PageAddress("/race", {"key": decision.key.digest})
    for kind, path in REPORT_PATHS.items():
        yield from (PageAddress(path, {"name": report.name}) for report in views.saved_reports(kind))
    for bundle in views.bundles:
        yield PageAddress("/bundle", {"digest": bundle.digest})
        yield PageAddress("/bundle", {"digest": bundle.digest, "against": "store"})
        others = (other for other in views.bundles if other is not bundle)
        yield from (PageAddress("/bundle", {"digest": bundle.digest, "against": other.digest}) for other in others)


def data_addresses(views: Views, limits: ReportLimits) -> Iterator[PageAddress]:
    """Yields the address of all data that these pages fetch."""
    spaces = [count.key.digest for count in views.trial_counts()[: limits.spaces]]
    searched = list(_searched_keys(views, limits))
    yield from (PageAddress("/data/journal", {"key": digest}) for digest in dict.fromkeys([*spaces, *searched]))
    yield from (PageAddress("/data/search", {"key": digest}) for digest in searched)


def _searched_keys(views: Views, limits: ReportLimits) -> Iterator[str]:
    """Returns the keys with most trials that can be searched within seconds."""
    digests = [count.key.digest for count in views.trial_counts() if MIN_CONFIGS <= count.trials <= MAX_CONFIGS]
    return iter(digests[: limits.searches])
