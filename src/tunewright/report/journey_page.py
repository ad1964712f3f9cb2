"""Journey page: one self-contained page that follows a model from Python to machine code, a colour for each kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from tunewright.report import words
from tunewright.report.journey import Contest, Journey, Kernel, Operation, peak_memory
from tunewright.report.journey_drawings import chip, colour, memory, numbers, roofline, timeline
from tunewright.report.journey_style import PAGE, SCRIPT, STYLE

Row = Sequence[tuple[str, str]]
"""Cells of a table: their class, and what is in them as HTML."""

_MOST = 6
"""Names that are shown of a pass's changes before the rest is only counted."""


def page(found: Journey) -> str:
    """The whole page."""
    title = escape(f"{found.name}: from Python to machine code")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{PAGE}{STYLE}</style>'
        f'<main class="journey"><h1>{title}</h1>{told(found)}</main><script>{SCRIPT}</script></html>\n'
    )


def told(found: Journey) -> str:
    """What stands under the title, for a page that has a `STYLE` for it."""
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in found.notes)
    sections = (_written, _captured, _passes, _fused, _code, _chosen, _memory, _taken)
    body = "".join(
        f"<h2>{number} <small>{head}</small></h2><p>{said}</p>{shown}"
        for number, (head, said, shown) in enumerate((section(found) for section in sections), 1)
    )
    return f'<p class="pale">{escape(found.setting)}</p>{notes}{_river(found)}{body}'


def _river(found: Journey) -> str:
    """The journey in six numbers, and one call as a bar."""
    library = sum(kernel.library for kernel in found.kernels)
    kinds = f"{len(found.kernels) - library} generated, {library} from a library"
    taken = found.times
    stations = (
        (len(found.captured), "operations captured from your Python"),
        (len(found.lowered), "small operations they are made of"),
        (len(found.final), f"after passes rewrote the graph ({words.counted(len(found.changes), 'change')})"),
        (found.loops, "loop nests and library calls, were each computed by itself"),
        (len(found.kernels), f"kernels after fusion: {kinds}"),
        (words.seconds(taken.get("compiled", 0.0)), f"a call; not compiled, {words.seconds(taken.get('eager', 0.0))}"),
    )
    river = "".join(f"<div><b>{count}</b><span>{escape(said)}</span></div>" for count, said in stations)
    said = (
        "One call, left to right: each colour is a kernel, a piece of machine code that runs by itself, as wide as the "
        "time it takes. The same colours and numbers mark its operations, its lines of Python and its memory all the "
        "way down; point at one to see it everywhere."
    )
    return f'<div class="river">{river}</div>{timeline(found.kernels)}<p class="pale">{said}</p>'


def _written(found: Journey) -> tuple[str, str, str]:
    said = "The lines that ran, with the kernels that each of them ends in: one kernel may serve several lines."
    ends, lines = numbers(found), {one.name: one.place for one in found.captured}
    marks: dict[object, set[int]] = {}
    for post, captured in found.origins.items():
        for name in captured:
            if post in ends and name in lines:
                marks.setdefault(lines[name], set()).add(ends[post])
    rows = (
        (
            ("mono pale num", str(place.line)),
            ("", "".join(map(chip, sorted(marks.get(place, ()))))),  # before the line, which may be long
            ("mono", escape(text)),
        )
        for place, text in found.source
    )
    return "What you wrote", said, f'<div class="source">{_table("What you wrote", (), rows)}</div>'


def _captured(found: Journey) -> tuple[str, str, str]:
    said = (
        "Python is run once with stand-ins for tensors, and what it does to them is written down as a graph. Then each "
        "operation is broken into smaller ones that the compiler can write loops for. Those without colour only look "
        "at the same memory in another shape, or were replaced."
    )
    made: dict[str, list[str]] = {}
    for one in found.final:
        for name in found.origins.get(one.name, ()):
            made.setdefault(name, []).append(one.name)
    ends, calls = numbers(found), {one.name: one for one in found.final}
    rows = (
        (
            ("mono", escape(one.call)),
            ("mono pale", escape(one.result)),
            ("", "".join(_op(calls[name], ends) for name in made.get(one.name, ()) if name in calls) or _FREE),
        )
        for one in found.captured
    )
    heads = ("captured", "result", "small operations, in the colour of the kernel that computes them")
    return "What was captured, and what it is made of", said, _table("What was captured", heads, rows)


