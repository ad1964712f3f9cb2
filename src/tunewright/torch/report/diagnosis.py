"""Diagnosis of a compiled model: symptoms ranked by the time at stake, as values, text and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tunewright.report import formatting, html_page
from tunewright.report.markup import Markup, el, join_markup


class Cause(StrEnum):
    """What costs time or precision."""

    PRINT = "print"
    ITEM = "item"
    NUMPY = "numpy"
    BRANCH = "branch"
    SHAPE = "shape"
    CALL = "unsupported call"
    FUNCTION = "autograd function"
    DISABLED = "disabled"
    SIZE = "size"
    VALUE = "value"
    DTYPE = "dtype"
    GRADIENT = "grad mode"
    GUARD = "guard"
    BYPASS = "cache bypass"
    MISS = "cache miss"
    INERT = "inert option"
    PROMOTION = "promotion"
    PARAMETER = "parameter cast"
    ROUND_TRIP = "round trip"
    SMALL = "small batch"
    NUMERICS = "numerics"


KINDS = {
    "graph break": (Cause.PRINT, Cause.ITEM, Cause.NUMPY, Cause.BRANCH, Cause.SHAPE, Cause.CALL, Cause.FUNCTION,
                    Cause.DISABLED),
    "recompilation": (Cause.SIZE, Cause.VALUE, Cause.DTYPE, Cause.GRADIENT, Cause.GUARD),
    "cache": (Cause.BYPASS, Cause.MISS),
    "option": (Cause.INERT,),
    "cast": (Cause.PROMOTION, Cause.PARAMETER, Cause.ROUND_TRIP),
    "overhead": (Cause.SMALL,),
    "numerics": (Cause.NUMERICS,),
}  # fmt: skip
"""Causes by the kind of symptom they lead to."""


@dataclass(frozen=True)
class CodeLocation:
    """A line of a source file; line 0 where only the file is known."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def code(self) -> str:
        """Returns the line itself; empty where it cannot be read."""
        try:
            lines = Path(self.file).read_text().splitlines()
        except (OSError, ValueError):
            return ""
        return lines[self.line - 1].strip() if 0 < self.line <= len(lines) else ""


@dataclass(frozen=True)
class Symptom:
    """One thing that is wrong: where, what, what to change, and the seconds it costs once and in each call."""

    cause: Cause
    place: CodeLocation
    wrong: str
    remedy: str
    once: float = 0.0
    each: float = 0.0

    @property
    def kind(self) -> str:
        """The kind of symptom that the cause leads to."""
        return next(kind for kind, causes in KINDS.items() if self.cause in causes)

    def stake(self, calls: int) -> float:
        """Returns the seconds it costs a process that makes so many calls."""
        return self.once + calls * self.each


@dataclass(frozen=True)
class LayerError:
    """The error of a layer's results against double precision, in eager mode and compiled."""

    layer: str
    eager: float
    compiled: float


