"""`tunewright tune --shapes`: many shapes of a kernel together, within one budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

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
    lines = _TrialLines(limit, search.table) if typed["progress"] or not typed["as_json"] else None
    try:
        search.run(limit, lines.trial if lines else lambda sizes, trial: None)
        decisions = search.decide(limit, lines.race if lines else lambda sizes, left: None)
    except KeyboardInterrupt:
        kept = formatting.counted(int((~np.isnan(search.table.seconds)).sum()), "trial")
        click.echo(f"interrupted; kept: {kept}. Run the same command to go on.", err=True)
        raise
    if typed["as_json"]:
        output.print_json(_as_json(search.table, decisions, limit))
    else:
        _print(kernel.name, search.table, decisions, limit)


def _shapes(kernel: Tuned, place: str, session: Session) -> list[tuple[dict[str, int], float]]:
    if place != RECORDED:
        return read_shapes(Path(place), kernel.dims)
    backing = locations.open_authoritative(session.settings.store_location)
    return recorded_shapes(backing, kernel.name, kernel.dims)


class _TrialLines:
    """Says what each trial found, how many were made, and what is left."""

    def __init__(self, budget: Budget, table: ShapeTable) -> None:
        self._budget, self._began, self._made = budget, monotonic(), 0
        best = np.where(table.works, table.seconds, np.inf).min(axis=1)
        self._best = {tuple(sorted(table.named(i).items())): float(best[i]) for i in table.timed}
        if known := int((~np.isnan(table.seconds)).sum()):
            click.echo(f"known from before, at no cost: {formatting.counted(known, 'trial')}", err=True)

    def trial(self, sizes: Mapping[str, int], trial: Trial) -> None:
        """Says what a trial found; the best of each shape is marked as soon as there is another."""
        self._made += 1
        shape, time = tuple(sorted(sizes.items())), formatting.seconds(trial.seconds) if trial.works else "failed"
        before = self._best.get(shape)
        if trial.works:
            self._best[shape] = min(trial.seconds, before or trial.seconds)
        best = "  best of the shape" if trial.works and before and trial.seconds < before else ""
        click.echo(f"{self._progress()}  {_named(sizes)}  {trial.config}  {time}{best}", err=True)

    def race(self, sizes: Mapping[str, int], left: int) -> None:
        """Says which shape is decided next."""
        click.echo(f"racing the best configs of {_named(sizes)}; {left:,} more to decide", err=True)

    def _progress(self) -> str:
        of = "" if self._budget.trials is None else f" of {self._budget.trials:,}"
        return f"{self._made:,}{of}{self._left()}"

    def _left(self) -> str:
        guesses = [] if self._budget.seconds is None else [self._budget.left()]
        if self._budget.trials is not None:
            guesses.append((self._budget.trials - self._made) * (monotonic() - self._began) / self._made)
        return f", {formatting.clock(max(0.0, min(guesses)))} left, then races" if guesses else ""


def _named(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


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
    if not decisions:
        output.echo("\nnothing is decided: too few trials worked, or no time was left to race; give a larger --budget")
    elif len(decisions) < len(table.shapes):
        output.echo(f"\nfor others in the same power-of-two buckets: tunewright cover {name} --serve")


def _as_json(table: ShapeTable, decisions: list[Decision], budget: Budget) -> dict[str, Any]:
    shapes = [
        {"sizes": table.named(i), "weight": float(table.weights[i]), "trials": int((table.works[i]).sum())}
        for i in range(len(table.shapes))
    ]
    return {"trials": budget.spent, "shapes": shapes, "decisions": output.to_builtins(decisions)}