_FREE = '<span class="op free">nothing to compute</span>'


def _op(one: Operation, ends: dict[str, int]) -> str:
    if one.name not in ends:
        return f'<span class="op free" title="{escape(one.name)}">{escape(one.call)}</span>'
    i = ends[one.name]
    hint = escape(f"{one.name}: {one.result}, kernel {i + 1}")
    return f'<span class="op k{i}" style="border-color:{colour(i)}" title="{hint}">{escape(one.call)}</span>'


def _passes(found: Journey) -> tuple[str, str, str]:
    said = "Passes look for patterns that can be computed better, and rewrite the graph. " + (
        "These changed something:" if found.changes else "Here none found anything to change."
    )
    rows = [
        (
            ("mono", escape(one.name)),
            ("num", f"{one.before} &#8594; {one.after}"),
            ("mono pale", _few(one.gone)),
            ("mono", _few(one.new)),
        )
        for one in found.changes
    ]
    shown = _table("What each pass changed", ("pass", "operations", "took out", "put in"), rows) if rows else ""
    if found.idle:
        count = words.counted(len(found.idle), "pass", "passes")
        names = f'<p class="mono pale">{escape(", ".join(found.idle))}</p>'
        shown += f'<details><summary class="pale">{count} changed nothing</summary>{names}</details>'
    return "What each pass changed", said, shown


def _few(names: Sequence[str]) -> str:
    shown = "<br>".join(map(escape, names[:_MOST]))
    return shown + (f"<br>and {len(names) - _MOST} more" if len(names) > _MOST else "")


def _fused(found: Journey) -> tuple[str, str, str]:
    said = (
        f"Left alone, this would be {found.loops} loop nests and library calls, each reading its inputs from memory "
        f"and writing its result back. Loops over the same elements are joined: {len(found.kernels)} kernels are left. "
        "What is inside one box passes results on without a trip to memory."
    )
    ends, calls = numbers(found), {one.name: one for one in found.final}
    boxes = "".join(
        f'<div class="box k{i}" style="border-color:{colour(i)}">{chip(i)}<div><b>{escape(kernel.label)}</b> '
        f"{''.join(_op(calls[name], ends) for name in kernel.operations if name in calls)}</div>"
        f'<span class="loops">{_loops(kernel)}</span></div>'
        for i, kernel in enumerate(found.kernels)
    )
    return "What was fused", said, boxes


def _loops(kernel: Kernel) -> str:
    if kernel.library:
        return "library call"
    return "one loop nest" if kernel.loops == 1 else f"{kernel.loops} loop nests in one"


def _code(found: Journey) -> tuple[str, str, str]:
    said = (
        "Left, the operations of a kernel with the Python they come from; right, the code that computes them. "
        "Generated kernels are C++, whose vectors hold several numbers at once (casts of numbers are left out here); "
        "of a library only the call is seen."
    )
    opened = next((i for i, kernel in enumerate(found.kernels) if kernel.code), -1)
    return "The code", said, "".join(_beside(i, one, found, i == opened) for i, one in enumerate(found.kernels))


def _beside(i: int, kernel: Kernel, found: Journey, opened: bool) -> str:
    rows = "".join(f"<div>{line}</div>" for line in _lines(kernel, found))
    return (
        f'<details{" open" if opened else ""} style="border-color:{colour(i)}"><summary>{chip(i)} '
        f'<b>{escape(kernel.label)}</b> <code class="pale">{escape(kernel.name)}</code></summary>'
        f'<div class="side"><div class="mono">{rows}</div>'
        f"<pre>{escape(kernel.code.strip() or kernel.call)}</pre></div></details>"
    )


def _lines(kernel: Kernel, found: Journey) -> Iterator[str]:
    calls, source, last = {one.name: one for one in found.final}, dict(found.source), ""
    for one in (calls[name] for name in kernel.operations if name in calls):
        if (code := source.get(one.place, "").strip()) and code != last:
            last = code
            yield f'<span class="pale">{one.place.line}: {escape(code)}</span>'
        yield f"&nbsp;&nbsp;{escape(one.name)} = <b>{escape(one.call)}</b>({escape(', '.join(one.reads))})"


