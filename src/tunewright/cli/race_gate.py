"""`tunewright race --fail-if-slower`: an exit status for CI, from two programs or two checkouts raced here and now."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.race_candidates import shorten_names
from tunewright.errors import TunewrightError
from tunewright.gate.checkouts import baseline_checkout, top_folder
from tunewright.gate.sides import Side, in_checkouts, open_sides, parse_side
from tunewright.gate.verdict import GateOptions, GateOutcome, GateResult, run_gate
from tunewright.pools.command_times import CLOCK_NAMES
from tunewright.report import formatting

EXIT_STATUS = {GateOutcome.NOT_SLOWER: 0, GateOutcome.SLOWER: 1, GateOutcome.UNKNOWN: 3}
"""What a gate exits with; 2 is wrong use, or a candidate that fails."""


def race_with_limit(
    candidates: Sequence[str], baseline: str | None, options: GateOptions, flags: str, *, as_json: bool
) -> GateOutcome:
    """Races the last candidate against the first, or against itself at the baseline; prints and returns the outcome."""
    with contextlib.ExitStack() as stack:
        try:
            sides = _open(candidates, baseline, stack)
            contest = stack.enter_context(open_sides(*sides, flags))
            with _progress(options) as show:
                result = run_gate(contest, options, show)
        except TunewrightError as error:
            raise click.ClickException(str(error)) from error
    names = [baseline or "", "here"] if baseline is not None else list(candidates)
    if as_json:
        output.print_json(_to_json(names, result))
    else:
        _print(shorten_names(names), result)
    return result.outcome


def _open(candidates: Sequence[str], baseline: str | None, stack: contextlib.ExitStack) -> tuple[Side, Side]:
    folder = Path.cwd()
    if baseline is None:
        if len(candidates) != 2:
            raise click.UsageError(
                "--fail-if-slower compares two candidates: A, and B that must not be slower; or one with its --baseline"
            )
        return parse_side(candidates[0], folder), parse_side(candidates[1], folder)
    if len(candidates) != 1:
        raise click.UsageError("with --baseline, name one candidate: it is raced against itself at that revision")
    side, top = parse_side(candidates[0], folder), top_folder(folder)
    return in_checkouts(side, top, stack.enter_context(baseline_checkout(baseline, top)))


def _print(names: Sequence[str], result: GateResult) -> None:
    rows = zip(names, map(formatting.seconds, result.seconds), strict=True)
    output.print_table(("candidate", "time per run"), rows)
    output.echo()
    output.echo(
        f"{names[1]} is {result.sentence()}" if result.outcome is not GateOutcome.UNKNOWN else result.sentence()
    )
    output.echo(
        f"{formatting.counted(result.pairs, 'pair')} in {result.elapsed:.1f} s, "
        f"by the {CLOCK_NAMES.get(result.clock, f'{result.clock} clock')}"
    )
    if remedy := result.remedy():
        output.echo(remedy, "yellow")


def _to_json(names: Sequence[str], result: GateResult) -> dict[str, Any]:
    return {
        "outcome": result.outcome,
        "exit": EXIT_STATUS[result.outcome],
        "baseline": names[0],
        "candidate": names[1],
        "ratio": result.ratio,
        "low": result.low,
        "high": result.high,
        "by": result.by,
        "pairs": result.pairs,
        "elapsed": result.elapsed,
        "clock": result.clock,
        "load": result.load,
        "seconds": list(result.seconds),
        "remedy": result.remedy(),
    }


@contextlib.contextmanager
def _progress(options: GateOptions) -> Iterator[Callable[[GateResult], None]]:
    """Yields a callback that shows a status line on a terminal, and does nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda result: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where someone looks

    with Console(stderr=True).status("starting") as status:

        def show(result: GateResult) -> None:
            left = formatting.clock(max(0.0, options.seconds - result.elapsed))
            status.update(f"pair {result.pairs} · {result.low:.3f} to {result.high:.3f} · at most {left} to go")

        yield show
