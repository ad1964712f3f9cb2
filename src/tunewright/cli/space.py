"""`tunewright space`: knobs, rules and size of a kernel's space."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from tunewright.cli import output
from tunewright.cli.completion import complete_target
from tunewright.cli.targets import json_option, load_kernel
from tunewright.errors import SpaceError
from tunewright.kernel.tuned import Tuned
from tunewright.report import formatting
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space

RULE_SAMPLES = 20_000
"""How many random configs estimate the share that a rule excludes."""


@click.command()
@click.argument("target", shell_complete=complete_target)
@click.option("--sample", "count", type=click.IntRange(min=0), default=0, help="Also show this many random configs.")
@json_option
def space(target: str, count: int, as_json: bool) -> None:
    """Describe a kernel's space: knobs, rules, size.

    TARGET is FILE.py:NAME or module:NAME. Each rule says how much of the space it excludes.
    """
    kernel = load_kernel(target)
    declared = kernel.space
    started = time.process_time()
    try:
        feasible: int | None = declared.size
    except SpaceError:
        feasible = None
    seconds = time.process_time() - started
    samples = declared.sample(np.random.default_rng(0), count) if count else []
    rules = _rule_shares(declared)
    if as_json:
        description = _describe(kernel, feasible, rules)
        output.print_json({**description, "seconds": seconds, "default": kernel.default, "sample": samples})
        return
    size = "too many to enumerate" if feasible is None else f"{feasible:,} feasible"
    output.echo(
        f"{kernel.name}: {declared.combinations:,} combinations, {size} ({formatting.seconds(seconds)} CPU)", "bold"
    )
    output.print_table(
        ("knob", "variant", "values"),
        ([knob.name, variant, str(knob)] for variant, knob in _knobs(declared)),
    )
    if rules:
        output.echo()
        output.print_table(
            ("rule", "variant", "excludes"),
            ([rule.reason, variant, f"{100 * share:.1f} %"] for variant, rule, share in rules),
        )
    output.echo()
    if excluded := _left_out(kernel.full_space, declared):
        output.echo(f"left out, since they change numerics: {excluded}; allow them by name with numerics=[...]")
    output.echo(f"default: {kernel.default}")
    for config in samples:
        output.echo(f"sample:  {config}")


def _describe(kernel: Tuned, feasible: int | None, rules: list[tuple[str, Rule, float]]) -> dict[str, Any]:
    """Returns what the space of a kernel has, as JSON."""
    declared = kernel.space
    return {
        "combinations": declared.combinations,
        "feasible": feasible,
        "variants": declared.sizes() if declared.variants and feasible is not None else {},
        "knobs": {knob.name: _values(knob) for _, knob in _knobs(declared)},
        "rules": [{"variant": variant, "reason": rule.reason, "excludes": share} for variant, rule, share in rules],
        "left_out": _left_out(kernel.full_space, declared),
    }


def _knobs(declared: Space) -> list[tuple[str, Knob]]:
    """Returns all knobs, each with the name of its variant, which is empty for shared ones."""
    own = [(variant.name, knob) for variant in declared.variants for knob in variant.knobs]
    return [("", knob) for knob in declared.knobs] + own


def _values(knob: Knob) -> Any:
    """Returns the values of a knob as JSON."""
    if knob.range is None:
        return list(knob.values)
    return {"low": knob.range.low, "high": knob.range.high, "step": knob.range.step, "scale": knob.range.scale}


def _left_out(full: Space, declared: Space) -> str:
    """Returns values and variants that change numerics and are not allowed."""
    allowed = {(variant, knob.name): knob.values for variant, knob in _knobs(declared) if knob.range is None}
    names = {variant.name for variant in declared.variants}
    variants = [variant.name for variant in full.variants if variant.name not in names]
    values = [
        f"{knob.name}={value}"
        for variant, knob in _knobs(full)
        for value in (knob.values if knob.range is None else ())
        if variant not in variants and value not in allowed.get((variant, knob.name), ())
    ]
    return ", ".join(values + variants)


def _rule_shares(declared: Space) -> list[tuple[str, Rule, float]]:
    """Returns each rule with its variant and the estimated share of its knobs' combinations that it excludes."""
    shares = [("", rule, _share(rule, declared.knobs)) for rule in declared.rules]
    for variant in declared.variants:
        shares += [(variant.name, rule, _share(rule, declared.knobs + variant.knobs)) for rule in variant.rules]
    return shares


def _share(rule: Rule, knobs: Sequence[Knob]) -> float:
    rng = np.random.default_rng(0)
    read = [next(knob for knob in knobs if knob.name == name) for name in rule.reads]
    codes: list[Any] = [rng.integers(len(knob), size=RULE_SAMPLES) for knob in read]
    return 1.0 - float(rule.mask(read, codes).mean())