@dataclass(frozen=True)
class Diagnosis:
    """Symptoms, phases of compiling, times of a call, errors by layer, and notes on what was not examined."""

    name: str
    calls: int
    symptoms: tuple[Symptom, ...]
    phases: tuple[tuple[str, float], ...] = ()
    times: tuple[tuple[str, float], ...] = ()
    drifts: tuple[LayerError, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def healthy(self) -> bool:
        """Whether there are no symptoms."""
        return not self.symptoms

    def of(self, cause: Cause) -> list[Symptom]:
        """Returns the symptoms with one cause."""
        return [symptom for symptom in self.symptoms if symptom.cause is cause]


def rank(symptoms: Sequence[Symptom], calls: int) -> tuple[Symptom, ...]:
    """Returns symptoms by the time at stake; wrong results come first, since no speed makes up for them."""
    return tuple(sorted(symptoms, key=lambda one: (one.cause is not Cause.NUMERICS, -one.stake(calls))))


def as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Returns a diagnosis as one JSON object, with the kind and the stake of each symptom."""
    return {
        "name": diagnosis.name,
        "calls": diagnosis.calls,
        "symptoms": [
            {**asdict(symptom), "kind": symptom.kind, "stake": symptom.stake(diagnosis.calls)}
            for symptom in diagnosis.symptoms
        ],
        "phases": dict(diagnosis.phases),
        "times": dict(diagnosis.times),
        "drifts": [asdict(error) for error in diagnosis.drifts],
        "notes": list(diagnosis.notes),
    }


def describe(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields a diagnosis as lines of text."""
    count = formatting.counted(len(diagnosis.symptoms), "symptom")
    yield f"{diagnosis.name}: {count if diagnosis.symptoms else 'healthy'}"
    for number, symptom in enumerate(diagnosis.symptoms, 1):
        yield ""
        yield f"{number}. {symptom.kind}: {symptom.cause}   {describe_cost(symptom, diagnosis.calls)}"
        yield f"   {symptom.place}   {symptom.place.code()}".rstrip()
        yield f"   {symptom.wrong}"
        yield f"   -> {symptom.remedy}"
    for heading, rows in (("compiling", diagnosis.phases), ("a call", diagnosis.times)):
        if rows:
            yield ""
            yield f"{heading}: " + ", ".join(f"{name} {formatting.seconds(seconds)}" for name, seconds in rows)
    if diagnosis.drifts:
        yield ""
        yield "error against double precision (eager, compiled):"
        yield from (f"   {error.layer}  {error.eager:.1e}  {error.compiled:.1e}" for error in diagnosis.drifts)
    for note in diagnosis.notes:
        yield ""
        yield f"note: {note}"


def describe_cost(symptom: Symptom, calls: int) -> str:
    """Returns what a symptom costs; empty where it costs no time."""
    parts = [f"{formatting.seconds(symptom.once)} once"] if symptom.once else []
    parts += [f"{formatting.seconds(symptom.each)} a call"] if symptom.each else []
    if not parts:
        return ""
    return f"{' + '.join(parts)} = {formatting.seconds(symptom.stake(calls))} in {formatting.counted(calls, 'call')}"


def render_page(diagnosis: Diagnosis) -> str:
    """Returns a diagnosis as one self-contained HTML page."""
    count = formatting.counted(len(diagnosis.symptoms), "symptom")
    ranked = el("p", f"{count}, ranked by the time at stake in {diagnosis.calls:,} calls.")
    body: list[Any] = [ranked if diagnosis.symptoms else el("p", "Nothing was found.", class_="well")]
    body += [_article(symptom, diagnosis.calls) for symptom in diagnosis.symptoms]
    body.append(Markup(html_page.bars("Where compiling spent its time", diagnosis.phases)))
    body.append(Markup(html_page.bars("A call", diagnosis.times)))
    if diagnosis.drifts:
        rows = [("layer", "eager", "compiled")]
        rows += [(error.layer, f"{error.eager:.1e}", f"{error.compiled:.1e}") for error in diagnosis.drifts]
        body.append(el("h2", "Error against double precision"))
        body.append(el("table", (el("tr", (el("td", cell) for cell in row)) for row in rows)))
    body += [el("p", f"Note: {note}") for note in diagnosis.notes]
    return html_page.render_page(f"{diagnosis.name}: what torch.compile makes of it", join_markup(body))


def _article(symptom: Symptom, calls: int) -> Markup:
    code = symptom.place.code()
    return el(
        "article",
        el("span", describe_cost(symptom, calls), class_="cost"),
        el("b", f"{symptom.kind}: {symptom.cause}"),
        el("div", symptom.place, class_="place"),
        el("pre", code) if code else None,
        el("p", symptom.wrong),
        el("p", symptom.remedy, class_="do"),
        class_=None if symptom.cause is Cause.NUMERICS else "slow",
    )
