"""The explorer of a space: heat maps of any two knobs, slices, and parallel coordinates of its trials."""

from __future__ import annotations

from math import isfinite

from tunewright.dashboard import components
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.views import Views
from tunewright.report import formatting
from tunewright.report.markup import el, href, join_markup, json_text, link, table

MAX_ROWS = 300


def explore(views: Views, query: Query) -> PageContent:
    """Renders the explorer of one key, or without a key, the list of keys."""
    if not query.get("key"):
        return key_list(views, "/explore", "Spaces", "Every key that has trials; explore one as heat maps and slices.")
    key = views.key(query["key"])
    fixed = fixed_knobs(query)
    data = href("/data/journal", key=key.digest, **{f"fix.{name}": value for name, value in fixed.items()})
    links = [link(f"All of {key.kernel}", "/kernel", name=key.kernel), components.key_link(key, "What is decided"),
            link("Compare strategies on it", "/strategies", key=key.digest)]  # fmt: skip
    explorer = components.script_component("explorer", data_from=data)
    return PageContent(
        f"{key.kernel} {components.argument_sizes(key)}",
        join_markup([el("p", str(key.device), class_="about"), components.link_list(links), explorer]),
        "/explore",
    )


def fixed_knobs(query: Query) -> dict[str, str]:
    """Returns the knobs that a query fixes: `fix.NAME=VALUE`."""
    return {name.removeprefix("fix."): value for name, value in query.items() if name.startswith("fix.")}


def journal_data(views: Views, query: Query) -> str:
    """Returns the trials of a key as JSON."""
    key = views.key(query.get("key", ""))
    decision, columns = views.decision(key), views.trial_columns(key)
    data = {
        "kernel": key.kernel,
        "device": str(key.device),
        "arguments": components.argument_sizes(key),
        "digest": key.digest,
        "within": {f"{percent:g}": columns.count_within(percent / 100) for percent in (1, 5, 10, 25)},
        **columns.plain(fixed_knobs(query), decision.config if decision else None),
    }
    return json_text(data)


def key_list(views: Views, path: str, title: str, about: str) -> PageContent:
    """Renders all keys that have trials, each with a link to its page at `path`."""
    counts = views.trial_counts()
    if not counts:
        note = components.empty_note("No trials are recorded. Tune a kernel:", "tunewright tune FILE.py:NAME")
        return PageContent(title, note, path)
    decisions = {decision.key: decision for decision in views.decisions()}
    rows = []
    for count in counts[:MAX_ROWS]:
        evidence = decisions[count.key].evidence if count.key in decisions else None
        best = formatting.measured(evidence.seconds, count.key) if evidence and isfinite(evidence.seconds) else "-"
        rows.append((link(count.key.kernel, path, key=count.key.digest), components.argument_sizes(count.key),
                     str(count.key.device), f"{count.trials:,}", best, components.timestamp(count.last)))  # fmt: skip
    if len(counts) > MAX_ROWS:
        about += f" The {MAX_ROWS} of {len(counts):,} keys with most trials are listed."
    heads = ("kernel", "arguments", "device", "trials", "decided", "last trial")
    body = join_markup([el("p", about, class_="about"), table(title, heads, rows, numbers=(3, 4))])
    return PageContent(title, body, path)
