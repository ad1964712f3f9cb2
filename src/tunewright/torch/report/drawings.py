"""Drawings of a compile report: timeline of a call, lifetimes of buffers, roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log10

from tunewright.report import formatting
from tunewright.report.markup import EMPTY, Markup, el
from tunewright.report.roofline import Roofline
from tunewright.torch.report.compile_report import BufferLifetime, CompileReport, KernelReport

PALETTE = (
    "#3b6fd4", "#d9822b", "#2f9e6e", "#c2416b", "#7b5cd6", "#b59a1d", "#1f9fb3", "#8a5a3c", "#d05ac0", "#5f7a2e",
    "#5a6b85", "#e0594b",
)  # fmt: skip

_POWERS = ((6, "1 M"), (7, "10 M"), (8, "100 M"), (9, "1 G"), (10, "10 G"), (11, "100 G"), (12, "1 T"))

Projection = Callable[[float, float], tuple[float, float]]
"""Maps operations a byte and operations a second to a point of the drawing."""


def color(number: int) -> str:
    """Returns the color of the kernel with that number, the same everywhere on a page."""
    return PALETTE[number % len(PALETTE)]


def chip(number: int) -> Markup:
    """Returns the number of a kernel in its color."""
    return el("span", number + 1, class_=f"chip k{number}", style=f"background:{color(number)}")


def timeline(kernels: Sequence[KernelReport]) -> Markup:
    """Returns one call as a bar with a piece for each kernel, as wide as the time it takes."""
    total = sum(kernel.seconds for kernel in kernels)
    if not total:
        return EMPTY
    pieces = (
        el(
            "div",
            i + 1 if kernel.seconds / total > 0.025 else None,
            class_=f"k{i}",
            style=f"flex:{kernel.seconds / total:.5f} 1 0;background:{color(i)}",
            title=f"{i + 1}. {kernel.label}: {formatting.seconds(kernel.seconds)}",
        )
        for i, kernel in enumerate(kernels)
    )
    return el("div", pieces, class_="time")


def memory(buffers: Sequence[BufferLifetime], steps: int) -> Markup:
    """Returns buffers as bars over the steps that need them; one that takes over memory continues in its row."""
    rows: dict[str, int] = {}
    for buffer in buffers:
        rows[buffer.name] = rows[buffer.reuses] if buffer.reuses in rows else max(rows.values(), default=-1) + 1
    step_width, row_height, left, top = 720 / max(1, steps), 26, 10, 24
    height = top + row_height * (max(rows.values(), default=0) + 1) + 6
    parts: list[Markup] = []
    for i in range(steps):
        x = f"{left + step_width * i:.1f}"
        center = f"{left + step_width * (i + 0.5):.1f}"
        parts.append(el("text", i + 1, x=center, y=14, text_anchor="middle", class_=f"k{i}"))
        parts.append(el("line", x1=x, y1=top, x2=x, y2=height, class_="rule"))
    for buffer in buffers:
        corner = left + step_width * (buffer.born - 1), top + row_height * rows[buffer.name]
        width = step_width * (buffer.dies - buffer.born + 1) - 3
        parts.append(_buffer_bar(buffer, corner, (width, row_height - 6)))
    return el("svg", parts, viewBox=f"0 0 740 {height:.0f}", class_="memory", role="img", aria_label="Memory by step")


def _buffer_bar(buffer: BufferLifetime, corner: tuple[float, int], extent: tuple[float, int]) -> Markup:
    (x, y), (width, height) = corner, extent
    size = formatting.size(buffer.bytes)
    title = f"{buffer.name}: {size}" + (f", in the memory of {buffer.reuses}" if buffer.reuses else "")
    fill = color(buffer.born - 1)
    return el(
        "g",
        el("title", title),
        el("rect", x=f"{x:.1f}", y=y + 3, width=f"{width:.1f}", height=height, rx=4, fill=fill),
        el("text", size if width > 46 else None, x=f"{x + 6:.1f}", y=y + 17, fill="#fff"),
        class_=f"k{buffer.born - 1}",
    )


def roofline(kernels: Sequence[KernelReport], limits: Roofline) -> Markup:
    """Returns operations a second by operations a byte, under the roofline of this machine."""
    timed = [(i, kernel) for i, kernel in enumerate(kernels) if kernel.seconds and kernel.moved and kernel.flops]
    if not timed:
        return EMPTY
    width, height, left, bottom = 720, 300, 64, 42
    fastest, slowest = limits.bandwidth[0][1], limits.bandwidth[-1][1]
    across = [one.flops / one.moved for _, one in timed] + [limits.peak / fastest / 4, limits.peak / slowest * 4]
    up = [kernel.flops / kernel.seconds for _, kernel in timed] + [limits.peak * 1.6]
    low_x, high_x, low_y, high_y = min(across) / 1.6, max(across), min(up) / 2, max(up) * 1.2

    def project(intensity: float, speed: float) -> tuple[float, float]:
        x = left + (width - left - 10) * log10(intensity / low_x) / log10(high_x / low_x)
        y = height - bottom - (height - bottom - 24) * log10(speed / low_y) / log10(high_y / low_y)
        return x, y

    lines = [
        _limit_line(project, (low_x, high_x, low_y), limits.peak, bandwidth, name)
        for name, bandwidth in (("from a near cache", fastest), ("from memory", slowest))
    ]
    dots = [_kernel_dot(project, i, kernel) for i, kernel in timed]
    axes = _axes(project, (low_x, high_x), (low_y, high_y), (left, width, height, bottom))
    parts = [*axes, *lines, *dots]
    return el("svg", parts, viewBox=f"0 0 {width} {height}", class_="roof", role="img", aria_label="Roofline")


def _kernel_dot(project: Projection, number: int, kernel: KernelReport) -> Markup:
    x, y = project(kernel.flops / kernel.moved, kernel.flops / kernel.seconds)
    return el(
        "g",
        el("title", f"{number + 1}. {kernel.label}"),
        el("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=10, fill=color(number)),
        el("text", number + 1, x=f"{x:.1f}", y=f"{y + 4:.1f}", text_anchor="middle", fill="#fff"),
        class_=f"k{number}",
    )


def _axes(
    project: Projection, across: tuple[float, float], up: tuple[float, float], frame: tuple[int, int, int, int]
) -> Iterator[Markup]:
    """Yields powers of ten along both sides, and what they count."""
    left, width, height, bottom = frame
    yield el("text", "operations for each byte moved \u2192", x=width - 10, y=height - 6, text_anchor="end")
    yield el("text", "operations a second \u2191", x=left - 54, y=12)
    for power in range(-3, 5):
        if across[0] < 10.0**power < across[1]:
            x = f"{project(10.0**power, up[0])[0]:.1f}"
            yield el("text", f"{10.0**power:g}", x=x, y=height - bottom + 18, text_anchor="middle")
            yield el("line", x1=x, x2=x, y1=20, y2=height - bottom, class_="rule")
    for power, name in _POWERS:
        if up[0] < 10.0**power < up[1]:
            _, y = project(across[0], 10.0**power)
            yield el("text", name, x=left - 8, y=f"{y + 4:.1f}", text_anchor="end")
            yield el("line", x1=left, x2=width - 10, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="rule")


def _limit_line(
    project: Projection, bounds: tuple[float, float, float], peak: float, bandwidth: float, name: str
) -> Markup:
    """Returns one roofline: rising as far as bandwidth limits, then level at the peak."""
    low_x, high_x, low_y = bounds
    start = max(low_x, low_y / bandwidth)
    points = [project(start, start * bandwidth), project(peak / bandwidth, peak), project(high_x, peak)]
    line = el("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points))
    x, y = points[1]
    return Markup(line + el("text", name, x=f"{x - 6:.1f}", y=f"{y + 16:.1f}", text_anchor="end"))


def kernel_numbers(report: CompileReport) -> dict[str, int]:
    """Returns the number of the kernel that computes each operation of the final graph."""
    return {name: i for i, kernel in reversed(list(enumerate(report.kernels))) for name in kernel.operations}
