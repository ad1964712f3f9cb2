"""Races: the transcripts that decisions rest on, judged once more and drawn."""

from __future__ import annotations

from typing import Any

from tunewright.measure.race import Race, retold
from tunewright.report import raceplot, words
from tunewright.report.pages import parts
from tunewright.report.pages.frame import Query, Sheet
from tunewright.report.pages.markup import Markup, data, el, link, put, table
from tunewright.report.pages.views import NotThere, Views
from tunewright.sharing.transcripts import Transcript

MOST_ROWS = 300
MOST_POINTS = 400
"""Rounds of one contestant that are drawn; of longer races, so many spread over all."""


def races(views: Views, query: Query) -> Sheet:
    """The list of races."""
    raced = views.raced()
    if not raced:
        said = "No race is written down here; from now on those of `tunewright tune` are."
        return Sheet("Races", parts.empty(said), "/races")
    rows = [
        (link(one.key.kernel, "/race", key=one.key.digest), parts.sizes(one.key), str(one.key.device),
         parts.config(one.config), parts.time_of(one.evidence), parts.gain_of(one),
         parts.moment(one.evidence.when if one.evidence else ""))
        for one in raced[:MOST_ROWS]
    ]  # fmt: skip
    about = "Races whose every round is written down, so that anyone can judge them again."
    heads = ("kernel", "arguments", "device", "chosen", "time", "gain", "when")
    return Sheet("Races", put([el("p", about, class_="about"), table("Races", heads, rows, numbers=(4,))]), "/races")


def race(views: Views, query: Query) -> Sheet:
    """One race: round by round, and how everyone stood at the end."""
    key = views.key(query.get("key", ""))
    told = views.transcript(key)
    if told is None:
        raise NotThere(f"The race for {key.kernel} {parts.sizes(key)} is not written down.")
    left = {place: after for place, after in enumerate(told.left) if after is not None}
    ran = retold(told.times(), left, told.margin)
    tracks = raceplot.tracks(ran, [str(config) for config in told.configs])
    drawn = parts.component("race", data(_plain(ran, tracks)))
    near = parts.ways([parts.key_link(key, "What is decided")])
    body = [_about(told, ran), near, drawn, _standings(told, ran, tracks)]
    return Sheet(f"The race for {key.kernel} {parts.sizes(key)}", put(body), "/races")


def _about(told: Transcript, ran: Race) -> Markup:
    rounds = max(told.counts)
    facts = [
        (f"{len(told.configs):,}", "contestants", f"{sum(after is not None for after in told.left):,} eliminated"),
        (f"{rounds:,}", "rounds", f"{sum(told.counts):,} visits"),
        (f"{len(ran.ties) - 1:,}", "tie with the leader", f"within {told.margin:.1%}"),
        (
            words.seconds(raceplot.seconds(ran, told.chosen)),
            "the chosen one",
            f"{told.clock} clock" if told.clock else None,
        ),
    ]
    complaints = told.conditions.complaints() if told.conditions else []
    return put(
        [parts.cards(facts), el("p", f"Meanwhile, {'; '.join(complaints)}.", class_="note") if complaints else None]
    )


def _standings(told: Transcript, ran: Race, tracks: list[raceplot.Track]) -> Markup:
    names = {told.chosen: "chosen", told.default: "default", told.incumbent: "stood before"}
    rows = []
    for place, (number, track) in enumerate(zip(raceplot.order(ran), tracks, strict=True), 1):
        end = track.standing
        known = f"{end.low:.4g} to {end.high:.4g}" if raceplot.bounded(end) else "too few rounds"
        left = f"{end.left} rounds, then out" if end.left is not None else "to the end"
        rows.append((f"{place}", parts.config(track.name), names.get(number, ""), words.seconds(track.seconds),
                     f"{end.ratio:.4g}x", known, left))  # fmt: skip
    heads = ("place", "config", "", "time", "over the leader", "interval (95 %)", "stayed")
    return parts.section("At the end", table("Standings", heads, rows, numbers=(3, 4, 5)))


def _plain(ran: Race, tracks: list[raceplot.Track]) -> dict[str, Any]:
    """What is drawn: ratios on a scale that shows a hundredth and a hundredfold at once."""
    scale = raceplot.Scale(1 + ran.margin)
    every = [scale(x) for track in tracks for x in (*track.centres, track.standing.ratio)]
    low, high = min(every), max(every)
    marks = scale.marks(low - 0.5, high + 0.5)
    return {
        "band": [-scale(1 + ran.margin), scale(1 + ran.margin)],
        "marks": list(marks),
        "labels": list(marks.values()),
        "tracks": [_track(track, scale) for track in tracks],
    }


def _track(track: raceplot.Track, scale: raceplot.Scale) -> dict[str, Any]:
    step = -(-len(track.ratios) // MOST_POINTS)
    rounds = list(range(0, len(track.ratios), step))
    end = track.standing
    bounds = [scale(end.low), scale(end.high)] if raceplot.bounded(end) else None
    return {
        "name": track.name,
        "rounds": [place + 1 for place in rounds],
        "ratios": [round(scale(track.ratios[place]), 4) for place in rounds],
        "centres": [round(scale(track.centres[place]), 4) for place in rounds],
        "end": scale(end.ratio),
        "bounds": bounds,
        "left": end.left,
        "leads": track.leads,
        "said": f"{words.seconds(track.seconds)}, {end.ratio:.4g}x the leader",
    }
