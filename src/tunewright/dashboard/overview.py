"""Overview: what is tuned, what it mean_gain, what is missing, what went stale."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log
from typing import Any

from tunewright.dashboard import components
from tunewright.dashboard.concerns import Concern, find_concerns
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.views import Views
from tunewright.model.decision import Decision
from tunewright.report import formatting
from tunewright.report.markup import Markup, el, join_markup, link, table
from tunewright.stores.statistics import MissRecord

MAX_ROWS = 200
"""Rows of a table on this page; kernels have their own pages."""

MAX_SHOWN = 12
"""Rows that are shown before a table is expanded."""


def overview(views: Views, query: Query) -> PageContent:
    """Renders the overview of a store."""
    decisions, concerns = views.decisions(), find_concerns(views)
    trials = sum(count.trials for count in views.trial_counts())
    mean_gain = geometric_mean([decision.evidence.gain for decision in decisions if decision.evidence])
    misses = views.misses()
    facts = (
        (
            f"{len(views.kernels()):,}",
            "kernels",
            formatting.counted(len({str(d.key.device) for d in decisions}), "device"),
        ),
        (f"{len(decisions):,}", "decisions", f"{sum(d.evidence is not None for d in decisions):,} with evidence"),
        (f"{trials:,}", "trials", formatting.counted(len(views.trial_counts()), "journal")),
        (formatting.ratio(mean_gain) if mean_gain else "-", "typical gain", "geometric mean over the defaults"),
        (
            f"{len(misses):,}",
            "missing",
            f"{formatting.clock(sum(miss.seconds for miss in misses))} at stake" if misses else None,
        ),
        (f"{len(concerns):,}", "to look at", None),
    )
    if not decisions and not trials and not misses:
        body = [components.empty_note("The store is empty. Tune a kernel:", "tunewright tune FILE.py:NAME")]
    else:
        body = [_kernels(views), _coverage(views), _misses(misses), _concerns(concerns)]
    return PageContent("What is tuned", join_markup([components.cards(facts), *body]))


def geometric_mean(gains: Sequence[float | None]) -> float | None:
    """Returns the geometric mean of the known gains."""
    logs = [log(gain) for gain in gains if gain]
    return exp(sum(logs) / len(logs)) if logs else None


def _kernels(views: Views) -> Markup:
    """Renders a row for each kernel: decisions, trials, gain and misses."""
    decisions: dict[str, list[Decision]] = defaultdict(list)
    trials: dict[str, int] = defaultdict(int)
    missed_seconds: dict[str, float] = defaultdict(float)
    for decision in views.decisions():
        decisions[decision.key.kernel].append(decision)
    for count in views.trial_counts():
        trials[count.key.kernel] += count.trials
    for miss in views.misses():
        missed_seconds[miss.key.kernel] += miss.seconds
    names = views.kernels()
    rows = []
    for name in names[:MAX_ROWS]:
        own = decisions[name]
        gain = geometric_mean([decision.evidence.gain for decision in own if decision.evidence])
        level = components.gain_level(gain) or 0
        label = f"typical gain {formatting.ratio(gain)}" if gain else "no gain known"
        rows.append((
            link(name, "/kernel", name=name), f"{len(own):,}", f"{len({str(d.key.device) for d in own}):,}",
            f"{trials[name]:,}", formatting.ratio(gain) if gain else "-",
            components.bar(level / components.LEVELS, label),
            formatting.clock(missed_seconds[name]) if missed_seconds[name] else "-",
        ))  # fmt: skip
    heads = ("kernel", "decisions", "devices", "trials", "typical gain", "", "at stake")
    about = "Gains are over the default, by geometric mean; a full bar is a factor of 10."
    if len(names) > MAX_ROWS:
        about += f" The first {MAX_ROWS} of {len(names):,} are listed."
    return components.section("Kernels", table("Kernels", heads, rows, numbers=(1, 2, 3, 4, 6)), about=about)


def _coverage(views: Views) -> Markup:
    """Renders by which tier look-ups are answered."""
    rows = [("exact", f"{len(views.decisions()):,}", "-", "-", "")]
    total = sum(miss.seconds for miss in views.misses()) or 1.0
    for tier, misses in views.coverage().items():
        seconds, calls = sum(miss.seconds for miss in misses), sum(miss.calls for miss in misses)
        bar = components.bar(seconds / total, f"{seconds / total:.0%} of the time at stake")
        rows.append((str(tier), f"{len(misses):,}", f"{calls:,}", formatting.clock(seconds) if misses else "-", bar))
    heads = ("tier", "keys", "calls", "time", "share of the time at stake")
    about = "The tier that answers a frozen process: keys with a decision, and keys that were looked up without one."
    return components.section("Coverage by tier", table("Coverage", heads, rows, numbers=(1, 2, 3)), about=about)


def _misses(misses: Sequence[MissRecord]) -> Markup:
    if not misses:
        note = components.empty_note(
            "No misses are recorded. To record them, run programs with", "TUNEWRIGHT_MODE=record"
        )
        return components.section("Missing", note)
    longest = misses[0].seconds or 1.0
    rows = [
        (link(miss.key.kernel, "/kernel", name=miss.key.kernel), components.argument_sizes(miss.key),
         str(miss.key.device), f"{miss.calls:,}", formatting.clock(miss.seconds),
         components.bar(miss.seconds / longest, formatting.clock(miss.seconds)))
        for miss in misses[:MAX_ROWS]
    ]  # fmt: skip
    heads = ("kernel", "arguments", "device", "calls", "time", "")
    command = el("code", "tunewright tune --recorded FILE.py")
    about = join_markup(["Calls without a decision, by time at stake; ", command, " tunes them."])
    tables = _expandable_table("Misses by time at stake", heads, rows, numbers=(3, 4))
    return components.section("Missing", tables, about=about)


def _concerns(concerns: Sequence[Concern]) -> Markup:
    if not concerns:
        note = components.empty_note("Nothing: no decision is stale, quarantined or interrupted.")
        return components.section("To look at", note)
    about = (
        "Quarantined: found bad on this machine. Stale: there is a later decision for another source or toolchain. "
        "Interrupted and noisy decisions have weak evidence."
    )
    rows = [
        (components.key_link(concern.decision.key), concern.decision.key.kernel,
         components.argument_sizes(concern.decision.key),
         el("span", concern.kind, class_=f"tag {concern.kind.replace(' ', '-')}"), concern.why)
        for concern in concerns[:MAX_ROWS]
    ]  # fmt: skip
    heads = ("key", "kernel", "arguments", "what", "why")
    return components.section("To look at", _expandable_table("Decisions to look at", heads, rows), about=about)


def _expandable_table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[int] = ()
) -> Markup:
    """Renders the first rows, and the others in a part that can be expanded."""
    rest = rows[MAX_SHOWN:]
    more = (
        el("details", el("summary", f"{len(rest)} more"), table("More", heads, rest, numbers=numbers)) if rest else None
    )
    return join_markup([table(caption, heads, rows[:MAX_SHOWN], numbers=numbers), more])
