"""HTML page of a compile report: one self-contained file, with a color for each kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tunewright.report import formatting
from tunewright.report.markup import Markup, el, join_markup
from tunewright.torch.report.compile_report import (
    AutotuneResult,
    CompileReport,
    GraphOperation,
    KernelReport,
    peak_memory,
)  # fmt: skip
from tunewright.torch.report.drawings import chip, color, kernel_numbers, memory, roofline, timeline
from tunewright.torch.report.style import PAGE, SCRIPT, STYLE

Row = Sequence[tuple[str, Any]]
"""Cells of a table: their class, and their content."""

_SHOWN_NAMES = 6
"""Names of a pass's changes that are shown before the rest is only counted."""


class PageSection(NamedTuple):
    """A numbered part of the page: its heading, an explanation, and what it shows."""

    heading: str
    text: Any
    body: Any


def render_page(report: CompileReport) -> str:
    """Returns the whole page."""
    title = f"{report.name}: from Python to machine code"
    head = Markup('<!doctype html><html lang="en">'), el("meta", charset="utf-8"), el("title", title)
    style = el("style", Markup(PAGE + STYLE))
    main = el("main", el("h1", title), render_body(report), class_="journey")
    return join_markup([*head, style, main, el("script", Markup(SCRIPT)), Markup("</html>\n")])


def render_body(report: CompileReport) -> Markup:
    """Returns what is under the title, for a page that has `STYLE`."""
    renderers = (
        _source_section, _captured_section, _passes_section, _fusion_section, _code_section, _autotune_section,
        _memory_section, _times_section,
    )  # fmt: skip
    sections = (render(report) for render in renderers)
    return join_markup(
        [
            el("p", report.setting, class_="pale"),
            [el("p", note, class_="note") for note in report.notes],
            _overview(report),
            [
                (el("h2", f"{number} ", el("small", section.heading)), el("p", section.text), section.body)
                for number, section in enumerate(sections, 1)
            ],
        ]
    )


def _overview(report: CompileReport) -> Markup:
    """Returns the report in six numbers, and one call as a bar."""
    library = sum(kernel.library for kernel in report.kernels)
    kinds = f"{len(report.kernels) - library} generated, {library} from a library"
    compiled, eager = (formatting.seconds(report.times.get(name, 0.0)) for name in ("compiled", "eager"))
    stages = (
        (len(report.captured), "operations captured from your Python"),
        (len(report.lowered), "small operations they are made of"),
        (len(report.final), f"after passes rewrote the graph ({formatting.counted(len(report.changes), 'change')})"),
        (report.loops, "loop nests and library calls, if nothing were fused"),
        (len(report.kernels), f"kernels after fusion: {kinds}"),
        (compiled, f"a call; not compiled, {eager}"),
    )
    text = (
        "One call, left to right: each color is a kernel, a piece of machine code that runs by itself, as wide as the "
        "time it takes. The same colors and numbers mark its operations, its lines of Python and its memory all the "
        "way down; point at one to see it everywhere."
    )
    river = el("div", (el("div", el("b", count), el("span", label)) for count, label in stages), class_="river")
    return join_markup([river, timeline(report.kernels), el("p", text, class_="pale")])


def _source_section(report: CompileReport) -> PageSection:
    text = "The lines that ran, with the kernels that each of them ends in: one kernel may serve several lines."
    numbers, lines = kernel_numbers(report), {operation.name: operation.place for operation in report.captured}
    kernels: dict[object, set[int]] = {}
    for final, captured in report.origins.items():
        for name in captured:
            if final in numbers and name in lines:
                kernels.setdefault(lines[name], set()).add(numbers[final])
    rows = (
        (
            ("mono pale num", location.line),
            ("", [chip(number) for number in sorted(kernels.get(location, ()))]),  # before the line, which may be long
            ("mono", line),
        )
        for location, line in report.source
    )
    return PageSection("What you wrote", text, el("div", _table("What you wrote", (), rows), class_="source"))


def _captured_section(report: CompileReport) -> PageSection:
    text = (
        "Python is run once with stand-ins for tensors, and what it does to them is recorded as a graph. Then each "
        "operation is broken into smaller ones that the compiler can write loops for. Those without color only look "
        "at the same memory in another shape, or were replaced."
    )
    lowered: dict[str, list[str]] = {}
    for operation in report.final:
        for name in report.origins.get(operation.name, ()):
            lowered.setdefault(name, []).append(operation.name)
    numbers, final = kernel_numbers(report), {operation.name: operation for operation in report.final}
    rows = (
        (
            ("mono", operation.call),
            ("mono pale", operation.result),
            (
                "",
                [_operation(final[name], numbers) for name in lowered.get(operation.name, ()) if name in final]
                or _FREE,
            ),
        )
        for operation in report.captured
    )
    heads = ("captured", "result", "small operations, in the color of the kernel that computes them")
    return PageSection("What was captured, and what it is made of", text, _table("What was captured", heads, rows))


