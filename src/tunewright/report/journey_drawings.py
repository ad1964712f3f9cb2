"""Drawings of a journey: where a call's time goes, which memory is held when, how near kernels are to the roofline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import log10

from tunewright.report import words
from tunewright.report.journey import Buffer, Journey, Kernel, Roof

PALETTE = (
    "#3b6fd4", "#d9822b", "#2f9e6e", "#c2416b", "#7b5cd6", "#b59a1d", "#1f9fb3", "#8a5a3c", "#d05ac0", "#5f7a2e",
    "#5a6b85", "#e0594b",
)  # fmt: skip


Place = Callable[[float, float], tuple[float, float]]


def colour(number: int) -> str:
    """The colour of the kernel with that number, the same all over a page."""
    return PALETTE[number % len(PALETTE)]


def chip(number: int, text: str | None = None) -> str:
    """A kernel's number in its colour."""
    label = escape(str(number + 1) if text is None else text)
    return f'<span class="chip k{number}" style="background:{colour(number)}">{label}</span>'


def timeline(kernels: Sequence[Kernel]) -> str:
    """One call as a bar, a piece for each kernel, as wide as it takes."""
    whole = sum(kernel.seconds for kernel in kernels)
    if not whole:
        return ""
    pieces = "".join(
        f'<div class="k{i}" style="flex:{kernel.seconds / whole:.5f} 1 0;background:{colour(i)}" '
        f'title="{i + 1}. {escape(kernel.label)}: {words.seconds(kernel.seconds)}">'
        f"{i + 1 if kernel.seconds / whole > 0.025 else ''}</div>"
        for i, kernel in enumerate(kernels)
    )
    return f'<div class="time">{pieces}</div>'


def memory(buffers: Sequence[Buffer], steps: int) -> str:
    """Buffers as bars from the step that writes to the last that reads; one taken over goes on in its row."""
    rows: dict[str, int] = {}
    for one in buffers:
        rows[one.name] = rows[one.reuses] if one.reuses in rows else max(rows.values(), default=-1) + 1
    wide, high, left, top = 720 / max(1, steps), 26, 10, 24
    height = top + high * (max(rows.values(), default=0) + 1) + 6
    parts = [
        f'<text x="{left + wide * (i + 0.5):.1f}" y="14" text-anchor="middle" class="k{i}">{i + 1}</text>'
        f'<line x1="{left + wide * i:.1f}" y1="{top}" x2="{left + wide * i:.1f}" y2="{height}" class="rule"/>'
        for i in range(steps)
    ]
    for one in buffers:
        x, y = left + wide * (one.born - 1), top + high * rows[one.name]
        width = wide * (one.dies - one.born + 1) - 3
        note = f"{one.name}: {words.size(one.bytes)}" + (f", in the memory of {one.reuses}" if one.reuses else "")
        shown = words.size(one.bytes) if width > 46 else ""
        parts.append(
            f'<g class="k{one.born - 1}"><title>{escape(note)}</title><rect x="{x:.1f}" y="{y + 3}" '
            f'width="{width:.1f}" height="{high - 6}" rx="4" fill="{colour(one.born - 1)}"/>'
            f'<text x="{x + 6:.1f}" y="{y + 17}" fill="#fff">{shown}</text></g>'
        )
    drawn = "".join(parts)
    return f'<svg viewBox="0 0 740 {height:.0f}" class="memory" role="img" aria-label="Memory by step">{drawn}</svg>'


def roofline(kernels: Sequence[Kernel], roof: Roof) -> str:
    """Arithmetic for each byte against arithmetic a second, under the roof that this machine sets."""
    timed = [(i, one) for i, one in enumerate(kernels) if one.seconds and one.moved and one.flops]
    if not timed:
        return ""
    width, height, left, bottom = 720, 300, 64, 42
    fastest, slowest = roof.bandwidth[0][1], roof.bandwidth[-1][1]
    across = [one.flops / one.moved for _, one in timed] + [roof.peak / fastest / 4, roof.peak / slowest * 4]
    up = [one.flops / one.seconds for _, one in timed] + [roof.peak * 1.6]
    low_x, high_x, low_y, high_y = min(across) / 1.6, max(across), min(up) / 2, max(up) * 1.2

    def place(intensity: float, speed: float) -> tuple[float, float]:
        x = left + (width - left - 10) * log10(intensity / low_x) / log10(high_x / low_x)
        y = height - bottom - (height - bottom - 24) * log10(speed / low_y) / log10(high_y / low_y)
        return x, y

    parts = [_roof(place, (low_x, high_x, low_y), roof.peak, speed, name) for name, speed in (
        ("from a near cache", fastest), ("from memory", slowest))]  # fmt: skip
    for i, one in timed:
        x, y = place(one.flops / one.moved, one.flops / one.seconds)
        parts.append(
            f'<g class="k{i}"><title>{i + 1}. {escape(one.label)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="10" '
            f'fill="{colour(i)}"/><text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" fill="#fff">{i + 1}</text></g>'
        )
    axes = _axes(place, (low_x, high_x), (low_y, high_y), (left, width, height, bottom))
    drawn = axes + "".join(parts)
    return f'<svg viewBox="0 0 {width} {height}" class="roof" role="img" aria-label="Roofline">{drawn}</svg>'


def _axes(place: Place, across: tuple[float, float], up: tuple[float, float], frame: tuple[int, int, int, int]) -> str:
    """Powers of ten along both sides, and what they count."""
    left, width, height, bottom = frame
    parts = [
        f'<text x="{width - 10}" y="{height - 6}" text-anchor="end">operations for each byte moved &#8594;</text>',
        f'<text x="{left - 54}" y="12">operations a second &#8593;</text>',
    ]
    for power in range(-3, 5):
        if across[0] < 10.0**power < across[1]:
            x, _ = place(10.0**power, up[0])
            parts.append(f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{10.0**power:g}</text>')
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{height - bottom}" class="rule"/>')
    for power, name in ((6, "1 M"), (7, "10 M"), (8, "100 M"), (9, "1 G"), (10, "10 G"), (11, "100 G"), (12, "1 T")):
        if up[0] < 10.0**power < up[1]:
            _, y = place(across[0], 10.0**power)
            parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
            parts.append(f'<line x1="{left}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" class="rule"/>')
    return "".join(parts)


def _roof(place: Place, bounds: tuple[float, float, float], peak: float, speed: float, name: str) -> str:
    """One roof: rising as far as memory sets the pace, then level."""
    low_x, high_x, low_y = bounds
    start = max(low_x, low_y / speed)
    points = [place(start, start * speed), place(peak / speed, peak), place(high_x, peak)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[1]
    return f'<polyline points="{line}"/><text x="{x - 6:.1f}" y="{y + 16:.1f}" text-anchor="end">{name}</text>'


def numbers(found: Journey) -> dict[str, int]:
    """Which kernel each operation of the final graph ends in."""
    return {name: i for i, kernel in reversed(list(enumerate(found.kernels))) for name in kernel.operations}
