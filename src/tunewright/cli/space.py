"""Space: what a kernel's space looks like, and which rule excludes how much."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from tunewright.cli import output
from tunewright.cli.targets import json_option, kernel_at
from tunewright.errors import SpaceError
from tunewright.report import words
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space

DRAWN = 20_000


@click.command()
@click.argument("target")
@click.option("--sample", "count", type=click.IntRange(min=0), default=0, help="Also show this many random configs.")
@json_option
def space(target: str, count: int, as_json: bool) -> None:
    """Describe the space of the kernel TARGET: knobs, rules, size.

    TARGET is FILE.py:NAME or module:NAME. Each rule says how much of the space it excludes.
    """
    kernel = kernel_at(target)
    declared = kernel.space
    started = time.process_time()
    try:
        feasible: int | None = declared.size
    except SpaceError:
        feasible = None
    took = time.process_time() - started
    drawn = declared.sample(np.random.default_rng(0), count) if count else []
    rules = _excluded(declared)
    if as_json:
        output.as_json(
            {
                "combinations": declared.combinations,
                "feasible": feasible,
                "seconds": took,
                "variants": declared.sizes() if declared.variants and feasible is not None else {},
                "knobs": {knob.name: list(knob.values) for _, knob in _knobs(declared)},
                "rules": [{"variant": v, "reason": rule.reason, "excludes": share} for v, rule, share in rules],
                "left_out": _left_out(kernel.offered, declared),
                "default": kernel.default,
                "sample": drawn,
            }
        )
        return
    size = "too many to enumerate" if feasible is None else f"{feasible:,} feasible"
    output.say(f"{kernel.name}: {declared.combinations:,} combinations, {size} ({words.seconds(took)} CPU)", "bold")
    output.table(
        ("knob", "variant", "values"), ([k.name, v, ", ".join(map(str, k.values))] for v, k in _knobs(declared))
    )
    if rules:
        output.say()
        output.table(("rule", "variant", "excludes"), ([r.reason, v, f"{100 * share:.1f} %"] for v, r, share in rules))
    output.say()
    if left := _left_out(kernel.offered, declared):
        output.say(f"left out, since they change numerics: {left}; allow them by name with numerics=[...]")
    output.say(f"default: {kernel.default}")
    for config in drawn:
        output.say(f"sample:  {config}")


def _knobs(declared: Space) -> list[tuple[str, Knob]]:
    own = [(variant.name, knob) for variant in declared.variants for knob in variant.knobs]
    return [("", knob) for knob in declared.knobs] + own


def _left_out(offered: Space, declared: Space) -> str:
    """Values and variants that are offered, but change numerics and are not allowed."""
    kept = {(v, knob.name): knob.values for v, knob in _knobs(declared)}
    gone = [variant.name for variant in offered.variants if variant.name not in {v.name for v in declared.variants}]
    lost = [
        f"{knob.name}={value}"
        for v, knob in _knobs(offered)
        for value in knob.values
        if v not in gone and value not in kept.get((v, knob.name), ())
    ]
    return ", ".join(lost + gone)


def _excluded(declared: Space) -> list[tuple[str, Rule, float]]:
    """Each rule with the share of all combinations of its knobs that it excludes on its own, estimated."""
    found = [("", rule, _share(rule, declared.knobs)) for rule in declared.rules]
    for variant in declared.variants:
        found += [(variant.name, rule, _share(rule, declared.knobs + variant.knobs)) for rule in variant.rules]
    return found


def _share(rule: Rule, knobs: Sequence[Knob]) -> float:
    rng = np.random.default_rng(0)
    read = [next(knob for knob in knobs if knob.name == name) for name in rule.reads]
    codes: list[Any] = [rng.integers(len(knob), size=DRAWN) for knob in read]
    return 1.0 - float(rule.mask(read, codes).mean())