_FREE = el("span", "nothing to compute", class_="op free")


def _operation(operation: GraphOperation, numbers: dict[str, int]) -> Markup:
    if operation.name not in numbers:
        return el("span", operation.call, class_="op free", title=operation.name)
    number = numbers[operation.name]
    hint = f"{operation.name}: {operation.result}, kernel {number + 1}"
    return el("span", operation.call, class_=f"op k{number}", style=f"border-color:{color(number)}", title=hint)


def _passes_section(report: CompileReport) -> PageSection:
    text = "Passes look for patterns that can be computed better, and rewrite the graph. " + (
        "These changed something:" if report.changes else "Here none found anything to change."
    )
    rows = [
        (
            ("mono", change.name),
            ("num", f"{change.before} \u2192 {change.after}"),
            ("mono pale", _first_names(change.gone)),
            ("mono", _first_names(change.new)),
        )
        for change in report.changes
    ]
    body: list[Markup] = []
    if rows:
        body.append(_table("What each pass changed", ("pass", "operations", "took out", "put in"), rows))
    if report.idle:
        summary = f"{formatting.counted(len(report.idle), 'pass', 'passes')} changed nothing"
        names = el("p", ", ".join(report.idle), class_="mono pale")
        body.append(el("details", el("summary", summary, class_="pale"), names))
    return PageSection("What each pass changed", text, body)


def _first_names(names: Sequence[str]) -> Iterator[Any]:
    rest = len(names) - _SHOWN_NAMES
    for i, name in enumerate([*names[:_SHOWN_NAMES], *([f"and {rest} more"] if rest > 0 else [])]):
        yield el("br") if i else None
        yield name


def _fusion_section(report: CompileReport) -> PageSection:
    text = (
        f"Without fusion this would be {report.loops} loop nests and library calls, each reading its inputs from "
        f"memory and writing its result back. Loops over the same elements are fused: {len(report.kernels)} kernels "
        "are left. What is inside one box passes results on without a trip to memory."
    )
    numbers, final = kernel_numbers(report), {operation.name: operation for operation in report.final}
    boxes = (
        el(
            "div",
            chip(i),
            el(
                "div",
                el("b", kernel.label),
                " ",
                [_operation(final[name], numbers) for name in kernel.operations if name in final],
            ),
            el("span", _loop_count(kernel), class_="loops"),
            class_=f"box k{i}",
            style=f"border-color:{color(i)}",
        )
        for i, kernel in enumerate(report.kernels)
    )
    return PageSection("What was fused", text, boxes)


def _loop_count(kernel: KernelReport) -> str:
    if kernel.library:
        return "library call"
    return "one loop nest" if kernel.loops == 1 else f"{kernel.loops} loop nests in one"


def _code_section(report: CompileReport) -> PageSection:
    text = (
        "Left, the operations of a kernel with the Python they come from; right, the code that computes them. "
        "Generated kernels are C++, whose vectors hold several numbers at once (casts of numbers are left out here); "
        "of a library only the call is seen."
    )
    first = next((i for i, kernel in enumerate(report.kernels) if kernel.code), -1)
    return PageSection(
        "The code", text, (_code(i, kernel, report, is_open=i == first) for i, kernel in enumerate(report.kernels))
    )


def _code(number: int, kernel: KernelReport, report: CompileReport, *, is_open: bool) -> Markup:
    summary = el("summary", chip(number), " ", el("b", kernel.label), " ", el("code", kernel.name, class_="pale"))
    operations = el("div", (el("div", line) for line in _operation_lines(kernel, report)), class_="mono")
    code = el("pre", kernel.code.strip() or kernel.call)
    side = el("div", operations, code, class_="side")
    return el("details", summary, side, open=is_open, style=f"border-color:{color(number)}")


