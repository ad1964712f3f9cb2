"""Shapes of a kernel: every shape by the configs of its cover, how much slower each is, and the rule that chooses."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from tunewright.dashboard import components
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.saved_reports import requires_extension
from tunewright.dashboard.views import PageNotFound, Views
from tunewright.errors import SettingsError
from tunewright.report import cover_plot, formatting
from tunewright.report.markup import Markup, el, join_markup, link, table
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import RuleLeaf, RuleSplit

if TYPE_CHECKING:
    from tunewright.report.cover_plot import CurvePoint
    from tunewright.shapes.cover import Cover

WITHIN = 0.05
"""The share within which each shape has a config."""

WORST = 0.5
"""The regret of the darkest cells."""

MAX_SHAPES, MOST_PREDICTED = 300, 10_000
"""Shapes that are shown, and times that are predicted: a page must not take long."""

WIDTH, HEIGHT = 360, 160


def shapes(views: Views, query: Query) -> PageContent:
    """Renders the shapes of a kernel that were tuned, by the configs of their cover."""
    with requires_extension("tunewright.shapes"):
        from tunewright.shapes.cover import cover, curve  # noqa: PLC0415 - an extension, which may be absent
        from tunewright.shapes.estimates import with_estimates  # noqa: PLC0415 - as above
        from tunewright.shapes.rules import fit_rule  # noqa: PLC0415 - as above
        from tunewright.shapes.table import ShapeTable  # noqa: PLC0415 - as above

    name = query.get("name", "")
    try:
        found = cover(with_estimates(ShapeTable.from_store(views.store, name), MOST_PREDICTED), WITHIN)
    except SettingsError as error:
        raise PageNotFound(f"No shapes of {name[:80]!r} are tuned: {error}") from error
    rule = fit_rule(found, name)
    chosen = [found.table.configs.index(Config(rule.leaf(found.table.named(i)).config)) for i in _shown(found)]
    regrets = [float(found.table.regret[i, config]) for i, config in enumerate(chosen)]
    finite = [regret for regret in regrets if isfinite(regret)]
    facts = (
        (f"{len(found.table.shapes):,}", "shapes", None),
        (f"{len(found.configs)}", "configs", f"of {len(found.table.configs):,}, each shape within {WITHIN:.0%}"),
        (f"{sum(finite) / len(finite):.1%}" if finite else "-", "slower with the rule", "in the mean"),
    )
    body = [
        components.link_list([link(f"All of {name}", "/kernel", name=name)]),
        components.cards(facts),
        components.section("Rule", el("div", _rule(rule.tree), class_="rule")),
        _matrix(found, chosen),
        _regrets(found, regrets),
        components.section("Number of configs", _curve(curve(found.table))),
    ]
    return PageContent(f"Shapes of {name}", join_markup(body))


def _shown(found: Cover) -> range:
    return range(min(MAX_SHAPES, len(found.table.shapes)))


def _sizes(found: Cover, shape: int) -> str:
    return " ".join(f"{name}={size}" for name, size in found.table.named(shape).items())


def _matrix(found: Cover, chosen: Sequence[int]) -> Markup:
    """Renders shapes by configs; what the rule chooses is marked."""
    heads = ("shape", *(components.config_code(found.config(config)) for config in found.configs))
    rows = [
        (_sizes(found, i), *(_cell(found, i, config, config == chosen[i]) for config in found.configs))
        for i in _shown(found)
    ]
    about = (
        "How much slower than the best of the shape; brighter is faster, ◆ is what the rule chooses, ≈ is predicted."
    )
    return components.section(
        "Shapes and configs", el("div", table("Shapes by configs", heads, rows), class_="heat"), about=about
    )


def _cell(found: Cover, shape: int, config: int, is_chosen: bool) -> Markup:
    regret = float(found.table.regret[shape, config])
    if not isfinite(regret):
        return el("td", el("span", "not verified", class_="faint"))
    about, mark = "" if found.table.verified[shape, config] else "≈ ", " ◆" if is_chosen else ""
    return el("td", f"{about}{regret:.1%}{mark}", data_level=components.level(1 - regret / WORST))


def _regrets(found: Cover, regrets: Sequence[float]) -> Markup:
    """Renders the regret of each shape with the rule, the largest first."""
    order = sorted(_shown(found), key=lambda i: -regrets[i])
    rows = [(_sizes(found, i), _text(regrets[i]), components.bar(regrets[i] / WORST, _text(regrets[i]))) for i in order]
    heads = ("shape", "slower than with its best", "")
    return components.section("Regret by shape", table("Regret by shape", heads, rows, numbers=(1,)))


def _text(regret: float) -> str:
    return f"{regret:.1%}" if isfinite(regret) else "not verified"


def _rule(node: RuleSplit | RuleLeaf) -> Markup:
    """Renders a rule as nested lists."""
    if isinstance(node, RuleLeaf):
        what = f" {formatting.counted(node.shapes, 'shape')}, {node.regret:.1%} slower than with the best"
        return join_markup([components.config_code(Config(node.config)), el("small", what)])
    sides = ((f"{node.size} ≤ {node.at_most}", node.low), (f"{node.size} > {node.at_most}", node.high))
    return el("ul", (el("li", el("strong", text), " ", _rule(side)) for text, side in sides))


def _curve(points: Sequence[CurvePoint]) -> Markup:
    """Draws the mean regret by the number of configs, with a table for whoever cannot see it."""
    rows = [(point.configs, f"{point.mean:.1%}", f"{point.worst:.1%}", point.unserved) for point in points]
    heads = ("configs", "mean slower", "worst", "shapes not served")
    points = cover_plot.drawable(points)
    most = max(*(point.mean for point in points), 1e-9)
    across = (WIDTH - 20) / max(1, len(points) - 1)
    places = [f"{10 + across * i:.1f},{HEIGHT - 10 - (HEIGHT - 20) * p.mean / most:.1f}" for i, p in enumerate(points)]
    line: Any = el("polyline", points=" ".join(places), fill="none", stroke="currentColor", stroke_width=2)
    label = f"Mean regret from {points[0].mean:.1%} with one config to {points[-1].mean:.1%} with {points[-1].configs}"
    picture = el("svg", line, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, width=WIDTH, height=HEIGHT)
    return join_markup([picture, table("Slower by the number of configs", heads, rows, numbers=(1, 2, 3))])
