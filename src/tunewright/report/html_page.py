"""A self-contained HTML page that a command writes, with its style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tunewright.report import formatting
from tunewright.report.markup import EMPTY, Markup, el, join_markup

STYLE = """
body{margin:0 auto;max-width:70em;padding:2em;font:15px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff}
h1{font-size:22px}h2{font-size:16px;margin-top:2em}article{border-left:4px solid #d1242f;padding:.2em 1em;margin:1em 0}
article.slow{border-color:#bf8700}.cost{float:right;color:#57606a}code,pre{font:13px ui-monospace,monospace}
pre{background:#f6f8fa;padding:.5em;overflow:auto}.do{color:#116329}.bar{background:#0969da;height:12px}
td{padding:2px 12px 2px 0}td.bars{width:30em}.place{color:#57606a}.well{color:#116329}
th{text-align:left;padding:2px 12px 2px 0;font-weight:600}.bad{color:#d1242f}.best{font-weight:600}
table{border-collapse:collapse}svg{max-width:100%;height:auto}
"""


def render_page(title: str, body: str) -> str:
    """Returns a complete page; `title` is escaped, `body` is HTML."""
    head = el("meta", charset="utf-8"), el("title", title), el("style", Markup(STYLE))
    html = el("html", el("head", head), el("body", el("h1", title), Markup(body)), lang="en")
    return f"<!doctype html>{html}\n"


def bars(title: str, rows: Sequence[tuple[str, float]]) -> Markup:
    """Returns times as bars under a heading; empty if there are none."""
    if not rows:
        return EMPTY
    longest = max(seconds for _, seconds in rows) or 1.0
    lines = [
        el(
            "tr",
            el("td", name),
            el("td", formatting.seconds(seconds)),
            el("td", _bar(seconds / longest), class_="bars"),
        )
        for name, seconds in rows
    ]
    return join_markup([el("h2", title), el("table", lines)])


def _bar(share: float) -> Markup:
    return el("div", class_="bar", style=f"width:{100 * share:.1f}%")


def table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[Any]]]) -> Markup:
    """Returns a table; each row has a class and cells."""
    head = el("tr", (el("th", text) for text in heads))
    body = [el("tr", (el("td", cell) for cell in cells), class_=kind or None) for kind, cells in rows]
    return el("table", head, body)
