"""Kernel: what is decided for it, shape by device; and the evidence for one key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from shlex import quote
from typing import Any

from tunewright.model.decision import Decision, Evidence
from tunewright.model.key import Key, flatten
from tunewright.report import words
from tunewright.report.pages import parts
from tunewright.report.pages.frame import Query, Sheet
from tunewright.report.pages.markup import Markup, el, link, put, table
from tunewright.report.pages.overview import typical
from tunewright.report.pages.views import NotThere, Views

MOST_ROWS = 300


def kernel(views: Views, query: Query) -> Sheet:
    """All that is known of one kernel."""
    name = query.get("name", "")
    decisions, tallies, wants = views.decisions(name), views.tallies(name), views.wants(name)
    if not (decisions or tallies or wants):
        known = ", ".join(views.kernels()[:20]) or "none"
        raise NotThere(f"No kernel is called {name[:80]!r}; there are {known}.")
    gain = typical([decision.evidence.gain for decision in decisions if decision.evidence])
    facts = (
        (f"{len(decisions):,}", "decisions", words.counted(len({str(d.key.device) for d in decisions}), "device")),
        (f"{sum(tally.trials for tally in tallies):,}", "trials", words.counted(len(tallies), "journal")),
        (words.ratio(gain) if gain else "-", "typical gain", "over the default"),
        (f"{len(wants):,}", "missing", None),
    )
    rows = [
        (parts.key_link(one.key), parts.sizes(one.key), str(one.key.device), parts.config(one.config),
         parts.time_of(one.evidence), parts.gain_of(one), parts.moment(one.evidence.when if one.evidence else ""))
        for one in decisions[:MOST_ROWS]
    ]  # fmt: skip
    heads = ("key", "arguments", "device", "config", "time", "gain", "when")
    body = [parts.cards(facts)]
    if decisions:
        body += [_matrix(decisions), parts.section("Decisions", table("Decisions", heads, rows, numbers=(4,)))]
    if tallies:
        body.append(_journals(views, name))
    return Sheet(name, put(body))


def _matrix(decisions: Sequence[Decision]) -> Markup:
    """Shapes down, devices across; a cell says the time and the gain, and leads to the evidence."""
    cells: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    for decision in decisions:
        cells[parts.sizes(decision.key), str(decision.key.device)].append(decision)
    shapes, devices = (list(dict.fromkeys(place[i] for place in cells)) for i in (0, 1))
    rows = [(shape, *(_cell(cells.get((shape, device), [])) for device in devices)) for shape in shapes[:MOST_ROWS]]
    drawn = table("Shapes by devices", ("arguments", *devices), rows)
    about = "The time of what was chosen, and how many times faster than the default that is; the brighter, the more."
    return parts.section("Shapes and devices", el("div", drawn, class_="heat"), about=about)


def _cell(decisions: Sequence[Decision]) -> Markup:
    if not decisions:
        return el("td", el("span", "-", class_="faint"))
    newest = max(decisions, key=lambda one: one.evidence.when if one.evidence else "")
    said = newest.evidence
    time = words.seconds(said.seconds) if said else "decided"
    gain = words.ratio(said.gain) if said and said.gain else ""
    others = f" and {len(decisions) - 1} more" if len(decisions) > 1 else ""
    inside = parts.key_link(newest.key, time), " ", el("small", gain, others)
    return el("td", inside, data_level=parts.gain_level(said.gain if said else None))


def _journals(views: Views, name: str) -> Markup:
    rows = [
        (link(tally.key.digest[:10], "/explore", key=tally.key.digest), parts.sizes(tally.key), str(tally.key.device),
         f"{tally.trials:,}", parts.moment(tally.last), link("strategies", "/strategies", key=tally.key.digest))
        for tally in views.tallies(name)[:MOST_ROWS]
    ]  # fmt: skip
    heads = ("explore", "arguments", "device", "trials", "last", "compare")
    return parts.section("Journals", table("Journals", heads, rows, numbers=(3,)))


def decision(views: Views, query: Query) -> Sheet:
    """What is decided for one key, why, and what stood before."""
    key = views.key(query.get("key", ""))
    found = views.decision(key)
    title = f"{key.kernel} {parts.sizes(key)}"
    if found is None:
        body = [parts.empty("Nothing is decided for this key."), _ways(views, key)]
        return Sheet(title, put([*body, _fields(key)]))
    said = found.evidence
    chosen = parts.section("Chosen", el("p", parts.config(found.config), class_="lead"), _ways(views, key))
    why = _evidence(said) if said else parts.section("Evidence", parts.empty("None: nothing says how it was found."))
    return Sheet(title, put([chosen, why, _history(views, found), _fields(key)]))


def _ways(views: Views, key: Key) -> Markup:
    near = [link(f"All of {key.kernel}", "/kernel", name=key.kernel)]
    if any(tally.key == key for tally in views.tallies(key.kernel)):
        near += [link("Explore its space", "/explore", key=key.digest)]
        near += [link("Compare strategies on it", "/strategies", key=key.digest)]
    if views.transcript(key) is not None:
        near.append(link("See its race", "/race", key=key.digest))
    return parts.ways(near)


def _evidence(said: Evidence) -> Markup:
    """Times, gains, ties, conditions."""
    facts: list[tuple[Any, Any, Any]] = [(words.seconds(said.seconds), "a launch", _interval(said))]
    if said.gain:
        facts.append((words.ratio(said.gain), "gain", words.gain(said.over_default, said.gain)))
    if said.end_to_end is not None:
        facts.append((words.ratio(said.end_to_end.ratio), "of the program", words.gain(said.end_to_end)))
    facts.append((f"{said.trials:,}", "trials", f"{said.failures:,} failed"))
    if said.resolution is not None:
        facts.append((f"{said.resolution:.1%}", "resolution", "the least difference the race could tell"))
    if said.remains is not None:
        facts.append((f"{said.remains:.1%}", "may remain", "as the strategy's model expects"))
    complaints = said.conditions.complaints() if said.conditions else []
    versions = ", ".join(f"{name} {value}" for name, value in said.versions.items())
    how = f"Found by {said.strategy or '?'} (seed {said.seed}) by the {said.clock or '?'} clock; {versions}; "
    lines = [el("p", how, parts.moment(said.when)), *(el("p", note) for note in said.notes)]
    if complaints:
        lines.append(el("p", f"While the finalists raced, {'; '.join(complaints)}.", class_="note"))
    if said.ties:
        rows = [
            (parts.config(tie.config), words.seconds(tie.seconds), _bits(tie.fingerprint, said)) for tie in said.ties
        ]
        lines.append(el("h3", "Not told from the chosen one"))
        lines.append(table("Not told from the chosen one", ("config", "time", "results"), rows, numbers=(1,)))
    return parts.section("Evidence", parts.cards(facts), lines)


def _interval(said: Evidence) -> str:
    return f"{words.seconds(said.low)} to {words.seconds(said.high)}"


def _bits(fingerprint: str, said: Evidence) -> str:
    if not fingerprint or not said.fingerprint:
        return "not compared"
    return "the same bit for bit" if fingerprint == said.fingerprint else "differ in some bits"


def _history(views: Views, found: Decision) -> Markup | None:
    stood = views.history(found.key)
    if not stood:
        return None
    rows = [
        (f"{one.number}", parts.moment(one.since), parts.config(one.decision.config),
         parts.time_of(one.decision.evidence), parts.gain_of(one.decision), "stands" if one is stood[-1] else "")
        for one in reversed(stood)
    ]  # fmt: skip
    command = f"tunewright store rollback {quote(found.key.kernel)} --key {found.key.digest[:10]}"
    back = el("p", "To let the one before stand again: ", el("code", command)) if len(stood) > 1 else None
    heads = ("generation", "since", "config", "time", "gain", "")
    return parts.section("History", table("Generations", heads, rows, numbers=(3,)), back)


def _fields(key: Key) -> Markup:
    rows = [(name, value) for name, value in flatten(key).items()]
    listed = table("Fields of the key", ("field", "value"), [("digest", el("code", key.digest)), *rows])
    return parts.section("Key", el("details", el("summary", "What must be equal to reuse this decision"), listed))
