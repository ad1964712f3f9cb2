"""Reports: what other commands found, filed and shown: resources of GPUs, steps of schedules, models and journeys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any, NamedTuple

from tunewright.errors import SettingsError
from tunewright.report import journey_page, journey_style, steps, words
from tunewright.report import resources as panels_of
from tunewright.report.journey import Journey
from tunewright.report.pages import parts
from tunewright.report.pages.filed import Diagnosed, Filed, Judged, Prebuild, Sign, Step
from tunewright.report.pages.frame import Query, Sheet
from tunewright.report.pages.markup import Markup, el, link, put, table
from tunewright.report.pages.views import NotThere, Views

MOST_ROWS = 400
FILING = "tunewright report keep FILE.json"


class _Room(NamedTuple):
    """Where reports of a kind are shown, what they are about, and what makes one."""

    path: str
    title: str
    kind: str
    about: str
    maker: str


_RESOURCES = _Room(
    "/resources", "Resources", "resources",
    "Triton kernels compiled for GPUs that are not here: registers, spills, shared memory, occupancy.",
    "tunewright triton prebuild FILE.py:NAME --json > FILE.json",
)  # fmt: skip
_SCHEDULES = _Room(
    "/schedules", "Schedules", "schedule", "Schedules of MLIR payloads, step by step.",
    "tunewright mlir steps SCHEDULE PAYLOAD --json > FILE.json",
)  # fmt: skip
_JOURNEYS = _Room(
    "/torch", "Journeys", "journey", "Models on their way from Python to machine code, step by step.",
    "tunewright torch journey FILE.py:MAKE --out DIR --json > FILE.json",
)  # fmt: skip
_TORCH = _Room(
    "/torch", "Torch", "diagnosis", "What torch.compile makes of models: symptoms by the time at stake.",
    "tunewright torch doctor FILE.py:MAKE --json > FILE.json",
)  # fmt: skip


SHOWN = {room.kind: room.path for room in (_RESOURCES, _SCHEDULES, _TORCH, _JOURNEYS)}
"""Where reports of each kind are shown."""


def resources(views: Views, query: Query) -> Sheet:
    """What configs of Triton kernels take of GPUs, from prebuilds."""
    found = _asked(views, query, _RESOURCES)
    return Sheet(found.title, _resources(found.said), _RESOURCES.path) if found else _listed(views, _RESOURCES)


def schedules(views: Views, query: Query) -> Sheet:
    """What each step of a schedule did to a program."""
    found = _asked(views, query, _SCHEDULES)
    return Sheet(found.title, _steps(found.said), _SCHEDULES.path) if found else _listed(views, _SCHEDULES)


def torch(views: Views, query: Query) -> Sheet:
    """What a doctor found wrong with compiled models, and what became of them on their way."""
    found = _asked(views, query, _TORCH, _JOURNEYS)
    if found is None:
        journeys = parts.section(_JOURNEYS.title, _every(views, _JOURNEYS))
        return Sheet(_TORCH.title, put([_every(views, _TORCH), journeys]), _TORCH.path)
    drawn = _diagnosis(found.said) if found.kind == _TORCH.kind else _journey(found.said)
    return Sheet(found.title, drawn, _TORCH.path)


def _asked(views: Views, query: Query, *rooms: _Room) -> Filed | None:
    """The report that a query names, if it names one."""
    name = query.get("name")
    if not name:
        return None
    found = [one for room in rooms for one in views.filed(room.kind) if one.name == name]
    if not found:
        raise NotThere(f"No report is filed as {name[:40]!r}.")
    return found[0]


def _listed(views: Views, room: _Room) -> Sheet:
    return Sheet(room.title, _every(views, room), room.path)


def _every(views: Views, room: _Room) -> Markup:
    about, every = el("p", room.about, class_="about"), views.filed(room.kind)
    if every:
        rows = [(link(one.title, room.path, name=one.name), parts.moment(one.when)) for one in every]
        return put([about, table(room.title, ("report", "filed"), rows)])
    how = el("pre", f"{room.maker}\n{FILING}")
    return put([about, parts.empty("None is filed yet. To make one and file it:"), how])


def _resources(said: Prebuild) -> Markup:
    """Heat maps of occupancy, and every row."""
    points = [panels_of.Point(row.target, row.config, _occupancy(row)) for row in said.rows]
    try:
        drawn = [_panel(panel) for panel in panels_of.panels(points)]
    except SettingsError as error:
        drawn = [parts.empty(str(error))]
    facts = (
        (f"{sum(row.keep for row in said.rows):,}", "kept", f"of {words.counted(len(said.rows), 'config')}"),
        (f"{said.dropped_before_compiling:,}", "dropped before compiling", "by what the model knows"),
        (f"{len({row.target for row in said.rows}):,}", "targets", None),
    )
    varied = [name for name in dict.fromkeys(name for row in said.rows for name in row.config)
              if len({row.config.get(name) for row in said.rows}) > 1]  # fmt: skip
    rows = [_row(row, varied) for row in sorted(said.rows, key=lambda row: (row.target, not row.keep))[:MOST_ROWS]]
    heads = ("target", "config", "", "registers", "spilled", "shared", "occupancy", "why")
    every = table("Every config", heads, rows, numbers=(3, 4, 5, 6))
    about = (
        "Rung 1: real compiles, nothing was run. Occupancy is theoretical; × marks settings of which all are dropped."
    )
    maps = parts.section("Occupancy", el("div", drawn, class_="panels"), about=about)
    return put([parts.cards(facts), maps, parts.section("Configs", every)])


def _occupancy(row: Judged) -> float | None:
    return row.resources.occupancy if row.keep and row.resources else None


def _panel(panel: panels_of.Panel) -> Markup:
    rows = [(f"{panel.y}={y}", *map(_cell, line)) for y, line in zip(panel.ys, panel.cells, strict=True)]
    drawn = table(f"{panel.target}: highest occupancy, %", ("", *(f"{panel.x}={x}" for x in panel.xs)), rows)
    return el("div", drawn, class_="heat")


def _cell(share: float | None) -> Markup:
    if share is None or isinf(share):
        return el("td", "" if share is None else "×", class_="n bad")
    return el("td", f"{100 * share:.0f}", class_="n", data_level=parts.level(share))


def _row(row: Judged, varied: Sequence[str]) -> tuple[Any, ...]:
    said = " ".join(f"{name}={row.config[name]}" for name in varied if name in row.config)
    taken, figures = row.resources, ("-",) * 4
    if taken is not None:
        figures = (f"{taken.registers}", f"{taken.stack}", f"{taken.shared:,}", f"{taken.occupancy:.0%}")
    kept = "kept" if row.keep else el("span", "dropped", class_="faint")
    return row.target, parts.config(said), kept, *figures, "; ".join(row.reasons)


def _steps(said: Sequence[Step]) -> Markup:
    """Steps to walk through: what each took away and put in."""
    names, shown, before = [], [], ""
    for number, step in enumerate(said):
        lines = steps.differences(before, step.code) if number else [f" {line}" for line in step.code.splitlines()]
        before = step.code
        count = steps.counted(lines) if number else "the payload"
        names.append(el("li", el("button", step.name, el("small", count), type="button", data_step=number)))
        code = el("pre", map(_line, lines), tabindex=0) if lines else parts.empty("Nothing changed.")
        script = el("pre", step.script, class_="script", tabindex=0) if step.script else None
        whole = el("details", el("summary", "The whole program"), el("pre", step.code, tabindex=0)) if number else None
        shown.append(el("section", el("h2", f"{number}. {step.name}"), script, code, whole, data_step=number))
    walk = el("ol", names, class_="walk", start=0, aria_label="Steps")
    told = el("p", "Walk with j and k, or choose a step.", class_="about")
    return put([told, parts.component("steps", walk, el("div", shown, class_="shown", aria_live="polite"))])


def _line(line: str) -> Markup:
    kind = {"+": "add", "-": "cut", "@": "at"}.get(line[:1])
    return el("span", line + "\n", class_=kind) if kind else put(line + "\n")


def _diagnosis(said: Diagnosed) -> Markup:
    """Symptoms by the time at stake, then where compiling spends its time."""
    count = words.counted(len(said.symptoms), "symptom") if said.symptoms else "Nothing was found"
    head = el("p", f"{said.name}: {count}, ranked by the time at stake in {said.calls:,} calls.", class_="lead")
    bars = [_bars("Where compiling spends its time", said.phases), _bars("A call", said.times)]
    return put([head, map(_symptom, said.symptoms), bars, (el("p", note, class_="note") for note in said.notes)])


def _journey(said: Journey) -> Markup:
    """The whole journey, as on a page of its own."""
    try:
        told = journey_page.told(said)
    except (ArithmeticError, LookupError, ValueError) as error:  # whoever filed it made it up
        raise SettingsError(f"This journey cannot be drawn ({error}); file what `torch journey` wrote.") from error
    return parts.component("journey", el("style", Markup(journey_style.STYLE)), Markup(told))


def _symptom(one: Sign) -> Markup:
    cost = el("span", words.seconds(one.stake), " at stake", class_="cost") if one.stake else None
    where = f"{one.place.file}:{one.place.line}" if one.place.line else one.place.file
    head = el("h2", f"{one.kind}: {one.cause}", cost)
    body = el("p", el("code", where)), el("p", one.wrong), el("p", one.remedy, class_="good")
    return el("article", head, body, class_="symptom")


def _bars(title: str, phases: Mapping[str, float]) -> Markup | None:
    if not phases:
        return None
    most = max(phases.values()) or 1.0
    rows = [(name, words.seconds(took), parts.bar(took / most, words.seconds(took))) for name, took in phases.items()]
    return parts.section(title, table(title, ("what", "time", ""), rows, numbers=(1,)))
