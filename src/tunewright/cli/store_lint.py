"""`tunewright store lint`: fields that keys lack or do not need, with the evidence."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.completion import complete_kernel, complete_target
from tunewright.cli.targets import json_option, load_kernel, make_session, resolve_sizes, shape_option, store_option
from tunewright.errors import NoDecision
from tunewright.keylint import findings
from tunewright.keylint.findings import Contradiction, KeyField
from tunewright.keylint.perturb import PerturbationReport, perturb_kernel
from tunewright.ports.store import Store
from tunewright.report import formatting
from tunewright.session import Session
from tunewright.stores import locations
from tunewright.stores.capabilities import KeepsRevisions


@click.command()
@click.argument("kernel", required=False, shell_complete=complete_kernel)
@click.option("--perturb", metavar="FILE.py:KERNEL", shell_complete=complete_target,
              help="Also race that kernel under conditions that its key does not have.")  # fmt: skip
@click.option("--only", metavar="NAME", multiple=True, help="Only that perturbation, such as sparse. Repeatable.")
@shape_option
@store_option
@json_option
def lint(kernel: str | None, perturb: str | None, shapes: tuple[str, ...], **options: Any) -> None:
    """Find fields that keys lack or do not need.

    Looks at all kernels, or at KERNEL. A field is needless if it never changes the winner; something is missing if a
    winner changes and the key does not. Exit status 1 if something was found.
    """
    if options["only"] and not perturb:
        raise click.UsageError("--only names a perturbation; say of which kernel: --perturb FILE.py:KERNEL")
    tuned = load_kernel(perturb) if perturb else None
    session = make_session(tuned, {"store": options["store"]})
    store = _revision_store(
        session, named=options["store"] is not None or tuned is None or tuned.declaration.session is None
    )
    name = kernel or (tuned.name if tuned else None)
    decisions = list(store.decisions(name))
    if not decisions and tuned is None:
        what = f"nothing is decided for {name!r}" if name else "nothing is decided yet"
        raise NoDecision(f"{what} in {session.settings.store_name}, so there are no keys to look at; tune first")
    fields = findings.check_fields(decisions, store.trials)
    keys = [decision.key for decision in decisions]
    contradictions = list(_find_contradictions(store, keys)) if isinstance(store, KeepsRevisions) else []
    raced = [perturb_kernel(tuned, sizes, options["only"]) for sizes in resolve_sizes(tuned, shapes)] if tuned else []
    if options["as_json"]:
        output.print_json(_to_json(fields, contradictions, raced))
    else:
        _print_fields(fields, len(decisions))
        _print_contradictions(contradictions)
        for result in raced:
            _print_perturbed(result)
    if contradictions or any(field.needless for field in fields) or not all(result.sound for result in raced):
        sys.exit(1)


def _revision_store(session: Session, *, named: bool) -> Store:
    """Returns the store that keeps revisions; a kernel that brings a store object has its own."""
    return locations.open_authoritative(session.settings.store_location) if named else session.store


def _find_contradictions(store: Any, keys: Sequence[Any]) -> Iterable[Contradiction]:
    for key in keys:
        history = store.history(key)
        if len({revision.decision.config for revision in history}) > 1:
            yield from findings.find_contradictions(key, history, list(store.trials(key)))


def _to_json(
    fields: Sequence[KeyField], contradictions: Sequence[Contradiction], raced: Sequence[PerturbationReport]
) -> dict[str, Any]:
    needless = [
        {**output.to_builtins(field), "remedy": findings.field_remedy(field)} for field in fields if field.needless
    ]
    return {
        "needless": needless,
        "fields": [{**output.to_builtins(field), "verdict": _verdict(field)} for field in fields],
        "contradictions": [{"digest": item.key.digest, **output.to_builtins(item)} for item in contradictions],
        "perturbed": [{"digest": result.key.digest, **output.to_builtins(result)} for result in raced],
    }


def _verdict(field: KeyField) -> str:
    return "needless" if field.needless else "matters" if field.matters else "not known"


def _print_fields(fields: Sequence[KeyField], count: int) -> None:
    needless = [field for field in fields if field.needless]
    if fields:
        heads = ("field", "kernel", "values", "verdict", "evidence")
        rows = [
            (_names(field), field.kernel, _values(field.values), _verdict(field), _evidence(field)) for field in fields
        ]
        output.print_table(heads, rows)
        output.echo()
    for field in needless:
        took = f" and {formatting.clock(field.seconds)}" if field.seconds >= 1 else ""
        output.echo(
            f"{field.kernel}: {_names(field)} is needless: without it, "
            f"{formatting.counted(field.tunings, 'tuning')}{took} "
            f"less. To do: {findings.field_remedy(field)}"
        )
    summary = f"{formatting.counted(count, 'decision')}: {formatting.counted(len(fields), 'field')} varied alone"
    output.echo(f"{summary}, {len(needless)} needless")


def _names(field: KeyField) -> str:
    return " + ".join(field.names)


def _values(values: Sequence[str]) -> str:
    shown = values if len(values) <= 3 else (values[0], f"... {len(values) - 2} more ...", values[-1])
    return ", ".join(text if len(text) <= 24 else f"{text[:21]}..." for text in shown)


def _evidence(field: KeyField) -> str:
    """Returns the reason for a verdict, in words and numbers."""
    if (witness := field.witness) is not None:
        loss = formatting.gain(witness.loss)
        return f"the winner for {witness.here} takes {loss} as long for {witness.there} as the winner there"
    agreed = f"{field.agree} of {formatting.counted(field.pairs, 'pair')} agree"
    if not field.needless:
        return f"{agreed}: too little to say; it may matter in up to {ceil(100 * field.bound)} % of cases"
    cost = f"sharing costs {100 * field.loss:.1f} % in the mean, {100 * field.worst:.1f} % at worst"
    return f"{agreed}; with 95 % confidence it matters in less than {ceil(100 * field.bound)} % of cases; {cost}"


def _print_contradictions(contradictions: Sequence[Contradiction]) -> None:
    for item in contradictions:
        key = item.key
        output.echo()
        output.echo(f"{key.kernel} {key.signature} ({key.digest[:10]}): something is missing in the key", "bold")
        output.echo(f"  {item.earlier} was {formatting.gain(item.gain)} faster than {item.later} when it was chosen,")
        output.echo(f"  {item.later} was {formatting.gain(item.reverse)} faster than {item.earlier} when that was")
        output.echo("  what changed in between? `tunewright store lint --perturb FILE.py:KERNEL` tries what it may be")


def _print_perturbed(result: PerturbationReport) -> None:
    key = result.key
    output.echo()
    output.echo(f"{key.kernel} {key.signature} perturbed: {result.winner} wins as it is", "bold")
    for change in result.changes:
        output.echo(f"  {change.name} ({change.what}) changes the winner, and the key does not: it is missing there")
        output.echo(
            f"    with it, {change.other} is {formatting.gain(change.gain)} faster; without, {change.winner} is "
            f"{formatting.gain(change.reverse)}"
        )
        output.echo(f"    to do: {change.remedy}")
    for trouble in result.troubles:
        what = f"{trouble.config} fails" if trouble.config is not None else "nothing can be judged"
        output.echo(f"  {trouble.name} ({trouble.what}): {what}: {trouble.reason}")
    for name, reason in result.apart.items():
        output.echo(f"  not tried: {name}: {reason}")
    tried = formatting.counted(len(result.tried), "perturbation")
    output.echo(
        f"  {formatting.counted(result.candidates, 'config')} under {tried} with the same key "
        f"({', '.join(result.tried)}): "
        f"{formatting.counted(len(result.changes), 'change')} of the winner, "
        f"{formatting.counted(len(result.troubles), 'failure')}"
    )
