"""A leaderboard: the candidates of one task, ranked by what their transcripts say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tunewright.referee.task import TaskError
from tunewright.referee.transcripts import RefereeTranscript
from tunewright.referee.verdict import FASTER, SLOWER, TIE
from tunewright.report.html_page import render_page, table
from tunewright.report.markup import el, join_markup

RANKED = (FASTER, TIE, SLOWER)


class LeaderboardRow(msgspec.Struct, frozen=True):
    """One candidate; `place` is None if it is not ranked. Candidates whose intervals overlap share a place."""

    place: int | None
    name: str
    outcome: str
    ratio: float | None
    low: float | None
    high: float | None
    reason: str

    @property
    def shown(self) -> str:
        """The ratio with its interval."""
        if self.ratio is None or self.low is None or self.high is None:
            return ""
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


def rank(transcripts: Sequence[RefereeTranscript]) -> list[LeaderboardRow]:
    """Returns candidates, the fastest first; raises TaskError if they are not of one task and one set of baselines."""
    if len({transcript.task_digest for transcript in transcripts}) > 1:
        raise TaskError("these transcripts are of different tasks; rank those of one task")
    if len({tuple(party.digest for party in transcript.parties[1:]) for transcript in transcripts}) > 1:
        raise TaskError("these transcripts have different baselines; rank those with the same")
    ranked = sorted((t for t in transcripts if t.verdict.outcome in RANKED), key=lambda t: t.verdict.ratio or 1.0)
    rows: list[LeaderboardRow] = []
    place, reach = 0, 0.0
    for count, transcript in enumerate(ranked, 1):
        verdict = transcript.verdict
        if not place or (verdict.low or 0.0) > reach:
            place, reach = count, verdict.high or 0.0
        rows.append(_row(place, transcript))
    return rows + [_row(None, transcript) for transcript in transcripts if transcript.verdict.outcome not in RANKED]


def _row(place: int | None, transcript: RefereeTranscript) -> LeaderboardRow:
    verdict = transcript.verdict
    numbers = (verdict.ratio, verdict.low, verdict.high)
    return LeaderboardRow(place, transcript.parties[0].name, verdict.outcome, *numbers, verdict.reason)


def leaderboard_page(transcripts: Sequence[RefereeTranscript], left_out: Mapping[str, str]) -> str:
    """Returns an HTML page with the ranking, and with what was left out."""
    rows = rank(transcripts)
    title = f"Leaderboard: {transcripts[0].task}" if transcripts else "Leaderboard"
    heads = ("place", "candidate", "verdict", "times the baseline's", "reason")
    cells = [
        ("" if row.place else "bad", [str(row.place or ""), row.name, row.outcome, row.shown, row.reason])
        for row in rows
    ]
    parts = [table(heads, cells)]
    if transcripts:
        names = ", ".join(party.name for party in transcripts[0].parties[1:])
        machines = sorted({transcript.machine for transcript in transcripts})
        parts.append(el("p", f"Baselines: {names}. Measured on: {'; '.join(machines)}."))
        parts.append(el("p", "Candidates whose intervals overlap share a place. Ratios of different machines differ."))
    if left_out:
        parts += [el("h2", "Left out"), table(("transcript", "why"), [("", list(item)) for item in left_out.items()])]
    return render_page(title, join_markup(parts))
