"""`tunewright cover`: few configs for all tuned shapes of a kernel, and a rule that chooses between them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from tunewright.cli import output
from tunewright.cli.completion import complete_kernel
from tunewright.cli.quantities import parse_share
from tunewright.cli.targets import json_option, load_kernel, session_to_read, store_option
from tunewright.report import cover_plot
from tunewright.report.cover_plot import CurvePoint
from tunewright.report.formatting import counted
from tunewright.shapes.checking import CheckedShape, race_rule, unseen_shapes
from tunewright.shapes.cover import Cover, cover, curve
from tunewright.shapes.estimates import with_estimates
from tunewright.shapes.export import to_c_header, to_json, to_python
from tunewright.shapes.rules import fit_rule, rule_lines
from tunewright.shapes.serving import rule_decision
from tunewright.shapes.table import ShapeTable, journals_of
from tunewright.spaces.shape_rule import ShapeRule

FEW = 5
"""Trials of a shape below which its best config may not be known."""

WRITERS = {".json": to_json, ".py": to_python, ".h": to_c_header}


@click.command("cover")
@click.argument("kernel", shell_complete=complete_kernel)
@click.option(
    "--within",
    default="5%",
    show_default=True,
    callback=parse_share,
    help="How much slower than its best a shape may be.",
)
@click.option(
    "--rule",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a rule that chooses between the configs: .json, .py or .h.",
)
@click.option(
    "--confidence",
    default="90%",
    show_default=True,
    callback=parse_share,
    help="How sure it must be that a shape is within that, as far as the samples of trials say.",
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the curve: .png or .svg.")
@click.option("--race", "target", metavar="FILE.py:NAME", help="Race the rule on shapes that it was not fitted on.")
@click.option("--sample", type=click.IntRange(min=1), default=6, show_default=True, help="How many of them.")
@click.option("--serve", is_flag=True, help="Store the rule, so that frozen mode serves it where nothing is decided.")
@store_option
@json_option
def cover_command(kernel: str, within: float, confidence: float, path: Path | None, **options: Any) -> None:
    """Find few configs that serve all tuned shapes of a kernel.

    From the stored trials of KERNEL: the smallest set of configs of which every shape has one that is nearly as fast as
    its own best. A config serves only shapes on which it was tried and its results were right, and others of their
    power-of-two buckets, as fast as a model predicts. Shapes that were tuned with the same configs need no prediction:
    the exhaustive strategy does that.
    """
    if path is not None and path.suffix not in WRITERS:
        raise click.UsageError(f"{path} does not end in {', '.join(WRITERS)}; its end says what is written")
    kernel = kernel.rpartition(".py:")[2]  # other commands take FILE.py:NAME
    store = session_to_read(options["store"]).store
    journals = journals_of(store, kernel)
    table = with_estimates(ShapeTable.of_decided(store, journals))
    found = cover(table, within, confidence)
    rule = fit_rule(found, kernel)
    if path is not None:
        path.write_text(WRITERS[path.suffix](rule))
    if options["serve"]:
        store.put(rule_decision(rule, found, journals[0][0]))
    points = curve(table)
    if options["plot"] is not None:
        cover_plot.draw(options["plot"], points, _headline(found), len(found.configs))
        click.echo(f"{options['plot']}: the curve", err=True)
    checked = _race(options["target"], rule, found, options["sample"]) if options["target"] else []
    if options["as_json"]:
        output.print_json(_as_json(found, rule, points) | {"raced": [asdict(one) for one in checked]})
        return
    _print(found, rule, points)
    _print_raced(checked)
    if path is not None:
        output.echo(f"\n{path}: the rule; shapes in buckets without a verified config are not served by it")
    if options["serve"]:
        output.echo("\nstored: frozen mode serves the rule, after what is decided and before the nearest shape")


def _race(target: str, rule: ShapeRule, found: Cover, count: int) -> list[CheckedShape]:
    """Races the rule on shapes of the same buckets that were not tuned."""
    kernel = load_kernel(target)
    return [race_rule(kernel, rule, sizes) for sizes in unseen_shapes(rule, found.table, count)]


def _print_raced(checked: list[CheckedShape]) -> None:
    if not checked:
        return
    output.echo("\nraced on shapes that the rule was not fitted on:")
    rows = [
        (" ".join(f"{n}={s}" for n, s in one.sizes.items()), one.config, one.problem or f"{one.regret:.1%} slower")
        for one in checked
    ]
    output.print_table(("shape", "config", "than the fastest of the rule"), rows)
    wrong = any(one.problem for one in checked)
    output.echo("some are wrong there: do not use the rule" if wrong else "all results were right there")


def _headline(found: Cover) -> str:
    return (
        f"{counted(len(found.configs), 'config')} of {len(found.table.configs)} for "
        f"{counted(len(found.table.shapes), 'shape')}, each within {100 * found.within:.3g}% of its best"
    )


def _print(found: Cover, rule: ShapeRule, points: list[CurvePoint]) -> None:
    verified = found.table.estimated is None and bool(np.isfinite(found.table.regret).all())
    fewer = "no fewer will do" if verified else "no fewer will do of what worked there"
    proof = fewer if found.is_smallest else "fewer may do"
    output.echo(f"{_headline(found)}; {proof}", "bold")
    if found.table.errors is not None:
        noisy = f"; {counted(len(found.unsure), 'shape')} too noisy for that" if found.unsure else ""
        output.echo(f"with {found.confidence:.0%} confidence for each shape{noisy}")
    if found.table.estimated is not None:
        guessed, works = int(found.table.estimated.sum()), int(found.table.works.sum())
        output.echo(
            f"{guessed:,} of {works:,} times are predicted: of configs that worked on a shape of the same bucket"
        )
    output.print_table(("config", "for"), [(found.config(c), found.describe(c)) for c in found.configs])
    if few := int((found.table.verified.sum(axis=1) < FEW).sum()):
        output.echo(
            f"{counted(few, 'shape')} had fewer than {FEW} trials, so their best may not be known: tune them on"
        )
    output.echo("\nwith fewer or more configs, each the one that helps the mean most:")
    rows = [(point.configs, f"{point.mean:.1%}", f"{point.worst:.1%}", point.unserved or "") for point in points]
    output.print_table(("configs", "mean slower", "worst", "shapes not served"), rows)
    output.echo("\nas a rule:")
    for line in rule_lines(rule):
        output.echo(line)


def _as_json(found: Cover, rule: ShapeRule, points: list[CurvePoint]) -> dict[str, Any]:
    configs = [
        {"config": found.config(c), "shapes": [found.table.named(shape) for shape in found.shapes_of(c)]}
        for c in found.configs
    ]
    return {
        "within": found.within,
        "is_smallest": found.is_smallest,
        "confidence": found.confidence,
        "unsure": [found.table.named(shape) for shape in found.unsure],
        "configs": configs,
        "estimated": 0 if found.table.estimated is None else int(found.table.estimated.sum()),
        "curve": [point._asdict() for point in points],
        "rule": rule,
    }
