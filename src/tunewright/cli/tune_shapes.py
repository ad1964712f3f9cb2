"""`tunewright tune --shapes`: many shapes of a kernel together, within one budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.targets import make_session
from tunewright.engine.budget import Budget
from tunewright.kernel.tuned import Tuned
from tunewright.model.decision import Decision
from tunewright.model.trial import Trial
from tunewright.report import formatting
from tunewright.session import Session
from tunewright.settings import Mode
from tunewright.shapes.table import ShapeTable
from tunewright.shapes.tuning import JointSearch
from tunewright.shapes.weighted import read_shapes, recorded_shapes
from tunewright.stores import locations

if TYPE_CHECKING:
    from tunewright.operators.dispatch import DispatchedOperator

RECORDED = "recorded"
UNUSED = ("proposer", "record_proposals", "strategy", "fresh", "more")
"""Options of a search of one shape, which mean nothing here."""


def tune_shapes(kernel: Tuned | DispatchedOperator, place: str, typed: Mapping[str, Any]) -> None:
    """Tunes a kernel for the shapes in a file, or for those that were recorded, and shows what was done."""
    if not isinstance(kernel, Tuned):
        raise click.UsageError("--shapes tunes kernels made with @tunewright.tune; name one")
    if given := [name for name in UNUSED if typed.get(name)]:
        raise click.UsageError(f"--shapes decides by itself where trials go; leave out --{given[0].replace('_', '-')}")
    settings = {name: typed.get(name) for name in ("store", "seed", "pool")} | {"mode": Mode.TUNE}
    overrides = {name: value for name in ("program", "seeds") if (value := typed.get(name))}
    kernel.declaration = msgspec.structs.replace(kernel.declaration, **overrides)
    session = make_session(kernel, settings)
    limit = Budget.parse(typed["budget"]) if typed["budget"] else kernel.budget() or session.budget()
    search = JointSearch(kernel, _shapes(kernel, place, session), session.settings.seed)
    speak = typed["progress"] or not typed["as_json"]
    search.run(limit, _say if speak else lambda sizes, trial: None)
    decisions = search.decide(limit)
    if typed["as_json"]:
        output.print_json(_as_json(search.table, decisions, limit))
    else:
        _print(kernel.name, search.table, decisions, limit)


def _shapes(kernel: Tuned, place: str, session: Session) -> list[tuple[dict[str, int], float]]:
    if place != RECORDED:
        return read_shapes(Path(place), kernel.dims)
    backing = locations.open_authoritative(session.settings.store_location)
    return recorded_shapes(backing, kernel.name, kernel.dims)


def _say(sizes: Mapping[str, int], trial: Trial) -> None:
    time = formatting.seconds(trial.seconds) if trial.works else "failed"
    click.echo(f"{' '.join(f'{name}={size}' for name, size in sizes.items())}  {trial.config}  {time}", err=True)


def _print(name: str, table: ShapeTable, decisions: list[Decision], budget: Budget) -> None:
    tried = (table.works.any(axis=1)).sum()
    output.echo(
        f"{formatting.counted(budget.spent, 'trial')} on {tried} of {formatting.counted(len(table.shapes), 'shape')}; "
        f"{len(decisions)} decided",
        "bold",
    )
    rows = [(d.key.signature, d.config, formatting.measured(d.evidence.seconds, d.key) if d.evidence else "")
            for d in decisions]  # fmt: skip
    output.print_table(("shape", "config", "time"), rows)
    if len(decisions) < len(table.shapes):
        output.echo(f"\nfor the others: tunewright cover {name} --serve")


def _as_json(table: ShapeTable, decisions: list[Decision], budget: Budget) -> dict[str, Any]:
    shapes = [
        {"sizes": table.named(i), "weight": float(table.weights[i]), "trials": int((table.works[i]).sum())}
        for i in range(len(table.shapes))
    ]
    return {"trials": budget.spent, "shapes": shapes, "decisions": output.to_builtins(decisions)}
