"""The campaigns page: what is being tuned now, from events, and what was tuned last."""

from __future__ import annotations

from tunewright.dashboard import components
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.views import Views
from tunewright.report.markup import el, join_markup, link, table

EVENTS = "/events"
"""The path of server-sent events: `started`, `tried` and `decided`, with JSON objects as data."""

MAX_RECENT = 40


def campaigns(views: Views, query: Query) -> PageContent:
    """Renders running and recent searches."""
    recent = sorted(views.trial_counts(), key=lambda count: -count.last)[:MAX_RECENT]
    rows = [
        (link(count.key.kernel, "/explore", key=count.key.digest), components.argument_sizes(count.key),
         str(count.key.device), f"{count.trials:,}", components.timestamp(count.last))
        for count in recent
    ]  # fmt: skip
    heads = ("kernel", "arguments", "device", "trials", "last trial")
    if views.live:
        placeholder = el("p", "No events since this page was opened.", class_="empty")
        running = components.script_component("live", placeholder, data_events=EVENTS, aria_live="polite")
    else:
        running = components.empty_note(
            "This report is a snapshot. To watch searches live, serve the store:", "tunewright serve"
        )
    last = table("Last tuned", heads, rows, numbers=(3,)) if rows else components.empty_note("Nothing was tuned yet.")
    body = join_markup([components.section("Now", running), components.section("Last", last)])
    return PageContent("Campaigns", body, "/campaigns")
