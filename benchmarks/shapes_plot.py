"""The picture of `shapes.py`: regret by table size, and what neighbours' seeds save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BLUE, ORANGE, GREEN, GREY = "#2563eb", "#ea580c", "#16a34a", "#9ca3af"
VIOLET = "#7c3aed"
WAYS = {
    "random": ("at random", GREY, -3),
    "blend": ("at random, three nearest blended", VIOLET, 3),
    "apart": ("far apart", BLUE, -10),
    "greedy": ("greedily, in hindsight", GREEN, -3),
}


def draw(path: Path, figures: dict[str, Any]) -> None:
    """Two panels, labelled where the lines are."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    figure.suptitle(f"A kernel in C, {figures['shapes']} shapes, {figures['configs']} configs", fontsize=12)
    curves(left, figures)
    seeds(right, figures)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def curves(axes: Any, figures: dict[str, Any]) -> None:
    """Mean regret of shapes that are not tuned, by how many are."""
    sizes = [int(name.removeprefix("table_")) for name in figures if name.startswith("table_")]
    tables = [figures[f"table_{size}"] for size in sizes]
    band = [[table["random"][end] for table in tables] for end in ("low", "high")]
    axes.fill_between(sizes, *band, color=GREY, alpha=0.2, linewidth=0)
    for way, (said, colour, lift) in WAYS.items():
        means = [table[way]["mean"] for table in tables]
        axes.plot(sizes, means, color=colour, marker="o", markersize=4, linewidth=2)
        axes.annotate(said, (sizes[-1], means[-1]), (8, lift), textcoords="offset points", color=colour, fontsize=9)
    buckets = figures["buckets"]
    axes.plot(buckets["size"], buckets["mean"], marker="D", color=ORANGE, markersize=7)
    place = (buckets["size"], buckets["mean"])
    axes.annotate("powers of two", place, (-52, -16), textcoords="offset points", color=ORANGE, fontsize=9)
    floor = figures["floor"]["mean"]
    axes.axhline(floor, color="black", linewidth=1, linestyle=":")
    axes.annotate("a shape's own best: noise", (sizes[0], floor), (0, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.9, 1.15 * sizes[-1])
    axes.set(ylim=(0, None), xlabel="shapes that are tuned", ylabel="regret")
    axes.set_title("Serving all other shapes by the nearest (band: 90 % of draws)", fontsize=10)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def seeds(axes: Any, figures: dict[str, Any]) -> None:
    """How many searches are near the best, by trials."""
    said = {"seeds": ("neighbours' best first", BLUE), "scratch": ("from scratch", GREY)}
    for name, shares in figures["reached"].items():
        label, colour = said[name]
        axes.step(range(1, len(shares) + 1), shares, where="post", color=colour, linewidth=2)
        axes.annotate(label, (30, shares[29]), (0, -14), textcoords="offset points", color=colour, fontsize=9)
    axes.set(xlabel="trials", ylabel="searches within 5 % of the best", xlim=(0, 50), ylim=(0, 1))
    axes.set_title("A new shape, tried at random", fontsize=10)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
