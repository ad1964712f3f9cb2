"""Campaigns: what is being tuned now, told by events as they come; and what was tuned last."""

from __future__ import annotations

from tunewright.report.pages import parts
from tunewright.report.pages.frame import Query, Sheet
from tunewright.report.pages.markup import el, link, put, table
from tunewright.report.pages.views import Views

EVENTS = "/events"
"""Where a server sends events: messages named `started`, `tried`, `decided`, whose data are JSON objects."""

LAST = 40


def campaigns(views: Views, query: Query) -> Sheet:
    """What goes on, and what went on last."""
    recent = sorted(views.tallies(), key=lambda tally: -tally.last)[:LAST]
    rows = [
        (link(tally.key.kernel, "/explore", key=tally.key.digest), parts.sizes(tally.key), str(tally.key.device),
         f"{tally.trials:,}", parts.moment(tally.last))
        for tally in recent
    ]  # fmt: skip
    heads = ("kernel", "arguments", "device", "trials", "last trial")
    if views.live:
        waiting = el("p", "Nothing has happened since this page was opened.", class_="empty")
        now = parts.component("live", waiting, data_events=EVENTS, aria_live="polite")
    else:
        now = parts.empty(
            "This is a report, written once. To watch searches live, serve the store:", "tunewright serve"
        )
    last = table("Last tuned", heads, rows, numbers=(3,)) if rows else parts.empty("Nothing was tuned yet.")
    return Sheet("Campaigns", put([parts.section("Now", now), parts.section("Last", last)]), "/campaigns")
