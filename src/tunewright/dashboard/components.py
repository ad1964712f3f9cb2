"""Components that several pages share: configs, gains, timestamps, bars, cards, sections."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite, log
from typing import Any

from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.report import formatting
from tunewright.report.markup import EMPTY, Markup, el, join_markup, link

LEVELS = 15
"""The highest color level of a heat map; 0 is the worst."""


def argument_sizes(key: Key) -> str:
    """Returns a short description of the arguments of a key."""
    dims = key.signature.dims
    return " ".join(f"{name}={size}" for name, size in dims.items()) or ", ".join(key.signature.args) or "any"


def config_code(settings: Any) -> Markup:
    """Returns a config as code that wraps only between its settings."""
    parts = str(settings).split(" ")
    spans = (join_markup([" " if index else None, el("span", part)]) for index, part in enumerate(parts))
    return el("code", spans, class_="config")


def key_link(key: Key, text: Any = None) -> Markup:
    """Returns a link to the decision of a key."""
    return link(text or key.digest[:10], "/decision", key=key.digest)


def time_of(decision: Decision) -> str:
    """Returns the time of a decision with its interval."""
    if (evidence := decision.evidence) is None:
        return "-"
    time = formatting.measured(evidence.seconds, decision.key)
    return f"{time} {formatting.spread(evidence.low, evidence.high, evidence.seconds)}"


def gain_of(decision: Decision) -> Markup:
    """Returns the speedup over the default, marked if it is within noise."""
    evidence = decision.evidence
    if evidence is None or evidence.gain is None:
        return el("span", "not compared", class_="faint")
    if evidence.over_default is not None and evidence.over_default.is_inconclusive:
        return el("span", f"{formatting.ratio(evidence.gain)}, within noise of the default", class_="faint")
    gain = formatting.gain(evidence.over_default, evidence.gain)
    return el("span", gain, class_="good" if evidence.gain > 1 else "bad")


def timestamp(when: str | float) -> Markup:
    """Returns a time for people, with the exact one as attribute."""
    if isinstance(when, float | int):
        when = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds") if when > 0 else ""
    return el("time", when[:16].replace("T", " "), datetime=when) if when else join_markup("-")


def bar(share: float, label: str) -> Markup:
    """Returns a bar whose length shows a share, with a label for screen readers."""
    width = 100 * min(max(share, 0.0), 1.0)
    inside = el("rect", width=100, height=8, rx=2, class_="rail"), el("rect", width=f"{width:.1f}", height=8, rx=2)
    return el(
        "svg", inside, class_="bar", viewBox="0 0 100 8", preserveAspectRatio="none", role="img", aria_label=label
    )


def level(share: float) -> int:
    """Returns the color level of a share; 1 is the best."""
    return round(LEVELS * min(max(share, 0.0), 1.0))


def gain_level(gain: float | None) -> int | None:
    """Returns the color level of a gain: a factor of 1 is the lowest, of 10 the highest."""
    return None if gain is None or gain <= 0 or not isfinite(gain) else level(log(max(gain, 1.0)) / log(10.0))


def cards(facts: Iterable[tuple[Any, Any, Any]]) -> Markup:
    """Returns large numbers, each with a name and a remark."""
    items = [
        el("div", el("dt", name), el("dd", value, el("small", remark) if remark else None))
        for value, name, remark in facts
    ]
    return el("dl", items, class_="cards")


def section(title: str, *inside: Any, id_: str | None = None, about: Any = None) -> Markup:
    """Returns a section of a page with a heading."""
    return el("section", el("h2", title, id=id_), el("p", about, class_="about") if about else None, inside)


def link_list(links: Iterable[Markup]) -> Markup:
    """Returns a list of links to related pages."""
    return el("ul", (el("li", item) for item in links), class_="ways")


def empty_note(text: Any, command: str = "") -> Markup:
    """Returns a note in place of missing content, with the command that creates it."""
    return el("p", text, " " if command else None, el("code", command) if command else EMPTY, class_="empty")


def script_component(kind: str, *inside: Any, **attributes: Any) -> Markup:
    """Returns an element that the script fills; until then it shows what is inside."""
    placeholder = inside or (el("p", "Loading …", class_="empty"),)
    return el("div", placeholder, data_kind=kind, class_=f"part {kind}", **attributes)
