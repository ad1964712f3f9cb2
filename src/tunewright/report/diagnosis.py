"""Diagnosis: what a doctor found wrong with a compiled model, ranked by the time at stake; as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Any

from tunewright.report import document, words


class Cause(StrEnum):
    """What kind of thing costs time, or digits."""

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
"""Causes by what they bring about."""


@dataclass(frozen=True)
class Place:
    """A line of somebody's source; line 0 where only the file is known."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def code(self) -> str:
        """The line itself; empty where it cannot be read."""
        try:
            lines = Path(self.file).read_text().splitlines()
        except (OSError, ValueError):
            return ""
        return lines[self.line - 1].strip() if 0 < self.line <= len(lines) else ""


@dataclass(frozen=True)
class Symptom:
    """One thing that is wrong: where, what, what to change, and the seconds it costs once and in each call."""

    cause: Cause
    place: Place
    wrong: str
    remedy: str
    once: float = 0.0
    each: float = 0.0

    @property
    def kind(self) -> str:
        """What the cause brings about."""
        return next(kind for kind, causes in KINDS.items() if self.cause in causes)

    def stake(self, calls: int) -> float:
        """The seconds it costs a process that makes so many calls."""
        return self.once + calls * self.each


@dataclass(frozen=True)
class Drift:
    """How far results of a layer are from those in double precision, run by Python and compiled."""

    layer: str
    eager: float
    compiled: float


@dataclass(frozen=True)
class Diagnosis:
    """What was found: symptoms, the phases of compiling, times of a call, errors by layer, what was not looked at."""

    name: str
    calls: int
    symptoms: tuple[Symptom, ...]
    phases: tuple[tuple[str, float], ...] = ()
    times: tuple[tuple[str, float], ...] = ()
    drifts: tuple[Drift, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.symptoms

    def of(self, cause: Cause) -> list[Symptom]:
        """The symptoms with one cause."""
        return [symptom for symptom in self.symptoms if symptom.cause is cause]


def ranked(symptoms: Sequence[Symptom], calls: int) -> tuple[Symptom, ...]:
    """Wrong results first, since no speed makes up for them; then by the time at stake."""
    return tuple(sorted(symptoms, key=lambda one: (one.cause is not Cause.NUMERICS, -one.stake(calls))))


def plain(found: Diagnosis) -> dict[str, Any]:
    """A diagnosis as one JSON object, with the kind and the stake of each symptom."""
    symptoms = [{**asdict(one), "kind": one.kind, "stake": one.stake(found.calls)} for one in found.symptoms]
    rest = {"phases": dict(found.phases), "times": dict(found.times), "drifts": [asdict(one) for one in found.drifts]}
    return {"name": found.name, "calls": found.calls, "symptoms": symptoms, **rest, "notes": list(found.notes)}


def told(found: Diagnosis) -> Iterator[str]:
    """A diagnosis as lines of text."""
    yield f"{found.name}: {words.counted(len(found.symptoms), 'symptom') if found.symptoms else 'healthy'}"
    for number, symptom in enumerate(found.symptoms, 1):
        yield ""
        yield f"{number}. {symptom.kind}: {symptom.cause}   {cost(symptom, found.calls)}"
        yield f"   {symptom.place}   {symptom.place.code()}".rstrip()
        yield f"   {symptom.wrong}"
        yield f"   -> {symptom.remedy}"
    for head, rows in (("compiling", found.phases), ("a call", found.times)):
        if rows:
            yield ""
            yield f"{head}: " + ", ".join(f"{name} {words.seconds(taken)}" for name, taken in rows)
    if found.drifts:
        yield ""
        yield "error against double precision (eager, compiled):"
        yield from (f"   {one.layer}  {one.eager:.1e}  {one.compiled:.1e}" for one in found.drifts)
    for note in found.notes:
        yield ""
        yield f"note: {note}"


def cost(symptom: Symptom, calls: int) -> str:
    """What a symptom costs, in words; empty where it costs no time."""
    parts = [f"{words.seconds(symptom.once)} once"] if symptom.once else []
    parts += [f"{words.seconds(symptom.each)} a call"] if symptom.each else []
    if not parts:
        return ""
    return f"{' + '.join(parts)} = {words.seconds(symptom.stake(calls))} in {words.counted(calls, 'call')}"


def page(found: Diagnosis) -> str:
    """A diagnosis as a page that needs nothing else."""
    count = words.counted(len(found.symptoms), "symptom")
    head = f"<p>{count}, ranked by the time at stake in {found.calls:,} calls.</p>"
    body = head if found.symptoms else '<p class="well">Nothing was found.</p>'
    body += "".join(_article(symptom, found.calls) for symptom in found.symptoms)
    body += document.bars("Where compiling spent its time", found.phases) + document.bars("A call", found.times)
    if found.drifts:
        rows = "".join(f"<tr><td>{escape(one.layer)}<td>{one.eager:.1e}<td>{one.compiled:.1e}" for one in found.drifts)
        body += f"<h2>Error against double precision</h2><table><tr><td>layer<td>eager<td>compiled{rows}</table>"
    body += "".join(f"<p>Note: {escape(note)}</p>" for note in found.notes)
    return document.whole(f"{found.name}: what torch.compile makes of it", body)


def _article(symptom: Symptom, calls: int) -> str:
    kind = "" if symptom.cause is Cause.NUMERICS else ' class="slow"'
    code = f"<pre>{escape(symptom.place.code())}</pre>" if symptom.place.code() else ""
    return (
        f'<article{kind}><span class="cost">{escape(cost(symptom, calls))}</span><b>{symptom.kind}: {symptom.cause}</b>'
        f'<div class="place">{escape(str(symptom.place))}</div>{code}<p>{escape(symptom.wrong)}</p>'
        f'<p class="do">{escape(symptom.remedy)}</p></article>'
    )
