"""Overview: what is tuned, what it gained, what is missing, what went stale."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log

from tunewright.model.decision import Decision
from tunewright.report import words
from tunewright.report.pages import parts
from tunewright.report.pages.concerns import Concern, concerns
from tunewright.report.pages.frame import Query, Sheet
from tunewright.report.pages.markup import Markup, el, link, put, table
from tunewright.report.pages.views import Views
from tunewright.sharing.records import Want

MOST_ROWS = 200
"""Rows of a list on this page; kernels have pages of their own."""

FIRST = 12
"""Concerns and misses that are shown at once."""


def overview(views: Views, query: Query) -> Sheet:
    """The first page."""
    decisions, worries = views.decisions(), concerns(views)
    trials = sum(tally.trials for tally in views.tallies())
    gained = typical([decision.evidence.gain for decision in decisions if decision.evidence])
    wants = views.wants()
    facts = (
        (f"{len(views.kernels()):,}", "kernels", words.counted(len({str(d.key.device) for d in decisions}), "device")),
        (f"{len(decisions):,}", "decisions", f"{sum(d.evidence is not None for d in decisions):,} with evidence"),
        (f"{trials:,}", "trials", words.counted(len(views.tallies()), "journal")),
        (words.ratio(gained) if gained else "-", "typical gain", "geometric mean over the defaults"),
        (f"{len(wants):,}", "missing", f"{words.clock(sum(w.seconds for w in wants))} at stake" if wants else None),
        (f"{len(worries):,}", "to look at", None),
    )
    if not decisions and not trials and not wants:
        body = [parts.empty("Nothing is here yet. Tune a kernel:", "tunewright tune FILE.py:NAME")]
    else:
        body = [_kernels(views), _coverage(views), _misses(wants), _concerned(worries)]
    return Sheet("What is tuned", put([parts.cards(facts), *body]))


def typical(gains: Sequence[float | None]) -> float | None:
    """The geometric mean of the gains that are known."""
    known = [log(gain) for gain in gains if gain]
    return exp(sum(known) / len(known)) if known else None


def _kernels(views: Views) -> Markup:
    """A row a kernel: what is decided, tried, gained, missing."""
    decided: dict[str, list[Decision]] = defaultdict(list)
    tried: dict[str, int] = defaultdict(int)
    missed: dict[str, float] = defaultdict(float)
    for decision in views.decisions():
        decided[decision.key.kernel].append(decision)
    for tally in views.tallies():
        tried[tally.key.kernel] += tally.trials
    for want in views.wants():
        missed[want.key.kernel] += want.seconds
    names = views.kernels()
    rows = []
    for name in names[:MOST_ROWS]:
        own = decided[name]
        gain = typical([decision.evidence.gain for decision in own if decision.evidence])
        share = parts.gain_level(gain)
        drawn = parts.bar((share or 0) / parts.LEVELS, f"typical gain {words.ratio(gain)}" if gain else "no gain known")
        rows.append((
            link(name, "/kernel", name=name), f"{len(own):,}", f"{len({str(d.key.device) for d in own}):,}",
            f"{tried[name]:,}", words.ratio(gain) if gain else "-", drawn,
            words.clock(missed[name]) if missed[name] else "-",
        ))  # fmt: skip
    heads = ("kernel", "decisions", "devices", "trials", "typical gain", "", "at stake")
    more = f" The first {MOST_ROWS} of {len(names):,} are listed." if len(names) > MOST_ROWS else ""
    about = f"Gains are over the default, by geometric mean; a full bar is tenfold.{more}"
    return parts.section("Kernels", table("Kernels", heads, rows, numbers=(1, 2, 3, 4, 6)), about=about)


def _coverage(views: Views) -> Markup:
    """What look-ups get: exact answers, or what is nearest."""
    rows = [("exact", f"{len(views.decisions()):,}", "-", "-", "")]
    total = sum(want.seconds for want in views.wants()) or 1.0
    for tier, wants in views.coverage().items():
        seconds, calls = sum(want.seconds for want in wants), sum(want.calls for want in wants)
        drawn = parts.bar(seconds / total, f"{seconds / total:.0%} of the time at stake")
        rows.append((str(tier), f"{len(wants):,}", f"{calls:,}", words.clock(seconds) if wants else "-", drawn))
    heads = ("tier", "keys", "calls", "seconds in them", "share of what is at stake")
    about = (
        "By which tier a frozen process is answered: keys that are decided, and those that were asked for and are not."
    )
    return parts.section("Coverage by tier", table("Coverage", heads, rows, numbers=(1, 2, 3)), about=about)


def _misses(wants: Sequence[Want]) -> Markup:
    if not wants:
        said = parts.empty(
            "Nothing is recorded as missing. To find out what is, run programs with", "TUNEWRIGHT_MODE=record"
        )
        return parts.section("Missing", said)
    most = wants[0].seconds or 1.0
    rows = [
        (link(want.key.kernel, "/kernel", name=want.key.kernel), parts.sizes(want.key), str(want.key.device),
         f"{want.calls:,}", words.clock(want.seconds), parts.bar(want.seconds / most, words.clock(want.seconds)))
        for want in wants[:MOST_ROWS]
    ]  # fmt: skip
    heads = ("kernel", "arguments", "device", "calls", "seconds", "")
    about = put(
        [
            "What was called without a decision, by time at stake; ",
            el("code", "tunewright tune --recorded"),
            " tunes it.",
        ]
    )
    listed = table("Misses by time at stake", heads, rows[:FIRST], numbers=(3, 4))
    rest = rows[FIRST:] and el(
        "details", el("summary", f"{len(rows) - FIRST} more"), table("More", heads, rows[FIRST:], numbers=(3, 4))
    )
    return parts.section("Missing", listed, rest, about=about)


def _concerned(worries: Sequence[Concern]) -> Markup:
    about = (
        "Quarantined: found bad on this machine. Stale: a later decision stands for another source or toolchain. "
        "Interrupted and noisy ones rest on little."
    )
    if not worries:
        return parts.section("To look at", parts.empty("Nothing: no decision is stale, quarantined or interrupted."))
    rows = [
        (parts.key_link(one.decision.key), one.decision.key.kernel, parts.sizes(one.decision.key),
         el("span", one.kind, class_=f"tag {one.kind.replace(' ', '-')}"), one.why)
        for one in worries[:MOST_ROWS]
    ]  # fmt: skip
    heads = ("key", "kernel", "arguments", "what", "why")
    rest = rows[FIRST:] and el(
        "details", el("summary", f"{len(rows) - FIRST} more"), table("More", heads, rows[FIRST:])
    )
    return parts.section("To look at", table("Decisions to look at", heads, rows[:FIRST]), rest, about=about)
