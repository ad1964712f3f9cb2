"""Ten thousand random lengths of a recorded kernel, each served by a rule that was fitted on few of them.

The table is that of `buckets.py`: between recorded lengths, the logarithm of a config's time is interpolated.

- `p95`, `p95_mean`, `p95_worst`: regret with the rule of the cover within 5 %, whether it may serve the bucket or not.
- `p95_model`: with the config that the joint model predicts from eight of the lengths.
- `p95_nearest`: with the best config of the nearest recorded length; `p95_floor`: with the best of that very length,
  chosen by some passes and judged by others. What the noise costs is in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from shapes_joint import TUNED
from shapes_table import WITHIN, Floats, Table, shape_table

from tunewright.shapes.cover import cover
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.rules import fit_rule
from tunewright.shapes.selection import shapes_to_tune
from tunewright.spaces.config import Config

KEPT = Path(__file__).resolve().parent.parent / "spaces" / "lengths"


class Between:
    """Seconds of every config at any length."""

    def __init__(self, table: Table) -> None:
        self._at = np.log([shape[0] for shape in table.shapes])
        order = np.argsort(self._at)
        self._at = self._at[order]
        self._halves = [np.log(half[order]) for half in (table.chosen_by, table.judged_by)]

    def seconds(self, length: int, *, judged: bool) -> Floats:
        """All configs at one length: recorded, or between the recorded ones beside it."""
        here, half = np.log(length), self._halves[judged]
        right = int(np.clip(np.searchsorted(self._at, here), 1, len(self._at) - 1))
        share = (here - self._at[right - 1]) / (self._at[right] - self._at[right - 1])
        return np.asarray(np.exp((1 - share) * half[right - 1] + share * half[right]))


def length_figures(count: int) -> dict[str, Any]:
    """All of them, for so many lengths; nothing if no table is kept."""
    paths = sorted(KEPT.glob("*.parquet"))
    if not paths:
        return {}
    table = Table.read(paths[0])
    known, between, rest = shape_table(table), Between(table), table.shapes[0][1:]
    drawn = np.random.default_rng(0).integers(1, max(shape[0] for shape in table.shapes) + 1, count)
    lengths, times = np.unique(drawn, return_counts=True)
    judged = {int(m): between.seconds(int(m), judged=True) for m in lengths}

    def regret(choose: Callable[[int], int]) -> Floats:
        found = [judged[m][choose(m)] / judged[m].min() - 1 for m in judged]
        return np.repeat(found, times)

    rule = fit_rule(cover(known, WITHIN), "gemm")
    model = JointModel(known.only(shapes_to_tune(known.only([]), TUNED)))
    best = table.chosen_by.argmin(axis=1)
    logs = np.log([shape[0] for shape in table.shapes])
    by_rule = regret(lambda m: known.configs.index(Config(rule.leaf(known.named(0) | {"M": m}).config)))
    ways = {
        "p95_model": lambda m: model.best((m, *rest)),
        "p95_nearest": lambda m: int(best[np.abs(logs - np.log(m)).argmin()]),
        "p95_floor": lambda m: int(between.seconds(m, judged=False).argmin()),
    }
    return {
        "p95": told(by_rule),
        "p95_mean": round(float(by_rule.mean()), 4),
        "p95_worst": round(float(by_rule.max()), 4),
        **{name: told(regret(choose)) for name, choose in ways.items()},
    }


def told(regret: Floats) -> float:
    return round(float(np.quantile(regret, 0.95)), 4)


def length_line(said: dict[str, Any]) -> str:
    """For people."""
    if not said:
        return "no table of lengths is kept"
    return (
        f"random lengths: 95 % lose less than {said['p95']:.1%} with the rule, {said['p95_model']:.1%} with the model, "
        f"{said['p95_nearest']:.1%} with the nearest recorded length, {said['p95_floor']:.1%} with their own best"
    )
