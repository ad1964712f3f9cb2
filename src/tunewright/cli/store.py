"""`tunewright store`: size, retention, verification, history, merge and export of a store."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from tunewright.cli import misses, output
from tunewright.cli.completion import complete_kernel
from tunewright.cli.lazy_group import CommandEntry, LazyGroup
from tunewright.cli.quantities import UNITS, Age, Size
from tunewright.cli.targets import json_option, make_session, store_option
from tunewright.errors import NoDecision, StoreError
from tunewright.model.decision import Decision
from tunewright.report import formatting
from tunewright.session import Session
from tunewright.stores import locations, namespaces, serialization
from tunewright.stores.artifact_retention import remove_stale_artifacts
from tunewright.stores.capabilities import HasPendingWrites, KeepsRevisions, RecordsMisses, SupportsMaintenance
from tunewright.stores.merge import merge_stores
from tunewright.stores.statistics import RetentionLimits

SINGULAR_AND_PLURAL = {
    "decisions": ("decision", "decisions"),
    "generations": ("revision", "revisions"),
    "trials": ("trial", "trials"),
    "wants": ("miss", "misses"),
    "entries": ("entry", "entries"),
}
"""What the counts of `StoreStats` are called in text."""

REFUSED = CommandEntry("tunewright.cli.store_refused", "refused", "List writes that the remote store refused.")

LINT = CommandEntry(
    "tunewright.cli.store_lint", "lint", "Find fields that keys lack or do not need.", extension="keylint"
)


@click.group(cls=LazyGroup, entries={"lint": LINT, "refused": REFUSED}, path=("store",))
def store() -> None:
    """Maintain the store: size, age, history, merge, export.

    A store is a path or a location, such as sqlite:PATH or postgresql://...; --store names one, else the settings do.
    """


@store.command()
@store_option
@json_option
def stats(store: str | None, as_json: bool) -> None:
    """Print how much is stored: decisions, trials, revisions, bytes."""
    session = make_session(None, {"store": store})
    counts = output.to_builtins(_maintained(session).stats())
    if as_json:
        output.print_json({"store": session.settings.store_name, **counts})
        return
    output.echo(session.settings.store_name, "bold")
    output.print_table(
        ("what", "how much"),
        [
            (SINGULAR_AND_PLURAL.get(name, ("", name))[1], formatting.size(count) if name == "bytes" else f"{count:,}")
            for name, count in counts.items()
        ],
    )


@store.command()
@click.option("--older", type=Age(), help="Drop journals, earlier revisions and misses older than this: 90d.")
@click.option("--larger", type=Size(), help="Drop the oldest journals until the store is at most this large: 2G.")
@click.option("--decisions", is_flag=True, help="Also drop decisions that old; they are small, and kept otherwise.")
@click.option(
    "--also",
    "kinds",
    multiple=True,
    type=click.Choice(namespaces.ON_REQUEST),
    help="Also drop results of memo functions, or transcripts of races.",
)
@store_option
@json_option
def gc(older: float | None, larger: int | None, store: str | None, as_json: bool, **chosen: Any) -> None:
    """Drop what is too old or too large.

    Drops journals, earlier revisions, misses, what torch cached, and built artifacts that nobody loads. Tokens, the
    audit log, bundles, campaigns, reports and unsent writes always stay. Safe while others read and write.
    """
    if older is None and larger is None:
        raise click.UsageError("say what to drop: --older 90d, --larger 2G, or both")
    session = make_session(None, {"store": store})
    backing = _maintained(session)
    gone = backing.trim(RetentionLimits(older, larger, **chosen))
    files, freed = remove_stale_artifacts(session.settings.cache_path, older)
    if larger is not None and (rest := backing.stats().bytes) > larger:
        advice = "what is left is kept whatever its size; --decisions and --also drop more"
        click.echo(f"the store still has {formatting.size(rest)}: {advice}", err=True)
    if as_json:
        output.print_json({"dropped": gone, "artefacts": files, "artefact_bytes": freed})
        return
    dropped = [
        formatting.counted(count, *SINGULAR_AND_PLURAL[name])
        for name, count in output.to_builtins(gone).items()
        if count and name != "bytes"
    ]
    output.echo(
        "dropped " + (", ".join(dropped) or "nothing") + (f", {formatting.size(gone.bytes)}" if gone.bytes else "")
    )
    if files:
        output.echo(f"and {formatting.counted(files, 'built artifact')}, {formatting.size(freed)}")


@store.command()
@store_option
@json_option
def verify(store: str | None, as_json: bool) -> None:
    """Read every record, and list those that are damaged.

    A look-up treats such a record as absent.
    """
    session = make_session(None, {"store": store})
    backing = _maintained(session)
    if "://" in session.settings.store_location:
        backing.stats()  # a server that does not answer is an error, not a list of faults
    faults = list(backing.faults())
    if as_json:
        output.print_json({"faults": faults})
    else:
        for fault in faults:
            output.echo(fault)
        output.echo(f"{formatting.counted(len(faults), 'fault')} in {session.settings.store_name}")
    if faults:
        sys.exit(1)


@store.command()
@click.argument("source")
@click.option("--replace", is_flag=True, help="Where both have a decision, take that of SOURCE.")
@store_option
@json_option
def merge(source: str, replace: bool, store: str | None, as_json: bool) -> None:
    """Add the decisions and trials of another store to this one.

    SOURCE is a path or a location, as in --store. Decisions that are here already are kept. Merging twice has the
    effect of merging once.
    """
    session = make_session(None, {"store": store})
    counts = merge_stores(locations.open_single(source), session.store, replace=replace)
    if as_json:
        output.print_json(counts)
        return
    output.echo(
        f"{formatting.counted(counts['decisions'], 'decision')} and "
        f"{formatting.counted(counts['trials'], 'trial')} added; "
        f"{counts['standing']} were here already" + ("" if replace else " and kept (--replace takes those of SOURCE)")
    )


@store.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--trials", is_flag=True, help="Also write trials.")
@click.argument("kernel", required=False, shell_complete=complete_kernel)
@store_option
def export(file: Path, trials: bool, kernel: str | None, store: str | None) -> None:
    """Write decisions to FILE, one JSON record a line.

    For all kernels, or for KERNEL.
    """
    session = make_session(None, {"store": store})
    scratch = file.with_name(f".{file.name}.part")
    count = 0
    with scratch.open("wb") as out:
        for line in _records(session, kernel, trials):
            out.write(line + b"\n")
            count += 1
    scratch.replace(file)
    output.echo(f"{file}: {formatting.counted(count, 'record')}")


def _records(session: Session, kernel: str | None, trials: bool) -> Iterator[bytes]:
    """Yields decisions, and trials if asked for, as JSON."""
    for decision in session.store.decisions(kernel):
        yield serialization.dump_decision(decision)
    for key in session.store.keys(kernel) if trials else ():
        for trial in session.store.trials(key):
            yield serialization.encode({"digest": key.digest, "trial": trial})


@store.command()
@store_option
@json_option
def send(store: str | None, as_json: bool) -> None:
    """Send writes that were queued while the remote store did not answer.

    The next write sends them too; this is for machines that do not write any more.
    """
    session = make_session(None, {"store": store})
    sent = session.store.send_pending() if isinstance(session.store, HasPendingWrites) else 0
    if as_json:
        output.print_json({"sent": sent})
    else:
        output.echo(
            f"{formatting.counted(sent, 'write')} sent to {session.settings.store_name}"
            if sent
            else "nothing is queued"
        )


@store.command()
@click.argument("kernel", required=False, shell_complete=complete_kernel)
@store_option
@json_option
def untuned(kernel: str | None, store: str | None, as_json: bool) -> None:
    """List misses recorded by mode=record, most expensive first.

    Of all kernels, or of KERNEL. `tunewright tune --recorded FILE.py` tunes those of a file.
    """
    session = make_session(None, {"store": store})
    backing = locations.open_authoritative(session.settings.store_location)
    records = list(backing.misses(kernel)) if isinstance(backing, RecordsMisses) else []
    if as_json:
        output.print_json(records)
        return
    if not records:
        raise NoDecision("nothing is recorded as missing; run your program with TUNEWRIGHT_MODE=record")
    misses.print_misses(records)


@store.command()
@click.argument("kernel", shell_complete=complete_kernel)
@click.option("--device", default="", help="Only keys whose device's name contains this.")
@click.option("--key", "prefix", default="", help="Only keys whose digest begins with this.")
@store_option
@json_option
def history(kernel: str, device: str, prefix: str, store: str | None, as_json: bool) -> None:
    """List every decision that was in force for KERNEL, and since when."""
    session = make_session(None, {"store": store})
    backing, decisions = _versioned(session), _select_decisions(session, kernel, device, prefix)
    revisions = [(decision.key, revision) for decision in decisions for revision in backing.history(decision.key)]
    if as_json:
        output.print_json([{"digest": key.digest, **output.to_builtins(revision)} for key, revision in revisions])
        return
    heads = ("key", "arguments", "device", "revision", "since", "config")
    output.print_table(
        heads,
        [
            (
                key.digest[:10],
                key.signature,
                key.device,
                revision.number,
                _format_time(revision.since),
                revision.decision.config,
            )
            for key, revision in revisions
        ],
    )


@store.command()
@click.argument("kernel", shell_complete=complete_kernel)
@click.option("--to", "moment", default="", help="Back to then: yesterday, 3d (ago), 2026-05-01, 2026-05-01T12:00.")
@click.option("--device", default="", help="Only keys whose device's name contains this.")
@click.option("--key", "prefix", default="", help="Only keys whose digest begins with this.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
def rollback(kernel: str, moment: str, yes: bool, **options: Any) -> None:
    """Restore earlier decisions for KERNEL.

    The previous ones, or those of a moment (--to). The present ones stay in the history, so this can be undone.
    """
    session = make_session(None, {"store": options["store"]})
    before, backing = _parse_moment(moment) if moment else None, _versioned(session)
    changes: list[tuple[Decision, Decision]] = []
    for decision in _select_decisions(session, kernel, options["device"], options["prefix"]):
        history = [revision for revision in backing.history(decision.key) if before is None or revision.since <= before]
        restored = history[-1:] if before is not None else history[-2:-1]
        if restored and restored[0].decision != decision:
            changes.append((decision, restored[0].decision))
    if not changes:
        raise NoDecision(
            f"nothing of {kernel!r} was different {'then' if moment else 'before'}; there is nothing to restore"
        )
    output.print_table(
        ("key", "arguments", "now", "restored"),
        [(now.key.digest[:10], now.key.signature, now.config, earlier.config) for now, earlier in changes],
    )
    if not yes and sys.stdin.isatty():
        click.confirm(f"restore {formatting.counted(len(changes), 'decision')}?", abort=True)
    # Without the memory and the mirror of this process: a change that others do not see is not done.
    shared = session.checked(locations.open_store(session.settings.store_location, None))
    for _, earlier in changes:
        shared.put(earlier)
    output.echo(
        f"{formatting.counted(len(changes), 'decision')} of {kernel} restored; `tunewright store history {kernel}` "
        "lists all revisions"
    )


def _parse_moment(text: str) -> float:
    """Returns the Unix time of `yesterday`, `3d` (ago) or a date."""
    if text == "yesterday":
        return time.time() - 86400
    if re.fullmatch(r"\d+(?:\.\d+)?[smhdwy]", text):
        return time.time() - float(text[:-1]) * UNITS[text[-1]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not a time; use yesterday, 3d, or 2026-05-01") from error


def _format_time(since: float) -> str:
    return datetime.fromtimestamp(since).astimezone().isoformat(timespec="seconds") if since > 0 else "?"


def _maintained(session: Session) -> SupportsMaintenance:
    """Returns the authoritative store; raises if it cannot be maintained."""
    store = locations.open_authoritative(session.settings.store_location)
    if not isinstance(store, SupportsMaintenance):
        raise StoreError(f"{session.settings.store_name} cannot list what it stores")
    return store


def _versioned(session: Session) -> KeepsRevisions:
    """Returns the authoritative store; raises if it keeps no history."""
    store = locations.open_authoritative(session.settings.store_location)
    if not isinstance(store, KeepsRevisions):
        raise StoreError(f"{session.settings.store_name} keeps no earlier revisions")
    return store


def _select_decisions(session: Session, kernel: str, device: str, prefix: str) -> list[Decision]:
    """Returns a kernel's decisions whose device and digest match; raises if there are none."""
    decisions = [
        decision
        for decision in locations.open_authoritative(session.settings.store_location).decisions(kernel)
        if device.lower() in str(decision.key.device).lower() and decision.key.digest.startswith(prefix)
    ]
    if not decisions:
        raise NoDecision(f"nothing is decided for {kernel!r} on such a device or key; `tunewright show` lists what is")
    return decisions
