"""Pages of races: transcripts are judged again and plotted."""

from __future__ import annotations

from typing import Any

from tunewright.dashboard import components
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.views import PageNotFound, Views
from tunewright.measure.race import Race, replay_race
from tunewright.report import formatting, race_plot
from tunewright.report.markup import Markup, el, join_markup, link, script_data, table
from tunewright.stores.transcripts import Transcript

MAX_ROWS = 300
MAX_POINTS = 400
"""Rounds of one contestant that are plotted; of longer races, positions n-th."""


def races(views: Views, query: Query) -> PageContent:
    """Renders the list of races."""
    decisions = views.raced_decisions()
    if not decisions:
        note = components.empty_note("No races are recorded; `tunewright tune` records them.")
        return PageContent("Races", note, "/races")
    rows = [
        (link(decision.key.kernel, "/race", key=decision.key.digest), components.argument_sizes(decision.key),
         str(decision.key.device), components.config_code(decision.config), components.time_of(decision),
         components.gain_of(decision), components.timestamp(decision.evidence.when if decision.evidence else ""))
        for decision in decisions[:MAX_ROWS]
    ]  # fmt: skip
    about = "Races with a record of every round, so that anyone can judge them again."
    heads = ("kernel", "arguments", "device", "chosen", "time", "gain", "when")
    body = join_markup([el("p", about, class_="about"), table("Races", heads, rows, numbers=(4,))])
    return PageContent("Races", body, "/races")


def race(views: Views, query: Query) -> PageContent:
    """Renders one race: round by round, and the final standings."""
    key = views.key(query.get("key", ""))
    transcript = views.transcript(key)
    if transcript is None:
        raise PageNotFound(f"The race for {key.kernel} {components.argument_sizes(key)} is not recorded.")
    left = {number: rounds for number, rounds in enumerate(transcript.left) if rounds is not None}
    replayed = replay_race(transcript.times(), left, transcript.margin)
    tracks = race_plot.make_tracks(replayed, [str(config) for config in transcript.configs])
    plot = components.script_component("race", script_data(_plain(replayed, tracks)))
    links = components.link_list([components.key_link(key, "What is decided")])
    body = [_about(transcript, replayed), links, plot, _standings(transcript, replayed, tracks)]
    return PageContent(f"The race for {key.kernel} {components.argument_sizes(key)}", join_markup(body), "/races")


def _about(transcript: Transcript, replayed: Race) -> Markup:
    eliminated = sum(rounds is not None for rounds in transcript.left)
    facts = [
        (f"{len(transcript.configs):,}", "contestants", f"{eliminated:,} eliminated"),
        (f"{max(transcript.counts):,}", "rounds", f"{sum(transcript.counts):,} samples"),
        (f"{len(replayed.ties) - 1:,}", "tie with the leader", f"within {transcript.margin:.1%}"),
        (
            formatting.seconds(race_plot.contestant_seconds(replayed, transcript.chosen)),
            "the chosen one",
            f"{transcript.clock} clock" if transcript.clock else None,
        ),
    ]
    complaints = transcript.conditions.complaints() if transcript.conditions else []
    return join_markup(
        [
            components.cards(facts),
            el("p", f"Meanwhile, {'; '.join(complaints)}.", class_="note") if complaints else None,
        ]
    )


def _standings(transcript: Transcript, replayed: Race, tracks: list[race_plot.RaceTrack]) -> Markup:
    names = {transcript.chosen: "chosen", transcript.default: "default", transcript.incumbent: "incumbent"}
    rows = []
    for rank, (number, track) in enumerate(zip(race_plot.ranked_order(replayed), tracks, strict=True), 1):
        end = track.standing
        interval = f"{end.low:.4g} to {end.high:.4g}" if race_plot.has_interval(end) else "too few rounds"
        stayed = f"{end.left} rounds, then out" if end.left is not None else "to the end"
        rows.append((f"{rank}", components.config_code(track.name), names.get(number, ""),
                     formatting.seconds(track.seconds), f"{end.ratio:.4g}x", interval, stayed))  # fmt: skip
    heads = ("place", "config", "", "time", "over the leader", "interval (95 %)", "stayed")
    return components.section("At the end", table("Standings", heads, rows, numbers=(3, 4, 5)))


def _plain(replayed: Race, tracks: list[race_plot.RaceTrack]) -> dict[str, Any]:
    """Returns the data of the plot: ratios on a scale that shows both 1 % and a factor of 100."""
    scale = race_plot.RatioScale(1 + replayed.margin)
    positions = [scale(x) for track in tracks for x in (*track.centers, track.standing.ratio)]
    low, high = min(positions), max(positions)
    marks = scale.marks(low - 0.5, high + 0.5)
    return {
        "band": [-scale(1 + replayed.margin), scale(1 + replayed.margin)],
        "marks": list(marks),
        "labels": list(marks.values()),
        "tracks": [_track(track, scale) for track in tracks],
    }


def _track(track: race_plot.RaceTrack, scale: race_plot.RatioScale) -> dict[str, Any]:
    step = -(-len(track.ratios) // MAX_POINTS)
    rounds = list(range(0, len(track.ratios), step))
    end = track.standing
    bounds = [scale(end.low), scale(end.high)] if race_plot.has_interval(end) else None
    return {
        "name": track.name,
        "rounds": [round_index + 1 for round_index in rounds],
        "ratios": [round(scale(track.ratios[round_index]), 4) for round_index in rounds],
        "centres": [round(scale(track.centers[round_index]), 4) for round_index in rounds],
        "end": scale(end.ratio),
        "bounds": bounds,
        "left": end.left,
        "leads": track.leads,
        "said": f"{formatting.seconds(track.seconds)}, {end.ratio:.4g}x the leader",
    }
