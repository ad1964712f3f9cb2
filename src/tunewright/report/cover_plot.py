"""Plot of a cover: how much slower shapes are by the number of configs, as PNG or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tunewright.errors import SettingsError
from tunewright.report import race_plot

BLUE, GREY, FAINT = "#2563eb", "#64748b", "#f1f5f9"
SUFFIXES = (".png", ".svg")


class CurvePoint(NamedTuple):
    """So many configs, and how much slower shapes are with the best of them for each: in the mean, and at worst.

    Shapes that none of the configs may serve are counted, and left out otherwise.
    """

    configs: int
    mean: float
    worst: float
    unserved: int


def drawable(points: Sequence[CurvePoint]) -> Sequence[CurvePoint]:
    """Returns the points at which each shape has a config, so that they compare; all if there are none."""
    return [point for point in points if not point.unserved] or points


def draw(path: Path, points: Sequence[CurvePoint], title: str, chosen: int) -> None:
    """Writes the curve to `path`; the number of configs of the cover is marked."""
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"{path} does not end in {' or '.join(SUFFIXES)}; its end says what is drawn")
    race_plot.require_drawable(path)
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    points = drawable(points)
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    counts = [point.configs for point in points]
    for label, color, values in (
        ("at worst", GREY, [point.worst for point in points]),
        ("in the mean", BLUE, [point.mean for point in points]),
    ):
        axes.plot(counts, values, color=color, marker="o", markersize=4, linewidth=2)
        axes.annotate(label, (counts[0], values[0]), (8, 2), textcoords="offset points", color=color, fontsize=9)
    axes.axvline(chosen, color=GREY, linewidth=1, linestyle=":")
    axes.annotate("the cover", (chosen, axes.get_ylim()[1]), (4, -12), textcoords="offset points", fontsize=9)
    axes.set(xlabel="configs", ylabel="slower than with its own best", ylim=(0, None))
    axes.set_xticks(counts)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set_title(title.replace("$", r"\$"), loc="left", fontsize=11, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=FAINT, lw=1.2)
    figure.savefig(path, dpi=150)
