"""What compiled GPU code executes, line by line: the source of a kernel with its counts, two configs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tunewright.dashboard import components, reports
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.saved_reports import CountedConfig, CountsReport, SourceText
from tunewright.dashboard.views import PageNotFound, Views
from tunewright.report.markup import Markup, el, join_markup, link, table

COLUMNS = {
    "warp_instructions": "instructions",
    "load_sectors": "load sectors",
    "store_sectors": "store sectors",
    "shared_wavefronts": "shared wavefronts",
}
"""Counts that are shown for each line, and their heads."""

MAX_CHOICES = 100
SHADED = 0.1
"""Share of the highest count from which a cell is shaded."""


class _Choice(NamedTuple):
    """A config that was executed, and how addresses name it: its report and its place there."""

    config: CountedConfig
    report: CountsReport
    address: str


def counts(views: Views, query: Query) -> PageContent:
    """Renders the counts of a kernel beside its source; `against` names the second config."""
    report = reports.requested_report(views, query, reports.COUNTS)
    if report is None:
        return PageContent(reports.COUNTS.title, reports.report_list(views, reports.COUNTS), reports.COUNTS.path)
    choices = _choices(views, report.value.kernel)
    own = [choice for choice in choices if choice.address.startswith(report.name)]
    first = _find(choices, query.get("config")) or own[0]
    others = [choice for choice in (*own, *choices) if choice is not first]
    second = _find(choices, query.get("against")) or (others[0] if others else None)
    shown = [first] if second is None or second is first else [first, second]
    body = [_about(report.value), _listing(shown), _totals(shown)]
    if len(choices) > 2:
        body.append(_more(report.name, first, choices))
    return PageContent(report.title, join_markup(body), reports.COUNTS.path)


def _choices(views: Views, kernel: str) -> list[_Choice]:
    """Returns all configs of a kernel that reports have counts of."""
    found = [
        _Choice(config, report.value, f"{report.name}.{number}")
        for report in views.saved_reports(reports.COUNTS.kind)
        if report.value.kernel == kernel
        for number, config in enumerate(report.value.executed)
    ]
    return found[:MAX_CHOICES]


def _find(choices: Sequence[_Choice], address: str | None) -> _Choice | None:
    if not address:
        return None
    for choice in choices:
        if choice.address == address:
            return choice
    raise PageNotFound(f"No counts are saved as {address[:40]!r}.")


def _about(report: CountsReport) -> Markup:
    text = "The compiled code was executed on a CPU (rung: emulated). These are counts, not times."
    return el("p", f"{report.kernel} for {report.target}. {text}", class_="about")


def _name(choice: _Choice) -> Markup:
    outcome = f" · {choice.config.outcome}" if choice.config.outcome else ""
    return join_markup([components.config_code(_config_text(choice.config)), f" {choice.report.target}{outcome}"])


def _config_text(config: CountedConfig) -> str:
    return " ".join(f"{name}={value}" for name, value in config.config.items()) or "the only config"


def _totals(shown: Sequence[_Choice]) -> Markup:
    names = dict.fromkeys(name for choice in shown for name, count in choice.config.counters.items() if count)
    rows = [(name.replace("_", " "), *_amounts(shown, name)) for name in names]
    heads = ("count", *map(_name, shown), *(("second over first",) if len(shown) > 1 else ()))
    return components.section("Totals", table("Totals", heads, rows, numbers=range(1, len(heads))))


def _amounts(shown: Sequence[_Choice], name: str) -> list[str]:
    amounts = [choice.config.counters.get(name, 0) for choice in shown]
    ratio = [f"{amounts[1] / amounts[0]:.2f}" if amounts[0] else "-"] if len(amounts) > 1 else []
    return [*(f"{amount:,}" for amount in amounts), *ratio]


def _listing(shown: Sequence[_Choice]) -> Markup:
    sources = {source.file: source for choice in shown for source in choice.report.source}
    if not sources:
        note = components.empty_note("The source of this kernel could not be read where it was executed.")
        return components.section("Source", note)
    return join_markup([_file(source, shown) for source in sources.values()])


def _file(source: SourceText, shown: Sequence[_Choice]) -> Markup:
    """Renders a part of a file; the counts of both configs stand beside each other."""
    by_line = [{line["line"]: line for line in c.config.lines if line["file"] == source.file} for c in shown]
    used = [name for name in COLUMNS if any(name in line for lines in by_line for line in lines.values())]
    most = {name: max(int(line.get(name, 0)) for lines in by_line for line in lines.values()) for name in used}
    rows = []
    for number, text in enumerate(source.lines, source.first):
        cells = [_cell(lines.get(number, {}).get(name), most[name]) for name in used for lines in by_line]
        rows.append((str(number), *cells, el("td", el("code", text))))
    marks = ["", " (2)"] if len(shown) > 1 else [""]
    heads = ["line", *(COLUMNS[name] + mark for name in used for mark in marks), "source"]
    listing = el("div", table(source.file, heads, rows, numbers=range(1, len(heads) - 1)), class_="counts")
    order = join_markup(
        [(f"({number}) " if len(shown) > 1 else "", _name(c), " ") for number, c in enumerate(shown, 1)]
    )
    return components.section(source.file, el("p", order), listing)


def _cell(count: object, most: int) -> Markup:
    if not isinstance(count, int) or not count:
        return el("td", "", class_="n")
    share = count / max(most, 1)
    return el("td", f"{count:,}", class_="n", data_level=components.level(1 - share) if share >= SHADED else None)


def _more(name: str, first: _Choice, choices: Sequence[_Choice]) -> Markup:
    rows = [
        (
            _name(choice),
            link("first", reports.COUNTS.path, name=name, config=choice.address),
            link("second", reports.COUNTS.path, name=name, config=first.address, against=choice.address),
        )
        for choice in choices
    ]
    return components.section("Other configs", table("Configs", ("config", "show as", ""), rows))
