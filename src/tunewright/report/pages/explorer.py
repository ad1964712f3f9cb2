"""Explorer: a space as its trials show it: any two knobs as a heat map, slices, parallel coordinates."""

from __future__ import annotations

from math import isfinite

from tunewright.report import words
from tunewright.report.pages import parts
from tunewright.report.pages.frame import Query, Sheet
from tunewright.report.pages.markup import el, href, json_of, link, put, table
from tunewright.report.pages.views import Views

MOST_ROWS = 300


def explore(views: Views, query: Query) -> Sheet:
    """The explorer of one key; without one, the list of all that can be explored."""
    if not query.get("key"):
        return listed(views, "/explore", "Spaces", "Every key that has trials; explore one as heat maps and slices.")
    key = views.key(query["key"])
    fixed = fixed_in(query)
    data = href("/data/journal", key=key.digest, **{f"fix.{name}": value for name, value in fixed.items()})
    ways = [link(f"All of {key.kernel}", "/kernel", name=key.kernel), parts.key_link(key, "What is decided"),
            link("Compare strategies on it", "/strategies", key=key.digest)]  # fmt: skip
    drawn = parts.component("explorer", data_from=data)
    return Sheet(
        f"{key.kernel} {parts.sizes(key)}",
        put([el("p", str(key.device), class_="about"), parts.ways(ways), drawn]),
        "/explore",
    )


def fixed_in(query: Query) -> dict[str, str]:
    """The knobs that a query fixes: `fix.NAME=VALUE`."""
    return {name.removeprefix("fix."): value for name, value in query.items() if name.startswith("fix.")}


def journal(views: Views, query: Query) -> str:
    """The trials of a key, as data."""
    key = views.key(query.get("key", ""))
    decided, read = views.decision(key), views.journal(key)
    about = {"kernel": key.kernel, "device": str(key.device), "arguments": parts.sizes(key), "digest": key.digest}
    counts = {"within": {f"{share:g}": read.within(share / 100) for share in (1, 5, 10, 25)}}
    return json_of({**about, **counts, **read.plain(fixed_in(query), decided.config if decided else None)})


def listed(views: Views, path: str, title: str, about: str) -> Sheet:
    """All keys that have trials, each with a link to a page about them."""
    tallies = views.tallies()
    if not tallies:
        return Sheet(
            title, parts.empty("No trials are recorded here. Tune a kernel:", "tunewright tune FILE.py:NAME"), path
        )
    decided = {one.key: one for one in views.decisions()}
    rows = []
    for tally in tallies[:MOST_ROWS]:
        said = decided[tally.key].evidence if tally.key in decided else None
        best = words.seconds(said.seconds) if said and isfinite(said.seconds) else "-"
        rows.append((link(tally.key.kernel, path, key=tally.key.digest), parts.sizes(tally.key), str(tally.key.device),
                     f"{tally.trials:,}", best, parts.moment(tally.last)))  # fmt: skip
    more = f" The {MOST_ROWS} with most trials are listed, of {len(tallies):,}." if len(tallies) > MOST_ROWS else ""
    heads = ("kernel", "arguments", "device", "trials", "decided", "last trial")
    return Sheet(title, put([el("p", about + more, class_="about"), table(title, heads, rows, numbers=(3, 4))]), path)