def _operation_lines(kernel: KernelReport, report: CompileReport) -> Iterator[Any]:
    final, source, last = {operation.name: operation for operation in report.final}, dict(report.source), ""
    for operation in (final[name] for name in kernel.operations if name in final):
        if (line := source.get(operation.place, "").strip()) and line != last:
            last = line
            yield el("span", f"{operation.place.line}: {line}", class_="pale")
        yield f"\u00a0\u00a0{operation.name} = ", el("b", operation.call), f"({', '.join(operation.reads)})"


def _autotune_section(report: CompileReport) -> PageSection:
    if not report.contests:
        text = (
            "Nothing was timed: by default every matrix product is a library call. With ",
            el("code", "--freeze --autotune"),
            " weights are constants, and generated kernels compete with it.",
        )
        return PageSection("What was chosen", text, None)
    timed_by = report.contests[0].by
    about = (
        f"Where there are several ways to compute something they were timed, by {timed_by}; the fastest, in green, "
        "was taken."
    )
    rows = (row for result in report.contests for row in _candidate_rows(result))
    heads = ("operation", "candidate", "time", "")
    return PageSection("What was chosen", about, _table("What was chosen", heads, rows))


def _candidate_rows(result: AutotuneResult) -> Iterator[Row]:
    slowest = max((seconds for _, seconds in result.seconds), default=0.0) or 1.0
    for i, (name, seconds) in enumerate(result.seconds):
        bar = _bar(100 * seconds / slowest, "#afb8c1" if i else "#2f9e6e")
        operation = "" if i else result.operation
        yield ("mono", operation), ("mono", name), ("num", formatting.seconds(seconds)), ("", bar)


def _memory_section(report: CompileReport) -> PageSection:
    peak, without_reuse = peak_memory(report.buffers)
    text = (
        "Results that one kernel leaves for another, over the steps of a call. A bar ends when nothing needs it any "
        "more; a bar that follows in the same row uses the same memory. "
        f"At most {formatting.size(peak)} are held at once; without reuse it would be "
        f"{formatting.size(without_reuse)}. Weights and arguments come on top."
    )
    return PageSection("Memory", text, memory(report.buffers, len(report.kernels)))


def _times_section(report: CompileReport) -> PageSection:
    near, far = report.roof.bandwidth[0], report.roof.bandwidth[-1]
    text = (
        "No kernel can be faster than this machine moves its bytes, or does its arithmetic: the roofline. Measured "
        f"with as many threads: {report.roof.peak / 1e9:.0f} billion operations a second, by a product of two "
        f"matrices; {far[1] / 1e9:.1f} GB/s from memory up to {near[1] / 1e9:.1f} GB/s from a near cache, by "
        f"copying {formatting.size(far[0])} and {formatting.size(near[0])}. The share says how near a kernel comes to "
        "the limit that binds it; above 100 %, its data was still in a nearer cache, or the machine was busier when "
        "the limit was measured. Times are medians of calls, shares those of the best; bytes are those of the tensors "
        "a kernel touches, operations are counted in the graph."
    )
    total = sum(kernel.seconds for kernel in report.kernels) or 1.0
    rows = (
        (
            ("", (chip(i), " ", kernel.label)),
            ("num", formatting.seconds(kernel.seconds)),
            ("num", f"{100 * kernel.seconds / total:.0f} %"),
            ("num", formatting.size(kernel.moved)),
            ("num", _count(kernel.flops)),
            ("gauges", (_bar(100 * kernel.share, color(i)), f" {100 * kernel.share:.0f} %")),
            ("pale", kernel.bound),
        )
        for i, kernel in enumerate(report.kernels)
    )
    heads = ("kernel", "time", "of the call", "bytes", "operations", "share of the roofline", "bound by")
    body = _table("What it takes", heads, rows), roofline(report.kernels, report.roof)
    return PageSection("What it takes", text, body)


def _table(caption: str, heads: Sequence[str], rows: Iterable[Row]) -> Markup:
    """Returns a table with a caption for screen readers; a head is aligned as its column is."""
    cells = [tuple(row) for row in rows]
    classes = [class_ for class_, _ in cells[0]] if cells else [""] * len(heads)
    columns = zip(classes, heads, strict=False)
    top = [el("th", head, scope="col", class_="num" if class_ == "num" else None) for class_, head in columns]
    body = (el("tr", (el("td", content, class_=class_ or None) for class_, content in row)) for row in cells)
    return el("table", el("caption", caption), el("tr", top) if top else None, body)


def _bar(percent: float, fill: str) -> Markup:
    return el("div", el("div", style=f"width:{min(100.0, percent):.0f}%;background:{fill}"), class_="gauge")


def _count(flops: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops:.0f}"
