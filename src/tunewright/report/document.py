"""Document: how a page of its own looks that a command writes; it needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tunewright.report import words

STYLE = """
body{margin:0 auto;max-width:70em;padding:2em;font:15px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff}
h1{font-size:22px}h2{font-size:16px;margin-top:2em}article{border-left:4px solid #d1242f;padding:.2em 1em;margin:1em 0}
article.slow{border-color:#bf8700}.cost{float:right;color:#57606a}code,pre{font:13px ui-monospace,monospace}
pre{background:#f6f8fa;padding:.5em;overflow:auto}.do{color:#116329}.bar{background:#0969da;height:12px}
td{padding:2px 12px 2px 0}td.bars{width:30em}.place{color:#57606a}.well{color:#116329}
th{text-align:left;padding:2px 12px 2px 0;font-weight:600}.bad{color:#d1242f}.best{font-weight:600}
table{border-collapse:collapse}svg{max-width:100%;height:auto}
"""


def whole(title: str, body: str) -> str:
    """A page of its own; `body` is HTML, `title` is not."""
    name = escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title><style>{STYLE}</style>'
        f"<h1>{name}</h1>{body}</html>\n"
    )


def bars(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """Times as bars under a heading; nothing where there are none."""
    if not rows:
        return ""
    most = max(taken for _, taken in rows) or 1.0
    drawn = "".join(
        f'<tr><td>{escape(name)}<td>{words.seconds(taken)}<td class="bars"><div class="bar" '
        f'style="width:{100 * taken / most:.1f}%"></div>'
        for name, taken in rows
    )
    return f"<h2>{escape(title)}</h2><table>{drawn}</table>"


def table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """A table; each row with a class, and its cells as text."""
    top = "".join(f"<th>{escape(head)}" for head in heads)
    body = "".join(f'<tr class="{kind}">' + "".join(f"<td>{escape(cell)}" for cell in row) for kind, row in rows)
    return f"<table><tr>{top}{body}</table>"
