"""Kernels and arguments of the misses that mode=record recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tunewright.cases.inputs import Inputs
from tunewright.cli import output
from tunewright.cli.targets import load_tunable, make_session
from tunewright.errors import NoDecision, TunewrightError
from tunewright.kernel.tuned import Tuned
from tunewright.report import formatting
from tunewright.stores import locations, serialization
from tunewright.stores.capabilities import RecordsMisses
from tunewright.stores.statistics import MissRecord

if TYPE_CHECKING:
    from tunewright.operators.dispatch import DispatchedOperator


def recorded_calls(target: str | None, store: str | None) -> Iterator[tuple[Tuned | DispatchedOperator, list[Any]]]:
    """Yields each undecided kernel with arguments to tune it on, most time at stake first; or only `target`."""
    kernel = load_tunable(target) if target else None
    session = make_session(None, {"store": store})
    backing = locations.open_authoritative(session.settings.store_location)
    misses = list(backing.misses(kernel.name if kernel else None)) if isinstance(backing, RecordsMisses) else []
    if not misses:
        raise NoDecision(
            f"nothing is recorded as missing in {session.settings.store_name}. "
            "Run your program with TUNEWRIGHT_MODE=record first, then this command again."
        )
    total = sum(miss.seconds for miss in misses)
    click.echo(
        f"{formatting.counted(len(misses), 'key')} to tune, {formatting.seconds(total)} of calls at stake", err=True
    )
    for number, miss in enumerate(misses, 1):
        click.echo(f"{number} of {len(misses)}: {_describe(miss)}", err=True)
        try:
            yield _reproduce(miss, kernel or load_tunable(miss.target))
        except (TunewrightError, click.ClickException) as error:
            click.echo(f"  skipped: {error}", err=True)


def _describe(miss: MissRecord) -> str:
    return (
        f"{miss.key.kernel}  {miss.key.signature} · {formatting.counted(miss.calls, 'call')}, "
        f"{formatting.seconds(miss.seconds)} at stake"
    )


def _reproduce(miss: MissRecord, kernel: Tuned | DispatchedOperator) -> tuple[Tuned | DispatchedOperator, list[Any]]:
    """Returns a kernel with arguments like those of a recorded call."""
    if not miss.recipe:
        raise NoDecision("its arguments cannot be reproduced; give the kernel an `inputs=` function")
    args = list(kernel.make(serialization.decode(miss.recipe, Inputs)))
    key = kernel.problem(args).key
    if key != miss.key:
        fields = ", ".join(
            f"{name} is {mine} here, {theirs} there" for name, (mine, theirs) in key.differences(miss.key).items()
        )
        raise NoDecision(f"it was recorded for another key: {fields}")
    return kernel, args


def print_misses(misses: list[MissRecord]) -> None:
    """Prints misses as a table."""
    heads = ("kernel", "arguments", "device", "calls", "at stake", "found at")
    output.print_table(
        heads,
        (
            (
                miss.key.kernel,
                miss.key.signature,
                miss.key.device,
                f"{miss.calls:,}",
                formatting.seconds(miss.seconds),
                miss.target,
            )
            for miss in misses
        ),
    )
