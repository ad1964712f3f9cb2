"""Kernel: what is decided for it, shape by device; and the evidence for revision key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from shlex import quote
from typing import Any

from tunewright.dashboard import components
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.overview import geometric_mean
from tunewright.dashboard.views import PageNotFound, Views
from tunewright.model.decision import Decision, Evidence
from tunewright.model.key import Key, flatten
from tunewright.report import formatting
from tunewright.report.markup import Markup, el, join_markup, link, table

MAX_ROWS = 300


def kernel(views: Views, query: Query) -> PageContent:
    """Renders the decisions, trials and misses of a kernel."""
    name = query.get("name", "")
    decisions, counts, misses = views.decisions(name), views.trial_counts(name), views.misses(name)
    if not (decisions or counts or misses):
        names = ", ".join(views.kernels()[:20]) or "none"
        raise PageNotFound(f"No kernel is called {name[:80]!r}; the store has {names}.")
    gain = geometric_mean([decision.evidence.gain for decision in decisions if decision.evidence])
    facts = (
        (f"{len(decisions):,}", "decisions", formatting.counted(len({str(d.key.device) for d in decisions}), "device")),
        (f"{sum(count.trials for count in counts):,}", "trials", formatting.counted(len(counts), "journal")),
        (formatting.ratio(gain) if gain else "-", "typical gain", "over the default"),
        (f"{len(misses):,}", "missing", None),
    )
    rows = [
        (components.key_link(decision.key), components.argument_sizes(decision.key), str(decision.key.device),
         components.config_code(decision.config), components.time_of(decision), components.gain_of(decision),
         components.timestamp(decision.evidence.when if decision.evidence else ""))
        for decision in decisions[:MAX_ROWS]
    ]  # fmt: skip
    heads = ("key", "arguments", "device", "config", "time", "gain", "when")
    body = [components.cards(facts)]
    if views.has_shapes(name):
        body.append(components.link_list([link("Shapes by configs, and a rule", "/shapes", name=name)]))
    if decisions:
        body += [_matrix(decisions), components.section("Decisions", table("Decisions", heads, rows, numbers=(4,)))]
    if counts:
        body.append(_journals(views, name))
    return PageContent(name, join_markup(body))


def _matrix(decisions: Sequence[Decision]) -> Markup:
    """Renders a table of shapes and devices; a cell has the time and gain, and a link to the evidence."""
    cells: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    for decision in decisions:
        cells[components.argument_sizes(decision.key), str(decision.key.device)].append(decision)
    shapes, devices = (list(dict.fromkeys(cell[i] for cell in cells)) for i in (0, 1))
    rows = [(shape, *(_cell(cells.get((shape, device), [])) for device in devices)) for shape in shapes[:MAX_ROWS]]
    matrix = table("Shapes by devices", ("arguments", *devices), rows)
    about = "The time of the chosen config, and its gain over the default; brighter cells gained more."
    return components.section("Shapes and devices", el("div", matrix, class_="heat"), about=about)


def _cell(decisions: Sequence[Decision]) -> Markup:
    if not decisions:
        return el("td", el("span", "-", class_="faint"))
    newest = max(decisions, key=lambda decision: decision.evidence.when if decision.evidence else "")
    evidence = newest.evidence
    time = formatting.measured(evidence.seconds, newest.key) if evidence else "decided"
    gain = formatting.ratio(evidence.gain) if evidence and evidence.gain else ""
    others = f" and {len(decisions) - 1} more" if len(decisions) > 1 else ""
    inside = components.key_link(newest.key, time), " ", el("small", gain, others)
    return el("td", inside, data_level=components.gain_level(evidence.gain if evidence else None))


def _journals(views: Views, name: str) -> Markup:
    rows = [
        (link(count.key.digest[:10], "/explore", key=count.key.digest), components.argument_sizes(count.key),
         str(count.key.device), f"{count.trials:,}", components.timestamp(count.last),
         link("strategies", "/strategies", key=count.key.digest))
        for count in views.trial_counts(name)[:MAX_ROWS]
    ]  # fmt: skip
    heads = ("explore", "arguments", "device", "trials", "last", "compare")
    return components.section("Journals", table("Journals", heads, rows, numbers=(3,)))


def decision(views: Views, query: Query) -> PageContent:
    """Renders the decision of a key, its evidence and its history."""
    key = views.key(query.get("key", ""))
    current = views.decision(key)
    title = f"{key.kernel} {components.argument_sizes(key)}"
    if current is None:
        body = [components.empty_note("Nothing is decided for this key."), _links(views, key)]
        return PageContent(title, join_markup([*body, _fields(key)]))
    evidence = current.evidence
    config = el("p", components.config_code(current.config), class_="lead")
    chosen = components.section("Chosen", config, _links(views, key))
    why = (
        _evidence(key, evidence)
        if evidence
        else components.section("Evidence", components.empty_note("There is no record of how it was current."))
    )
    return PageContent(title, join_markup([chosen, why, _history(views, current), _fields(key)]))


def _links(views: Views, key: Key) -> Markup:
    links = [link(f"All of {key.kernel}", "/kernel", name=key.kernel)]
    if any(count.key == key for count in views.trial_counts(key.kernel)):
        links += [link("Explore its space", "/explore", key=key.digest)]
        links += [link("Compare strategies on it", "/strategies", key=key.digest)]
    if views.transcript(key) is not None:
        links.append(link("See its race", "/race", key=key.digest))
    return components.link_list(links)


def _evidence(key: Key, evidence: Evidence) -> Markup:
    """Renders times, gains, ties and conditions."""
    facts: list[tuple[Any, Any, Any]] = [
        (formatting.measured(evidence.seconds, key), "per launch", _interval(key, evidence))
    ]
    if evidence.gain:
        facts.append((formatting.ratio(evidence.gain), "gain", formatting.gain(evidence.over_default, evidence.gain)))
    if evidence.end_to_end is not None:
        facts.append(
            (formatting.ratio(evidence.end_to_end.ratio), "of the program", formatting.gain(evidence.end_to_end))
        )
    facts.append((f"{evidence.trials:,}", "trials", f"{evidence.failures:,} failed"))
    if evidence.resolution is not None:
        facts.append((f"{evidence.resolution:.1%}", "resolution", "the smallest difference that the race resolves"))
    if evidence.remains is not None:
        facts.append((f"{evidence.remains:.1%}", "may remain", "as the strategy's model expects"))
    complaints = evidence.conditions.complaints() if evidence.conditions else []
    versions = ", ".join(f"{name} {value}" for name, value in evidence.versions.items())
    how = f"Found by {evidence.strategy or '?'} (seed {evidence.seed}), timed by the {evidence.clock or '?'} clock; "
    lines = [
        el("p", how, versions, "; ", components.timestamp(evidence.when)),
        *(el("p", note) for note in evidence.notes),
    ]
    if complaints:
        lines.append(el("p", f"While the finalists raced, {'; '.join(complaints)}.", class_="note"))
    if evidence.ties:
        rows = [
            (
                components.config_code(tie.config),
                formatting.measured(tie.seconds, key),
                _bits(tie.fingerprint, evidence),
            )
            for tie in evidence.ties
        ]
        lines.append(el("h3", "Within noise of the chosen config"))
        lines.append(table("Within noise of the chosen config", ("config", "time", "results"), rows, numbers=(1,)))
    return components.section("Evidence", components.cards(facts), lines)


def _interval(key: Key, evidence: Evidence) -> str:
    return f"{formatting.measured(evidence.low, key)} to {formatting.measured(evidence.high, key)}"


def _bits(fingerprint: str, evidence: Evidence) -> str:
    if not fingerprint or not evidence.fingerprint:
        return "not compared"
    return "bitwise equal" if fingerprint == evidence.fingerprint else "not bitwise equal"


def _history(views: Views, current: Decision) -> Markup | None:
    revisions = views.history(current.key)
    if not revisions:
        return None
    rows = [
        (f"{revision.number}", components.timestamp(revision.since), components.config_code(revision.decision.config),
         components.time_of(revision.decision), components.gain_of(revision.decision),
         "current" if revision is revisions[-1] else "")
        for revision in reversed(revisions)
    ]  # fmt: skip
    command = f"tunewright store rollback {quote(current.key.kernel)} --key {current.key.digest[:10]}"
    back = el("p", "To restore the previous revision: ", el("code", command)) if len(revisions) > 1 else None
    heads = ("revision", "since", "config", "time", "gain", "")
    return components.section("History", table("Revisions", heads, rows, numbers=(3,)), back)


def _fields(key: Key) -> Markup:
    rows = [(name, value) for name, value in flatten(key).items()]
    fields = table("Fields of the key", ("field", "value"), [("digest", el("code", key.digest)), *rows])
    return components.section("Key", el("details", el("summary", "What must be equal to reuse this decision"), fields))