def _chosen(found: Journey) -> tuple[str, str, str]:
    if not found.contests:
        said = (
            "Nothing was raced: by default every matrix product is a call of the library. With "
            "<code>--freeze --autotune</code> weights are constants, and generated kernels compete with it."
        )
        return "What was chosen", said, ""
    said = (
        f"Where there are several ways to compute something they were timed, by {escape(found.contests[0].by)}; the "
        "fastest, in green, was taken."
    )
    rows = (row for one in found.contests for row in _candidates(one))
    return "What was chosen", said, _table("What was chosen", ("operation", "candidate", "time", ""), rows)


def _candidates(one: Contest) -> Iterator[Row]:
    slowest = max((taken for _, taken in one.seconds), default=0.0) or 1.0
    for i, (name, taken) in enumerate(one.seconds):
        bar = _bar(100 * taken / slowest, "#afb8c1" if i else "#2f9e6e")
        what = "" if i else escape(one.operation)
        yield ("mono", what), ("mono", escape(name)), ("num", words.seconds(taken)), ("", bar)


def _memory(found: Journey) -> tuple[str, str, str]:
    most, whole = peak_memory(found.buffers)
    said = (
        "Results that one kernel leaves for another, over the steps of a call. A bar ends when nobody needs it any "
        "more; where another goes on in its row, it lives in the same memory. "
        f"At most {words.size(most)} are held at once; without any reuse it would be {words.size(whole)}. "
        "Weights and arguments come on top."
    )
    return "Memory", said, memory(found.buffers, len(found.kernels))


def _taken(found: Journey) -> tuple[str, str, str]:
    near, far = found.roof.bandwidth[0], found.roof.bandwidth[-1]
    said = (
        "No kernel can be faster than this machine moves its bytes, or does its arithmetic: the roofline. Measured "
        f"just now, with as many threads: {found.roof.peak / 1e9:.0f} billion operations a second, by a product of two "
        f"matrices; {far[1] / 1e9:.1f} GB/s from memory up to {near[1] / 1e9:.1f} GB/s from a near cache, by "
        f"copying {words.size(far[0])} and {words.size(near[0])}. The share says how near a kernel comes to the limit "
        "that binds it; above 100 %, its data was still in a nearer cache, or the machine was busier when the limit "
        "was measured. Times are medians of calls, shares those of the best; bytes are those of the tensors a kernel "
        "touches, operations are reckoned from the graph."
    )
    whole = sum(kernel.seconds for kernel in found.kernels) or 1.0
    rows = (
        (
            ("", f"{chip(i)} {escape(one.label)}"),
            ("num", words.seconds(one.seconds)),
            ("num", f"{100 * one.seconds / whole:.0f} %"),
            ("num", words.size(one.moved)),
            ("num", _work(one.flops)),
            ("gauges", f"{_bar(100 * one.share, colour(i))} {100 * one.share:.0f} %"),
            ("pale", escape(one.bound)),
        )
        for i, one in enumerate(found.kernels)
    )
    heads = ("kernel", "time", "of the call", "bytes", "operations", "share of the roofline", "bound by")
    return "What it takes", said, _table("What it takes", heads, rows) + roofline(found.kernels, found.roof)


def _table(caption: str, heads: Sequence[str], rows: Iterable[Row]) -> str:
    """A table, whose caption is there to be read aloud; a head stands as its column does."""
    drawn = [tuple(row) for row in rows]
    kinds = [kind for kind, _ in drawn[0]] if drawn else [""] * len(heads)
    top = "".join(
        f'<th scope="col"{_class("num" if kind == "num" else "")}>{head}</th>'
        for kind, head in zip(kinds, heads, strict=False)
    )
    body = "".join(f"<tr>{''.join(f'<td{_class(kind)}>{cell}</td>' for kind, cell in row)}</tr>" for row in drawn)
    return f"<table><caption>{caption}</caption>{f'<tr>{top}</tr>' if top else ''}{body}</table>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _bar(share: float, fill: str) -> str:
    return f'<div class="gauge"><div style="width:{min(100.0, share):.0f}%;background:{fill}"></div></div>'


def _work(flops: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops:.0f}"
