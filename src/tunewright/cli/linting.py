"""Linting: is the key right? What is needless in it, and what is missing, with the evidence."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option, kernel_at, session_for, shape_option, sizes_of, store_option
from tunewright.errors import NoDecision
from tunewright.fronts.perturbing import Perturbed, perturbed
from tunewright.ports.store import Store
from tunewright.report import linting, words
from tunewright.report.linting import Contradiction, Field
from tunewright.session import Session
from tunewright.sharing.offers import Generations
from tunewright.stores import places


@click.command()
@click.argument("kernel", required=False)
@click.option("--perturb", metavar="FILE.py:KERNEL", help="Also race that kernel under what its key does not see.")
@click.option("--only", metavar="NAME", multiple=True, help="Only that perturbation, such as sparse. Repeatable.")
@shape_option
@store_option
@json_option
def lint(kernel: str | None, perturb: str | None, shapes: tuple[str, ...], **options: Any) -> None:
    """Find what is needless or missing in the keys of what is stored.

    Looks at all kernels, or at KERNEL. A field is needless if it never changes the winner; something is missing if a
    winner changes and the key does not. Exit status 1 if something was found.
    """
    if options["only"] and not perturb:
        raise click.UsageError("--only names a perturbation; say of which kernel: --perturb FILE.py:KERNEL")
    tuned = kernel_at(perturb) if perturb else None
    session = session_for(tuned, {"store": options["store"]})
    store = _truth(session, named=options["store"] is not None or tuned is None or tuned.declared.session is None)
    name = kernel or (tuned.name if tuned else None)
    decisions = list(store.decisions(name))
    if not decisions and tuned is None:
        what = f"nothing is decided for {name!r}" if name else "nothing is decided yet"
        raise NoDecision(f"{what} in {session.settings.store_name}, so there are no keys to look at; tune first")
    fields = linting.fields(decisions, store.trials)
    clashes = [] if not isinstance(store, Generations) else list(_contradictions(store, [d.key for d in decisions]))
    raced = [perturbed(tuned, sizes, options["only"]) for sizes in sizes_of(tuned, shapes)] if tuned else []
    if options["as_json"]:
        output.as_json(_plain(fields, clashes, raced))
    else:
        _tell_fields(fields, len(decisions))
        _tell_contradictions(clashes)
        for one in raced:
            _tell_perturbed(one)
    if clashes or any(field.needless for field in fields) or not all(one.sound for one in raced):
        sys.exit(1)


def _truth(session: Session, *, named: bool) -> Store:
    """The store that keeps generations; a kernel that brings a store object has its own."""
    return places.truth(session.settings.store_location) if named else session.store


def _contradictions(store: Any, keys: Sequence[Any]) -> Iterable[Contradiction]:
    for key in keys:
        history = store.history(key)
        if len({one.decision.config for one in history}) > 1:
            yield from linting.contradictions(key, history, list(store.trials(key)))


def _plain(fields: Sequence[Field], clashes: Sequence[Contradiction], raced: Sequence[Perturbed]) -> dict[str, Any]:
    needless = [{**output.plain(field), "remedy": linting.remedy(field)} for field in fields if field.needless]
    return {
        "needless": needless,
        "fields": [{**output.plain(field), "verdict": _verdict(field)} for field in fields],
        "contradictions": [{"digest": one.key.digest, **output.plain(one)} for one in clashes],
        "perturbed": [{"digest": one.key.digest, **output.plain(one)} for one in raced],
    }


def _verdict(field: Field) -> str:
    return "needless" if field.needless else "matters" if field.matters else "not known"


def _tell_fields(fields: Sequence[Field], count: int) -> None:
    needless = [field for field in fields if field.needless]
    if fields:
        heads = ("field", "kernel", "values", "verdict", "evidence")
        rows = [(_names(f), f.kernel, _values(f.values), _verdict(f), _evidence(f)) for f in fields]
        output.table(heads, rows)
        output.say()
    for field in needless:
        took = f" and {words.clock(field.seconds)}" if field.seconds >= 1 else ""
        output.say(
            f"{field.kernel}: {_names(field)} is needless: without it, {words.counted(field.tunings, 'tuning')}{took} "
            f"less. To do: {linting.remedy(field)}"
        )
    looked = f"{words.counted(count, 'decision')}: {words.counted(len(fields), 'field')} varied alone"
    output.say(f"{looked}, {len(needless)} needless")


def _names(field: Field) -> str:
    return " + ".join(field.names)


def _values(values: Sequence[str]) -> str:
    shown = values if len(values) <= 3 else (values[0], f"... {len(values) - 2} more ...", values[-1])
    return ", ".join(text if len(text) <= 24 else f"{text[:21]}..." for text in shown)


def _evidence(field: Field) -> str:
    """Why, in words and numbers."""
    if (seen := field.witness) is not None:
        loss = words.gain(seen.loss)
        return f"the winner for {seen.here} takes {loss} as long for {seen.there} as the winner there"
    agreed = f"{field.agree} of {words.counted(field.pairs, 'pair')} agree"
    if not field.needless:
        return f"{agreed}: too little to say; it may matter in up to {ceil(100 * field.bound)} % of cases"
    cost = f"sharing costs {100 * field.loss:.1f} % in the mean, {100 * field.worst:.1f} % at worst"
    return f"{agreed}; with 95 % confidence it matters in less than {ceil(100 * field.bound)} % of cases; {cost}"


def _tell_contradictions(clashes: Sequence[Contradiction]) -> None:
    for one in clashes:
        output.say()
        output.say(
            f"{one.key.kernel} {one.key.signature} ({one.key.digest[:10]}): something is missing in the key", "bold"
        )
        output.say(f"  {one.earlier} was {words.gain(one.gain)} faster than {one.later} when it was chosen,")
        output.say(f"  {one.later} was {words.gain(one.reverse)} faster than {one.earlier} when that was")
        output.say("  what changed in between? `tunewright store lint --perturb FILE.py:KERNEL` tries what it may be")


def _tell_perturbed(found: Perturbed) -> None:
    key = found.key
    output.say()
    output.say(f"{key.kernel} {key.signature} perturbed: {found.winner} wins as it is", "bold")
    for one in found.changes:
        output.say(f"  {one.name} ({one.what}) changes the winner, and the key does not: it is missing there")
        output.say(
            f"    so, {one.other} is {words.gain(one.gain)} faster; else, {one.winner} is {words.gain(one.reverse)}"
        )
        output.say(f"    to do: {one.remedy}")
    for trouble in found.troubles:
        what = f"{trouble.config} fails" if trouble.config is not None else "nothing can be judged"
        output.say(f"  {trouble.name} ({trouble.what}): {what}: {trouble.reason}")
    for name, why in found.apart.items():
        output.say(f"  not tried: {name}: {why}")
    tried = words.counted(len(found.tried), "perturbation")
    output.say(
        f"  {words.counted(found.candidates, 'config')} under {tried} with the same key ({', '.join(found.tried)}): "
        f"{words.counted(len(found.changes), 'change')} of the winner, {words.counted(len(found.troubles), 'failure')}"
    )
