"""Pages of saved reports: GPU resources, steps of schedules, diagnoses and compile reports of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from typing import TYPE_CHECKING, Any, NamedTuple

from tunewright.dashboard import components
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.saved_reports import (
    DiagnosisReport,
    PrebuildReport,
    PrebuildRow,
    SavedReport,
    ScheduleStep,
    SymptomRow,
    requires_extension,
)
from tunewright.dashboard.views import PageNotFound, Views
from tunewright.errors import SettingsError
from tunewright.report import formatting
from tunewright.report.markup import Markup, el, join_markup, link, table

if TYPE_CHECKING:
    from tunewright.torch.report.compile_report import CompileReport
    from tunewright.triton.static.heatmap import HeatmapPanel

MAX_ROWS = 400
SAVE_COMMAND = "tunewright report keep FILE.json"


class ReportKind(NamedTuple):
    """Where reports of a kind are shown, what they are about, and the command that makes one."""

    path: str
    title: str
    kind: str
    about: str
    command: str


_RESOURCES = ReportKind(
    "/resources", "Resources", "resources",
    "Triton kernels compiled for GPUs that are not here: registers, spills, shared memory, occupancy.",
    "tunewright triton prebuild FILE.py:NAME --json > FILE.json",
)  # fmt: skip
_SCHEDULES = ReportKind(
    "/schedules", "Schedules", "schedule", "Schedules of MLIR payloads, step by step.",
    "tunewright mlir steps SCHEDULE PAYLOAD --json > FILE.json",
)  # fmt: skip
_COMPILE_REPORTS = ReportKind(
    "/torch", "Compile reports", "journey", "Models on their way from Python to machine code, step by step.",
    "tunewright torch report FILE.py:MAKE --out DIR --json > FILE.json",
)  # fmt: skip
_DIAGNOSES = ReportKind(
    "/torch", "Torch", "diagnosis", "What torch.compile makes of models: symptoms by the time at stake.",
    "tunewright torch doctor FILE.py:MAKE --json > FILE.json",
)  # fmt: skip
COUNTS = ReportKind(
    "/counts", "Counts", "counts",
    "Compiled GPU code executed on a CPU: instructions and memory traffic of each source line.",
    "tunewright triton check FILE.py:NAME --json > FILE.json",
)  # fmt: skip


REPORT_PATHS = {kind.kind: kind.path for kind in (_RESOURCES, _SCHEDULES, _DIAGNOSES, _COMPILE_REPORTS, COUNTS)}
"""Where reports of each kind are shown."""


def resources(views: Views, query: Query) -> PageContent:
    """Renders the GPU resources of Triton configs, from prebuilds."""
    report = requested_report(views, query, _RESOURCES)
    if report is None:
        return PageContent(_RESOURCES.title, report_list(views, _RESOURCES), _RESOURCES.path)
    return PageContent(report.title, _resources(report.value), _RESOURCES.path)


def schedules(views: Views, query: Query) -> PageContent:
    """Renders what each step of a schedule did to a program."""
    report = requested_report(views, query, _SCHEDULES)
    if report is None:
        return PageContent(_SCHEDULES.title, report_list(views, _SCHEDULES), _SCHEDULES.path)
    return PageContent(report.title, _steps(report.value), _SCHEDULES.path)


def torch(views: Views, query: Query) -> PageContent:
    """Renders diagnoses and compile reports of models."""
    report = requested_report(views, query, _DIAGNOSES, _COMPILE_REPORTS)
    if report is None:
        compile_reports = components.section(_COMPILE_REPORTS.title, report_list(views, _COMPILE_REPORTS))
        body = join_markup([report_list(views, _DIAGNOSES), compile_reports])
        return PageContent(_DIAGNOSES.title, body, _DIAGNOSES.path)
    body = _diagnosis(report.value) if report.kind == _DIAGNOSES.kind else _compile_report(report.value)
    return PageContent(report.title, body, _DIAGNOSES.path)


def requested_report(views: Views, query: Query, *kinds: ReportKind) -> SavedReport | None:
    """Returns the report that a query names, or None if it names none."""
    name = query.get("name")
    if not name:
        return None
    for kind in kinds:
        for report in views.saved_reports(kind.kind):
            if report.name == name:
                return report
    raise PageNotFound(f"No report is saved as {name[:40]!r}.")


def report_list(views: Views, kind: ReportKind) -> Markup:
    """Returns a table of the reports of a kind, or how to make one."""
    about, reports = el("p", kind.about, class_="about"), views.saved_reports(kind.kind)
    if reports:
        rows = [
            (link(report.title, kind.path, name=report.name), components.timestamp(report.when)) for report in reports
        ]
        return join_markup([about, table(kind.title, ("report", "saved"), rows)])
    commands = el("pre", f"{kind.command}\n{SAVE_COMMAND}")
    return join_markup([about, components.empty_note("No report is saved yet. To make and save one:"), commands])


def _resources(report: PrebuildReport) -> Markup:
    """Renders heat maps of occupancy, and a table of all configs."""
    with requires_extension("tunewright.triton"):
        from tunewright.triton.static import heatmap  # noqa: PLC0415 - an extension, which may be absent

    points = [heatmap.OccupancyPoint(row.target, row.config, _occupancy(row)) for row in report.rows]
    try:
        panels = [_panel(panel) for panel in heatmap.make_panels(points)]
    except SettingsError as error:
        panels = [components.empty_note(str(error))]
    facts = (
        (f"{sum(row.keep for row in report.rows):,}", "kept", f"of {formatting.counted(len(report.rows), 'config')}"),
        (f"{report.dropped_before_compiling:,}", "dropped before compiling", "by the resource model"),
        (f"{len({row.target for row in report.rows}):,}", "targets", None),
    )
    knobs = dict.fromkeys(name for row in report.rows for name in row.config)
    varied = [name for name in knobs if len({row.config.get(name) for row in report.rows}) > 1]
    ordered = sorted(report.rows, key=lambda row: (row.target, not row.keep))
    heads = ("target", "config", "", "registers", "spilled", "shared", "occupancy", "why")
    configs = table("All configs", heads, [_row(row, varied) for row in ordered[:MAX_ROWS]], numbers=(3, 4, 5, 6))
    about = "Really compiled, but not run. Occupancy is theoretical; × marks settings of which all configs are dropped."
    maps = components.section("Occupancy", el("div", panels, class_="panels"), about=about)
    return join_markup([components.cards(facts), maps, components.section("Configs", configs)])


def _occupancy(row: PrebuildRow) -> float | None:
    return row.resources.occupancy if row.keep and row.resources else None


def _panel(panel: HeatmapPanel) -> Markup:
    rows = [(f"{panel.y}={y}", *map(_cell, line)) for y, line in zip(panel.ys, panel.cells, strict=True)]
    heads = ("", *(f"{panel.x}={x}" for x in panel.xs))
    return el("div", table(f"{panel.target}: highest occupancy, %", heads, rows), class_="heat")


def _cell(share: float | None) -> Markup:
    if share is None or isinf(share):
        return el("td", "" if share is None else "×", class_="n bad")
    return el("td", f"{100 * share:.0f}", class_="n", data_level=components.level(share))


def _row(row: PrebuildRow, varied: Sequence[str]) -> tuple[Any, ...]:
    config = " ".join(f"{name}={row.config[name]}" for name in varied if name in row.config)
    usage, cells = row.resources, ("-",) * 4
    if usage is not None:
        cells = (f"{usage.registers}", f"{usage.stack}", f"{usage.shared:,}", f"{usage.occupancy:.0%}")
    verdict = "kept" if row.keep else el("span", "dropped", class_="faint")
    return row.target, components.config_code(config), verdict, *cells, "; ".join(row.reasons)


def _steps(steps: Sequence[ScheduleStep]) -> Markup:
    """Renders the steps of a schedule with the lines that each removed and added."""
    with requires_extension("tunewright.mlir"):
        from tunewright.mlir import step_report  # noqa: PLC0415 - an extension, which may be absent

    buttons, sections, before = [], [], ""
    for number, step in enumerate(steps):
        lines = step_report.diff_lines(before, step.code) if number else [f" {line}" for line in step.code.splitlines()]
        before = step.code
        size = step_report.diff_size(lines) if number else "the payload"
        buttons.append(el("li", el("button", step.name, el("small", size), type="button", data_step=number)))
        code = el("pre", map(_line, lines), tabindex=0) if lines else components.empty_note("Nothing changed.")
        script = el("pre", step.script, class_="script", tabindex=0) if step.script else None
        program = (
            el("details", el("summary", "The whole program"), el("pre", step.code, tabindex=0)) if number else None
        )
        sections.append(el("section", el("h2", f"{number}. {step.name}"), script, code, program, data_step=number))
    walk = el("ol", buttons, class_="walk", start=0, aria_label="Steps")
    help_text = el("p", "Use j and k to go through the steps, or choose one.", class_="about")
    shown = el("div", sections, class_="shown", aria_live="polite")
    return join_markup([help_text, components.script_component("steps", walk, shown)])


def _line(line: str) -> Markup:
    kind = {"+": "add", "-": "cut", "@": "at"}.get(line[:1])
    return el("span", line + "\n", class_=kind) if kind else join_markup(line + "\n")


def _diagnosis(report: DiagnosisReport) -> Markup:
    """Renders symptoms by the time at stake, then the times of compiling and of a call."""
    count = formatting.counted(len(report.symptoms), "symptom") if report.symptoms else "No symptoms"
    head = el("p", f"{report.name}: {count}, ranked by the time at stake in {report.calls:,} calls.", class_="lead")
    bars = [_bars("Where compiling spends its time", report.phases), _bars("A call", report.times)]
    notes = (el("p", note, class_="note") for note in report.notes)
    return join_markup([head, map(_symptom, report.symptoms), bars, notes])


def _compile_report(report: CompileReport) -> Markup:
    """Renders a compile report as its own page shows it."""
    with requires_extension("tunewright.torch"):
        from tunewright.torch.report import page, style  # noqa: PLC0415 - an extension, which may be absent

    try:
        body = page.render_body(report)
    except (ArithmeticError, LookupError, ValueError) as error:  # its content is invented
        raise SettingsError(
            f"This compile report is inconsistent ({error}); save the output of `tunewright torch report`."
        ) from error
    return components.script_component("journey", el("style", Markup(style.STYLE)), body)


def _symptom(symptom: SymptomRow) -> Markup:
    cost = el("span", formatting.seconds(symptom.stake), " at stake", class_="cost") if symptom.stake else None
    place = symptom.place
    where = f"{place.file}:{place.line}" if place.line else place.file
    head = el("h2", f"{symptom.kind}: {symptom.cause}", cost)
    body = el("p", el("code", where)), el("p", symptom.wrong), el("p", symptom.remedy, class_="good")
    return el("article", head, body, class_="symptom")


def _bars(title: str, phases: Mapping[str, float]) -> Markup | None:
    if not phases:
        return None
    longest = max(phases.values()) or 1.0
    rows = [
        (name, formatting.seconds(seconds), components.bar(seconds / longest, formatting.seconds(seconds)))
        for name, seconds in phases.items()
    ]
    return components.section(title, table(title, ("what", "time", ""), rows, numbers=(1,)))
