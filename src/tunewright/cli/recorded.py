"""Recorded: from what mode=record noted back to kernels and arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tunewright.cases.inputs import Inputs
from tunewright.cli import output
from tunewright.cli.targets import callable_at, session_for
from tunewright.errors import NoDecision, TunewrightError
from tunewright.fronts.tuned import Tuned
from tunewright.operators.dispatching import Dispatched
from tunewright.report import words
from tunewright.sharing import wire
from tunewright.sharing.offers import Wants
from tunewright.sharing.records import Want
from tunewright.stores import places


def calls(target: str | None, store: str | None) -> Iterator[tuple[Tuned | Dispatched, list[Any]]]:
    """Each undecided kernel with arguments to tune it on, by time at stake; of one kernel, if a target says which."""
    kernel = callable_at(target) if target else None
    session = session_for(None, {"store": store})
    kept = places.truth(session.settings.store_location)
    wants = list(kept.wanted(kernel.name if kernel else None)) if isinstance(kept, Wants) else []
    if not wants:
        raise NoDecision(
            f"nothing is recorded as missing in {session.settings.store_name}. "
            "Run your program with TUNEWRIGHT_MODE=record first, then this command again."
        )
    total = sum(want.seconds for want in wants)
    click.echo(f"{words.counted(len(wants), 'key')} to tune, {words.seconds(total)} of calls at stake", err=True)
    for number, want in enumerate(wants, 1):
        click.echo(f"{number} of {len(wants)}: {said(want)}", err=True)
        try:
            yield _call(want, kernel or callable_at(want.target))
        except (TunewrightError, click.ClickException) as error:
            click.echo(f"  passed over: {error}", err=True)


def said(want: Want) -> str:
    """A want in words."""
    return (
        f"{want.key.kernel}  {want.key.signature} · {words.counted(want.calls, 'call')}, "
        f"{words.seconds(want.seconds)} at stake"
    )


def _call(want: Want, kernel: Tuned | Dispatched) -> tuple[Tuned | Dispatched, list[Any]]:
    if not want.recipe:
        raise NoDecision("its arguments cannot be made again; give the kernel an `inputs=` function")
    args = list(kernel.make(wire.decode(want.recipe, Inputs)))
    key = kernel.problem(args).key
    if key != want.key:
        fields = ", ".join(
            f"{name} is {mine} here, {theirs} there" for name, (mine, theirs) in key.differences(want.key).items()
        )
        raise NoDecision(f"it was recorded for another key: {fields}")
    return kernel, args


def listed(wants: list[Want]) -> None:
    """Wants as a table."""
    heads = ("kernel", "arguments", "device", "calls", "at stake", "found at")
    output.table(
        heads,
        (
            (w.key.kernel, w.key.signature, w.key.device, f"{w.calls:,}", words.seconds(w.seconds), w.target)
            for w in wants
        ),
    )
