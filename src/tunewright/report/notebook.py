"""Decisions, kernels and trials as HTML for notebooks; every text is escaped, since stores may be written by others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tunewright.errors import TunewrightError
from tunewright.model.decision import Decision, Evidence, Tier
from tunewright.report import formatting, summary
from tunewright.report.formatting import one_line
from tunewright.report.markup import EMPTY, Markup, el, join_markup

BLUE, ORANGE, GREY = "#2563eb", "#ea580c", "#9ca3af"

MAX_BARS = 8
"""Configs that a picture shows."""

MAX_ROWS = 20
"""Rows of a table that are shown; the rest is counted."""

LEFT = "text-align:left;vertical-align:top"

# Widths in pixels: of the labels, of the bars, and of the times behind them.
LABEL, BAR, TIME, ROW = 220, 260, 90, 20

Bar = tuple[str, float, float, float, str]
"""A config with its time, the ends of its interval, and its color."""


def decision_html(decision: Decision) -> str:
    """Returns a decision as a table, and as a picture of what was raced."""
    key = decision.key
    try:
        config, evidence = decision.config, decision.evidence
    except TunewrightError:
        return join_markup(el("pre", summary.decision_text(decision)))
    rows = [("arguments", str(key.signature)), ("device", str(key.device)), *_facts(decision)]
    head = el("tr", el("th", one_line(key.kernel), style=LEFT), el("td", el("b", one_line(str(config))), style=LEFT))
    table = el("table", head, [_row(name, text) for name, text in rows])
    has_times = evidence is not None and evidence.clock != "printed"  # other numbers are not drawn as times
    return el("div", table, picture(_bars(str(config), evidence)) if evidence and has_times else EMPTY)


def _row(name: str, text: str) -> Markup:
    return el("tr", el("th", name, style=LEFT), el("td", one_line(text, 400), style=LEFT))


def _facts(decision: Decision) -> Iterator[tuple[str, str]]:
    """Yields what the evidence says, as rows of a table."""
    evidence = decision.evidence
    if decision.tier is not Tier.EXACT:
        yield "found as", str(decision.tier)
    if evidence is None:
        yield "why", "nothing is decided" if decision.tier is Tier.DEFAULT else "there is no evidence"
        return
    yield "time", summary.time_text(decision.key, evidence)
    yield "speed", summary.gain_text(decision.key, evidence)
    yield "search", summary.trials_text(evidence)
    if evidence.notes:
        yield "notes", "; ".join(evidence.notes)
    for complaint in evidence.conditions.complaints() if evidence.conditions else ():
        yield "disturbed", complaint


def _bars(chosen: str, evidence: Evidence) -> list[Bar]:
    """Returns the chosen config, those that tie with it, and the default."""
    bars: list[Bar] = [(chosen, evidence.seconds, evidence.low, evidence.high, BLUE)]
    bars += [(str(tie.config), tie.seconds, tie.low, tie.high, GREY) for tie in evidence.ties[: MAX_BARS - 2]]
    if evidence.default_seconds:
        gain, base = evidence.over_default, evidence.seconds
        low, high = (gain.low * base, gain.high * base) if gain else (evidence.default_seconds,) * 2
        bars.append(("the default", evidence.default_seconds, low, high, ORANGE))
    return bars


def picture(bars: Sequence[Bar]) -> Markup:
    """Returns times as horizontal bars with their intervals, as SVG; nothing if no time can be drawn."""
    drawn = [bar for bar in bars if math.isfinite(bar[1]) and bar[1] > 0]
    if not drawn:
        return EMPTY
    longest = max(bar[1] for bar in drawn)
    height, width = ROW * len(drawn) + 4, LABEL + BAR + TIME
    parts = [_bar(number, bar, longest) for number, bar in enumerate(drawn)]
    label = "time per run of the chosen config, of those that tie with it, and of the default"
    box = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    return el("svg", parts, xmlns="http://www.w3.org/2000/svg", role="img", aria_label=label, **box)


def _bar(number: int, bar: Bar, longest: float) -> Markup:
    """Returns one row of a picture: the config, its bar with a line for the interval, and its time."""
    name, seconds, low, high, color = bar
    y, end = ROW * number, LABEL + _length(seconds, longest)
    left, right = (LABEL + _length(edge if math.isfinite(edge) else seconds, longest) for edge in (low, high))
    font = {"font_size": 12, "font_family": "sans-serif", "fill": "currentColor"}
    title, line = el("title", one_line(name, 400)), {"stroke": "currentColor", "stroke_width": 2}
    return join_markup(
        [
            el("text", title, one_line(name, 34), x=LABEL - 8, y=y + 15, text_anchor="end", **font),
            el("rect", x=LABEL, y=y + 4, width=f"{end - LABEL:.1f}", height=ROW - 6, fill=color, rx=2),
            el("line", x1=f"{left:.1f}", x2=f"{right:.1f}", y1=y + 11, y2=y + 11, **line),
            el("text", formatting.seconds(seconds), x=f"{max(end, right) + 6:.1f}", y=y + 15, **font),
        ]
    )


def _length(seconds: float, longest: float) -> float:
    """Returns the length of a bar in pixels; intervals may reach a little beyond the longest bar."""
    return BAR * min(max(seconds / longest, 0.0), 1.1)


def kernel_html(head: str, decisions: Sequence[Decision]) -> str:
    """Returns a kernel with the decisions that this process has used, as a table with a bar for each gain."""
    title = el("p", el("b", one_line(head)))
    if not decisions:
        return el("div", title, el("p", "nothing is decided in this process yet"))
    gains = [_gain(decision) for decision in decisions]
    widest = max([1.0, *gains])
    heads = ("arguments", "config", "time", "against the default", "", "trials")
    rows = [
        el("tr", (el("td", cell, style=LEFT) for cell in _kernel_row(decision, gain, widest)))
        for decision, gain in zip(decisions[-MAX_ROWS:], gains[-MAX_ROWS:], strict=True)
    ]
    more = len(decisions) - len(rows)
    rest = el("p", f"and {formatting.counted(more, 'earlier decision')}") if more else EMPTY
    return el("div", title, el("table", el("tr", (el("th", text, style=LEFT) for text in heads)), rows), rest)


def _gain(decision: Decision) -> float:
    gain = decision.evidence.gain if decision.evidence else None
    return gain if gain is not None and math.isfinite(gain) and gain > 0 else 0.0


def _kernel_row(decision: Decision, gain: float, widest: float) -> list[Any]:
    evidence, arguments = decision.evidence, one_line(str(decision.key.signature))
    if evidence is None:
        origin = "the default" if decision.tier is Tier.DEFAULT else "without evidence"
        return [arguments, one_line(str(decision.config)), origin, "", "", ""]
    bar = el("rect", width=f"{100 * gain / widest:.1f}", height=10, fill=BLUE if gain >= 1 else ORANGE, rx=2)
    svg = el("svg", bar, xmlns="http://www.w3.org/2000/svg", width=100, height=10, role="img", aria_label="speedup")
    config, times = one_line(str(decision.config)), summary.time_text(decision.key, evidence)
    return [arguments, config, times, one_line(summary.gain_text(decision.key, evidence)), svg, f"{evidence.trials}"]


class TrialTable(list[dict[str, Any]]):
    """Trials as plain dictionaries, shown as a table; what `Tuned.trials` returns without pandas."""

    def __repr__(self) -> str:
        if not self:
            return "no trials"
        heads = list(self[0])
        lines = [heads, *([_cell(row.get(head)) for head in heads] for row in self[:MAX_ROWS])]
        widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
        texts = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([*texts, *self._rest()])

    def _repr_html_(self) -> str:
        heads = list(self[0]) if self else []
        rows = [el("tr", (el("td", _cell(row.get(head)), style=LEFT) for head in heads)) for row in self[:MAX_ROWS]]
        head = el("tr", (el("th", one_line(text), style=LEFT) for text in heads))
        return el("div", el("table", head, rows), [el("p", text) for text in self._rest()])

    def _rest(self) -> list[str]:
        return [f"and {len(self) - MAX_ROWS} more"] if len(self) > MAX_ROWS else []


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else one_line(str(value), 60)


class Text(str):
    """Text that shows itself as it is, also as the last value of a cell or at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
