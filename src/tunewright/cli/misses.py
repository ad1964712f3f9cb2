"""Kernels and arguments of the misses that mode=record recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tunewright.cases.inputs import Inputs
from tunewright.cli import output
from tunewright.cli.targets import load_tunable, load_tunables, session_to_read
from tunewright.errors import NoDecision, TunewrightError
from tunewright.kernel.tuned import Tuned
from tunewright.model.key import Key
from tunewright.report import formatting
from tunewright.session import Session
from tunewright.stores import locations, serialization
from tunewright.stores.capabilities import RecordsMisses
from tunewright.stores.statistics import MissRecord

if TYPE_CHECKING:
    from tunewright.operators.dispatch import DispatchedOperator


SHOWN_PLACES = 5
OWN_PLACE = "tunewright.operators"
"""The only module that a record may name by itself: it is ours."""

_UNMAKABLE = (ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""What a recipe that makes no sense raises."""


def recorded_calls(targets: Sequence[str], store: str | None) -> Iterator[tuple[Tuned | DispatchedOperator, list[Any]]]:
    """Yields each undecided kernel with arguments to tune it on, most time at stake first.

    A record of the store selects a kernel of `targets` by its name. Where the record says that the kernel is defined
    is only shown: whoever can write to the store would otherwise choose what runs here.
    """
    kernels = {kernel.name: kernel for target in targets for kernel in load_tunables(target)}
    session = session_to_read(store)
    backing = locations.open_authoritative(session.settings.store_location)
    misses = list(backing.misses()) if isinstance(backing, RecordsMisses) else []
    if not misses:
        raise NoDecision(
            f"nothing is recorded as missing in {session.settings.store_name}. "
            "Run your program with TUNEWRIGHT_MODE=record first, then this command again."
        )
    chosen = [miss for miss in misses if miss.key.kernel in kernels or _is_own(miss.target)]
    if len(chosen) < len(misses):
        click.echo(_describe_others([miss for miss in misses if miss not in chosen]), err=True)
    if not chosen:
        raise NoDecision("nothing was tuned: name the files or modules of the kernels that you want tuned")
    total = sum(miss.seconds for miss in chosen)
    click.echo(
        f"{formatting.counted(len(chosen), 'key')} to tune, {formatting.seconds(total)} of calls at stake", err=True
    )
    for number, miss in enumerate(chosen, 1):
        click.echo(f"{number} of {len(chosen)}: {_describe(miss)}", err=True)
        try:
            yield _reproduce(miss, kernels.get(miss.key.kernel) or load_tunable(miss.target), session)
        except (TunewrightError, click.ClickException) as error:
            click.echo(f"  skipped: {formatting.one_line(str(error), 400)}", err=True)


def _is_own(target: str) -> bool:
    place, _, name = target.partition(":")
    return place == OWN_PLACE and name.isidentifier() and not name.startswith("_")


def _describe_others(misses: Sequence[MissRecord]) -> str:
    """Says what is left out, and how to have it tuned."""
    places = dict.fromkeys(f"{miss.key.kernel} ({miss.target or 'of no file'})" for miss in misses)
    shown = [formatting.one_line(place, 120) for place in places]
    more = f" and {len(shown) - SHOWN_PLACES} more" if len(shown) > SHOWN_PLACES else ""
    return (
        f"left out, since no TARGET has them: {', '.join(shown[:SHOWN_PLACES])}{more}. "
        "To tune them, name their files or modules, if you trust these: tunewright tune --recorded FILE.py"
    )


def _describe(miss: MissRecord) -> str:
    return formatting.one_line(
        f"{miss.key.kernel}  {miss.key.signature} · {formatting.counted(miss.calls, 'call')}, "
        f"{formatting.seconds(miss.seconds)} at stake",
        300,
    )


def _reproduce(
    miss: MissRecord, kernel: Tuned | DispatchedOperator, session: Session
) -> tuple[Tuned | DispatchedOperator, list[Any]]:
    """Returns a kernel with arguments like those of a recorded call; nothing is made for a key of something else."""
    if not miss.recipe:
        raise NoDecision("its arguments cannot be reproduced; give the kernel an `inputs=` function")
    recipe = serialization.decode(miss.recipe, Inputs)
    try:
        if isinstance(kernel, Tuned):
            _require_key(kernel.key_for(miss.key.signature), miss.key)
        if recipe.nbytes > session.limits.memory:
            raise NoDecision(
                f"its arguments have {formatting.size(recipe.nbytes)}, and a worker may use "
                f"{formatting.size(session.limits.memory)}; raise the setting `memory_mb`"
            )
        args = list(kernel.make(recipe))
        _require_key(kernel.problem(args).key, miss.key)
    except _UNMAKABLE as error:
        raise NoDecision(f"its arguments cannot be made: {type(error).__name__}: {error}") from error
    return kernel, args


def _require_key(key: Key, recorded: Key) -> None:
    if key != recorded:
        fields = ", ".join(
            f"{name} is {mine} here, {theirs} there" for name, (mine, theirs) in key.differences(recorded).items()
        )
        raise NoDecision(f"it was recorded for another key: {fields}")


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
