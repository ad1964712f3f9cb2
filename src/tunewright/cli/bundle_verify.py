"""`tunewright bundle verify`: signature and transcripts of a bundle; entries raced again on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.bundle_options import FILE, expectation_options, make_expectation, open_bundle, trust_options
from tunewright.cli.targets import json_option, load_kernel, make_session, store_option
from tunewright.engine.budget import Budget
from tunewright.errors import BundleError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.report import formatting
from tunewright.settings import Settings
from tunewright.shipping import arrival_check
from tunewright.shipping.rerace import ArrivalCheck, ReraceResult
from tunewright.shipping.transcript_check import find_inconsistency
from tunewright.stores import locations
from tunewright.stores.bundle import BundleStore
from tunewright.stores.bundle.quarantine import Quarantine
from tunewright.stores.transcripts import load_transcript

HEADS = ("kernel", "arguments", "shipped", "", "here", "because")


@click.command()
@click.argument("file", type=FILE)
@click.argument("kernels", nargs=-1)
@trust_options
@expectation_options
@click.option("--here", is_flag=True, help="Race again what was decided for another device or toolchain.")
@click.option("--budget", help="Race a random sample of all entries: 60s, 5m, or 100 (entries).")
@click.option("--top", default=3, show_default=True, help="How many of the next best configs are raced too.")
@click.option("--seed", type=int, help="The same seed draws the same sample.")
@store_option
@json_option
def verify(file: Path, signers: Path | None, pin: str | None, as_json: bool, **options: Any) -> None:
    """Check who signed FILE, and read every decision in it.

    With --pin, check its digest instead. With --here or --budget, entries are raced again on this machine; KERNELS
    say where kernels are found: FILE.py:NAME. Exit status 1 if anything regressed.
    """
    store = open_bundle(file, signers, pin, make_expectation(options))
    store.require_fresh(Settings.read().cache_path, in_use=False, record=False)
    readable = list(store.decisions())
    missing = store.manifest.decisions - len(readable)
    answer = {"digest": store.digest, "signer": store.signer, "decisions": len(readable), "unreadable": missing}
    if not as_json:
        trusted = f"signed by {store.signer}" if store.signer else "as pinned"
        output.echo(f"{file}: {trusted}, {formatting.counted(len(readable), 'decision')}")
    answer |= check_contents(store, readable, options, verbose=not as_json)
    if as_json:
        output.print_json(answer)
    if missing:
        raise BundleError(f"{missing} of its decisions cannot be read; do not use it")
    if answer.get("objections") or answer.get("regressed"):
        sys.exit(1)


def check_contents(
    store: BundleStore, decisions: list[Decision], options: Mapping[str, Any], *, verbose: bool
) -> dict[str, Any]:
    """Returns what transcripts, and races if they are asked for, say about a bundle whose signature is right."""
    count, doubts = _check_transcripts(store, decisions)
    answer: dict[str, Any] = {
        "transcripts": count,
        "objections": {key.digest: reason for key, reason in doubts.items()},
    }
    if verbose and count:
        output.echo(
            f"{formatting.counted(count, 'transcript')}: {count - len(doubts)} of them lead to what was decided"
        )
    if verbose and doubts:
        rows = [(key.kernel, key.signature, reason) for key, reason in doubts.items()]
        output.print_table(("kernel", "arguments", "objection"), rows)
    if options["here"] or options["budget"]:
        answer |= _race_entries(store, decisions, doubts, options, verbose)
    return answer


def _check_transcripts(store: BundleStore, decisions: list[Decision]) -> tuple[int, dict[Key, str]]:
    """Returns how many decisions have a transcript, and for those that do not follow from theirs, the reason."""
    count, doubts = 0, {}
    for decision in decisions:
        if (transcript := load_transcript(store, decision.key)) is not None:
            count += 1
            if reason := find_inconsistency(transcript, decision):
                doubts[decision.key] = reason
    return count, doubts


def _race_entries(
    store: BundleStore, decisions: list[Decision], doubts: Mapping[Key, str], options: Mapping[str, Any], verbose: bool
) -> dict[str, Any]:
    """Races entries on this machine, and returns the results."""
    session = make_session(None, {"store": options["store"], "seed": options["seed"]})
    if isinstance(locations.open_authoritative(session.settings.store_location), BundleStore):
        raise click.UsageError("a bundle cannot store what is found here; give another --store")
    kernels = {kernel.name: kernel for kernel in map(load_kernel, options["kernels"])}
    for kernel in kernels.values():
        kernel.using(session)
    check = ArrivalCheck(store, session, kernels, top=options["top"])
    quarantine = Quarantine(session.settings.cache_path, store.digest)
    entries, skipped = arrival_check.select_relevant(check, decisions)
    results: list[ReraceResult] = []

    def report(result: ReraceResult) -> None:
        results.append(result)
        arrival_check.apply_result(check, result, quarantine)
        key = result.decision.key
        click.echo(f"{len(results)}: {key.kernel}  {key.signature} {result.verdict} {result.reason}", err=True)

    statement = None
    if options["budget"]:
        budget = Budget.parse(options["budget"])
        statement = arrival_check.rerace_sample(check, entries.values(), budget, doubts, report).statement
    else:
        for result in arrival_check.rerace_all(check, entries):
            report(result)
    regressed = sum(result.regressed for result in results)
    if verbose:
        output.print_table(HEADS, map(_row, [*results, *skipped]))
        output.echo(f"{formatting.counted(len(results), 'entry', 'entries')} raced again, {regressed} in quarantine")
        if statement is not None:
            output.echo(f"{statement}.")
    return {
        "raced": [_to_json(result) for result in results],
        "not_raced": [_to_json(result) for result in skipped],
        "regressed": regressed,
        "quarantine": str(quarantine.path) if regressed else None,
        "statement": statement and output.to_builtins(statement),
    }


def _row(result: ReraceResult) -> tuple[Any, ...]:
    key, here = result.decision.key, result.new_decision
    return (
        key.kernel,
        key.signature,
        result.decision.config,
        result.verdict,
        here.config if here else "",
        result.reason,
    )


def _to_json(result: ReraceResult) -> dict[str, Any]:
    here, slower = result.new_decision, result.slower
    return {
        "kernel": result.decision.key.kernel,
        "key": result.decision.key.digest,
        "config": output.to_builtins(result.decision.config),
        "fate": str(result.verdict),
        "reason": result.reason,
        "found": here and {"key": here.key.digest, "config": output.to_builtins(here.config)},
        "slower": slower and output.to_builtins(slower),
        "configs": result.raced,
    }
