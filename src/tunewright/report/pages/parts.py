"""Parts: what several pages say in the same way: configs, gains, moments, bars, heat."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite, log
from typing import Any

from tunewright.model.decision import Decision, Evidence
from tunewright.model.key import Key
from tunewright.report import words
from tunewright.report.pages.markup import NOTHING, Markup, el, link, put

LEVELS = 15
"""Steps of the colours of a heat map, of which 0 is the worst."""


def sizes(key: Key) -> str:
    """What the arguments of a key look like, briefly."""
    dims = key.signature.dims
    return " ".join(f"{name}={size}" for name, size in dims.items()) or ", ".join(key.signature.args) or "any"


def config(settings: Any) -> Markup:
    """A config, set as code, that breaks between its settings alone."""
    said = str(settings).split(" ")
    return el(
        "code", (put([" " if place else None, el("span", one)]) for place, one in enumerate(said)), class_="config"
    )


def key_link(key: Key, text: Any = None) -> Markup:
    """A link to what is decided for a key."""
    return link(text or key.digest[:10], "/decision", key=key.digest)


def time_of(evidence: Evidence | None) -> str:
    """A decision's time with its interval."""
    if evidence is None:
        return "-"
    return f"{words.seconds(evidence.seconds)} {words.spread(evidence.low, evidence.high, evidence.seconds)}"


def gain_of(decision: Decision) -> Markup:
    """How many times faster than the default, marked where that is not shown."""
    said = decision.evidence
    if said is None or said.gain is None:
        return el("span", "not compared", class_="faint")
    if said.over_default is not None and said.over_default.wash:
        return el("span", f"{words.ratio(said.gain)}, not told from the default", class_="faint")
    return el("span", words.gain(said.over_default, said.gain), class_="good" if said.gain > 1 else "bad")


def moment(when: str | float) -> Markup:
    """A moment as people read it, and as machines do."""
    if isinstance(when, float | int):
        when = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds") if when > 0 else ""
    return el("time", when[:16].replace("T", " "), datetime=when) if when else put("-")


def bar(share: float, label: str) -> Markup:
    """A bar as long as a share, with words for those who do not see it."""
    wide = 100 * min(max(share, 0.0), 1.0)
    inside = el("rect", width=100, height=8, rx=2, class_="rail"), el("rect", width=f"{wide:.1f}", height=8, rx=2)
    return el(
        "svg", inside, class_="bar", viewBox="0 0 100 8", preserveAspectRatio="none", role="img", aria_label=label
    )


def level(share: float) -> int:
    """The colour of a share, 1 being best."""
    return round(LEVELS * min(max(share, 0.0), 1.0))


def gain_level(gain: float | None) -> int | None:
    """The colour of a gain: none is the lowest, tenfold the highest."""
    return None if gain is None or gain <= 0 or not isfinite(gain) else level(log(max(gain, 1.0)) / log(10.0))


def cards(facts: Iterable[tuple[Any, Any, Any]]) -> Markup:
    """Large numbers, each with what it counts and a remark."""
    made = [
        el("div", el("dt", name), el("dd", value, el("small", remark) if remark else None))
        for value, name, remark in facts
    ]
    return el("dl", made, class_="cards")


def section(title: str, *inside: Any, id_: str | None = None, about: Any = None) -> Markup:
    """A part of a page under a heading."""
    return el("section", el("h2", title, id=id_), el("p", about, class_="about") if about else None, inside)


def ways(links: Iterable[Markup]) -> Markup:
    """Links to what is near."""
    return el("ul", (el("li", one) for one in links), class_="ways")


def empty(said: Any, command: str = "") -> Markup:
    """What stands where there is nothing yet, and how that changes."""
    return el("p", said, " " if command else None, el("code", command) if command else NOTHING, class_="empty")


def component(kind: str, *inside: Any, **attributes: Any) -> Markup:
    """A place that the script fills; what is inside stands until then."""
    waiting = inside or (el("p", "Loading …", class_="empty"),)
    return el("div", waiting, data_kind=kind, class_=f"part {kind}", **attributes)
