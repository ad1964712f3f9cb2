"""Arriving: a bundle looked at on the machine it came to: does it follow from its races, and does it hold here?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from tunewright.cli import output
from tunewright.cli.targets import kernel_at, session_for
from tunewright.engine.budget import Budget
from tunewright.fronts import arriving
from tunewright.fronts.attesting import objection
from tunewright.fronts.reracing import Arrival, Rerace
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.report import words
from tunewright.sharing.transcripts import transcript_of
from tunewright.stores import places
from tunewright.stores.bundle import BundleStore
from tunewright.stores.bundle.quarantine import Quarantine

F = TypeVar("F", bound=Callable[..., Any])
HEADS = ("kernel", "arguments", "shipped", "", "here", "because")


def arrival_options(function: F) -> F:
    """`--here`, `--budget`, `--top` and `--seed`."""
    here = click.option("--here", is_flag=True, help="Race again what was decided for another device or toolchain.")
    budget = click.option("--budget", help="Race a random sample of all entries: 60s, 5m, or 100 (entries).")
    top = click.option("--top", default=3, show_default=True, help="How many of the next best are raced, too.")
    seed = click.option("--seed", type=int, help="The same seed draws the same sample.")
    return here(budget(top(seed(function))))


def arrived(
    store: BundleStore, decisions: list[Decision], options: Mapping[str, Any], *, speak: bool
) -> dict[str, Any]:
    """What is found of a verified bundle beyond its bytes: of its transcripts, and by racing, if that is asked for."""
    count, doubts = attested(store, decisions)
    told: dict[str, Any] = {"transcripts": count, "objections": {key.digest: why for key, why in doubts.items()}}
    if speak and count:
        output.say(f"{words.counted(count, 'transcript')}: {count - len(doubts)} of them lead to what was decided")
    if speak and doubts:
        output.table(("kernel", "arguments", "objection"), [(k.kernel, k.signature, why) for k, why in doubts.items()])
    if options["here"] or options["budget"]:
        told |= _raced(store, decisions, doubts, options, speak)
    return told


def attested(store: BundleStore, decisions: list[Decision]) -> tuple[int, dict[Key, str]]:
    """How many decisions bring the transcript of their race, and which of them do not follow from it, and why."""
    count, doubts = 0, {}
    for decision in decisions:
        if (transcript := transcript_of(store, decision.key)) is not None:
            count += 1
            if why := objection(transcript, decision):
                doubts[decision.key] = why
    return count, doubts


def _raced(
    store: BundleStore, decisions: list[Decision], doubts: Mapping[Key, str], options: Mapping[str, Any], speak: bool
) -> dict[str, Any]:
    """Entries raced on this machine, and what became of them."""
    session = session_for(None, {"store": options["store"], "seed": options["seed"]})
    if isinstance(places.truth(session.settings.store_location), BundleStore):
        raise click.UsageError("what is found here cannot be kept in a bundle; give a --store that takes it")
    kernels = {kernel.name: kernel for kernel in map(kernel_at, options["kernels"])}
    for kernel in kernels.values():
        kernel.using(session)
    arrival = Arrival(store, session, kernels, top=options["top"])
    quarantine = Quarantine(session.settings.cache_path, store.digest)
    entries, strangers = arriving.relevant(arrival, decisions)
    results: list[Rerace] = []

    def tell(result: Rerace) -> None:
        results.append(result)
        arriving.settle(arrival, result, quarantine)
        key = result.decision.key
        click.echo(f"{len(results)}: {key.kernel}  {key.signature} {result.fate} {result.reason}", err=True)

    says = None
    if options["budget"]:
        budget = Budget.parse(options["budget"])
        says = arriving.sampled(arrival, entries.values(), budget, doubts, tell).says
    else:
        for result in arriving.everything(arrival, entries):
            tell(result)
    regressed = sum(result.regressed for result in results)
    if speak:
        output.table(HEADS, map(_row, [*results, *strangers]))
        output.say(f"{words.counted(len(results), 'entry', 'entries')} raced again, {regressed} in quarantine")
        if says is not None:
            output.say(f"{says}.")
    return {
        "raced": [_plain(result) for result in results],
        "not_raced": [_plain(result) for result in strangers],
        "regressed": regressed,
        "quarantine": str(quarantine.path) if regressed else None,
        "statement": says and output.plain(says),
    }


def _row(result: Rerace) -> tuple[Any, ...]:
    key, found = result.decision.key, result.found
    return key.kernel, key.signature, result.decision.config, result.fate, found.config if found else "", result.reason


def _plain(result: Rerace) -> dict[str, Any]:
    found, slower = result.found, result.slower
    return {
        "kernel": result.decision.key.kernel,
        "key": result.decision.key.digest,
        "config": output.plain(result.decision.config),
        "fate": str(result.fate),
        "reason": result.reason,
        "found": found and {"key": found.key.digest, "config": output.plain(found.config)},
        "slower": slower and output.plain(slower),
        "configs": result.raced,
    }
