"""Store: look after what is remembered: how much, how sound, how old; merge, export, go back."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output, recorded
from tunewright.cli.amounts import UNITS, Age, Size
from tunewright.cli.linting import lint
from tunewright.cli.targets import json_option, session_for, store_option
from tunewright.errors import NoDecision, StoreError
from tunewright.model.decision import Decision
from tunewright.report import words
from tunewright.session import Session
from tunewright.sharing import wire
from tunewright.sharing.merging import collected, merged
from tunewright.sharing.offers import Generations, Owing, Upkeep, Wants
from tunewright.sharing.records import Bounds
from tunewright.stores import places


@click.group()
def store() -> None:
    """Look after the store: what it keeps, what goes, what was before.

    A store is a path or a location, such as sqlite:PATH or postgresql://...; --store names one, else the settings do.
    """


@store.command()
@store_option
@json_option
def stats(store: str | None, as_json: bool) -> None:
    """Say how much is kept: decisions, trials, generations, bytes."""
    session = session_for(None, {"store": store})
    found = _upkeep(session).stats()
    if as_json:
        output.as_json({"store": session.settings.store_name, **output.plain(found)})
        return
    output.say(session.settings.store_name, "bold")
    output.table(
        ("what", "how much"), [(n, words.size(v) if n == "bytes" else f"{v:,}") for n, v in output.plain(found).items()]
    )


@store.command()
@click.option("--older", type=Age(), help="Drop journals, earlier generations and wants older than that: 90d.")
@click.option("--larger", type=Size(), help="Drop the oldest journals until no more is kept: 2G.")
@click.option("--decisions", is_flag=True, help="Also decisions that old: they are small, and kept otherwise.")
@store_option
@json_option
def gc(older: float | None, larger: int | None, decisions: bool, store: str | None, as_json: bool) -> None:
    """Drop what is too old or too much.

    Journals, earlier generations, wants, and built artefacts that nobody loads. Safe while others read and write.
    """
    if older is None and larger is None:
        raise click.UsageError("say what goes: --older 90d, --larger 2G, or both")
    session = session_for(None, {"store": store})
    gone = _upkeep(session).trim(Bounds(older, larger, decisions))
    files, freed = collected(session.settings.cache_path, older)
    if as_json:
        output.as_json({"dropped": gone, "artefacts": files, "artefact_bytes": freed})
        return
    dropped = [
        words.counted(count, name.removesuffix("s"))
        for name, count in output.plain(gone).items()
        if count and name != "bytes"
    ]
    output.say("dropped " + (", ".join(dropped) or "nothing") + (f", {words.size(gone.bytes)}" if gone.bytes else ""))
    if files:
        output.say(f"and {words.counted(files, 'built artefact')}, {words.size(freed)}")


@store.command()
@store_option
@json_option
def verify(store: str | None, as_json: bool) -> None:
    """Read every record, and name those that cannot be believed.

    Such records are misses to everyone.
    """
    session = session_for(None, {"store": store})
    kept = _upkeep(session)
    if "://" in session.settings.store_location:
        kept.stats()  # a server that is away is an error, not a list of faults
    faults = list(kept.faults())
    if as_json:
        output.as_json({"faults": faults})
    else:
        for fault in faults:
            output.say(fault)
        output.say(f"{words.counted(len(faults), 'fault')} in {session.settings.store_name}")
    if faults:
        sys.exit(1)


@store.command()
@click.argument("source")
@click.option("--replace", is_flag=True, help="Where both have a decision, take the other's.")
@store_option
@json_option
def merge(source: str, replace: bool, store: str | None, as_json: bool) -> None:
    """Add the decisions and trials of another store to this one.

    SOURCE is a path or a location, as in --store. What stands here stands. Merging twice is merging once.
    """
    session = session_for(None, {"store": store})
    found = merged(places.at(source), session.store, replace=replace)
    if as_json:
        output.as_json(found)
        return
    output.say(
        f"{words.counted(found['decisions'], 'decision')} and {words.counted(found['trials'], 'trial')} added; "
        f"{found['standing']} stood already" + ("" if replace else " and were kept (--replace takes the other's)")
    )


@store.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--trials", is_flag=True, help="Journals too.")
@click.argument("kernel", required=False)
@store_option
def export(file: Path, trials: bool, kernel: str | None, store: str | None) -> None:
    """Write what is decided to FILE, one JSON record a line.

    For all kernels, or for KERNEL.
    """
    session = session_for(None, {"store": store})
    scratch = file.with_name(f".{file.name}.part")
    count = 0
    with scratch.open("wb") as out:
        for line in _lines(session, kernel, trials):
            out.write(line + b"\n")
            count += 1
    scratch.replace(file)
    output.say(f"{file}: {words.counted(count, 'record')}")


def _lines(session: Session, kernel: str | None, trials: bool) -> Iterator[bytes]:
    for decision in session.store.decisions(kernel):
        yield wire.dump_decision(decision)
    for key in session.store.keys(kernel) if trials else ():
        for trial in session.store.trials(key):
            yield wire.encode({"digest": key.digest, "trial": trial})


@store.command()
@store_option
@json_option
def send(store: str | None, as_json: bool) -> None:
    """Send on what was kept here while the remote store was away.

    The next write does so by itself; this is for machines that do not write any more.
    """
    session = session_for(None, {"store": store})
    sent = session.store.send() if isinstance(session.store, Owing) else 0
    if as_json:
        output.as_json({"sent": sent})
    else:
        output.say(
            f"{words.counted(sent, 'write')} sent on to {session.settings.store_name}" if sent else "nothing is owed"
        )


@store.command()
@click.argument("kernel", required=False)
@store_option
@json_option
def untuned(kernel: str | None, store: str | None, as_json: bool) -> None:
    """List what mode=record found missing, what cost most first.

    Of all kernels, or of KERNEL. `tunewright tune --recorded` tunes that list.
    """
    session = session_for(None, {"store": store})
    kept = places.truth(session.settings.store_location)
    wants = list(kept.wanted(kernel)) if isinstance(kept, Wants) else []
    if as_json:
        output.as_json(wants)
        return
    if not wants:
        raise NoDecision("nothing is recorded as missing; run your program with TUNEWRIGHT_MODE=record")
    recorded.listed(wants)


@store.command()
@click.argument("kernel")
@click.option("--device", default="", help="Only keys whose device's name contains this.")
@click.option("--key", "prefix", default="", help="Only keys whose digest begins like this.")
@store_option
@json_option
def history(kernel: str, device: str, prefix: str, store: str | None, as_json: bool) -> None:
    """List every decision that stood for KERNEL, and since when."""
    session = session_for(None, {"store": store})
    kept, chosen = _generations(session), _chosen(session, kernel, device, prefix)
    rows = [(decision.key, one) for decision in chosen for one in kept.history(decision.key)]
    if as_json:
        output.as_json([{"digest": key.digest, **output.plain(one)} for key, one in rows])
        return
    heads = ("key", "arguments", "device", "generation", "since", "config")
    output.table(
        heads,
        [
            (key.digest[:10], key.signature, key.device, one.number, _when(one.since), one.decision.config)
            for key, one in rows
        ],
    )


@store.command()
@click.argument("kernel")
@click.option("--to", "moment", default="", help="What stood then: yesterday, 3d (ago), 2026-05-01, 2026-05-01T12:00.")
@click.option("--device", default="", help="Only keys whose device's name contains this.")
@click.option("--key", "prefix", default="", help="Only keys whose digest begins like this.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def rollback(kernel: str, moment: str, yes: bool, **options: Any) -> None:
    """Let earlier decisions for KERNEL stand again.

    Those before, or those of a moment (--to). What stood until now stays in history: this, too, can be undone.
    """
    session = session_for(None, {"store": options["store"]})
    before, kept = _moment(moment) if moment else None, _generations(session)
    plan: list[tuple[Decision, Decision]] = []
    for decision in _chosen(session, kernel, options["device"], options["prefix"]):
        earlier = [g for g in kept.history(decision.key) if before is None or g.since <= before]
        wanted = (earlier[-1:] if before is not None else earlier[-2:-1]) or []
        if wanted and wanted[0].decision != decision:
            plan.append((decision, wanted[0].decision))
    if not plan:
        raise NoDecision(f"nothing of {kernel!r} stood {'then' if moment else 'before'} that does not stand now")
    output.table(
        ("key", "arguments", "now", "again"),
        [(a.key.digest[:10], a.key.signature, a.config, b.config) for a, b in plan],
    )
    if not yes and sys.stdin.isatty():
        click.confirm(f"let {words.counted(len(plan), 'earlier decision')} stand again?", abort=True)
    for _, earlier_one in plan:
        session.store.put(earlier_one)
    output.say(
        f"{words.counted(len(plan), 'decision')} of {kernel} went back; `tunewright store history {kernel}` shows it"
    )


store.add_command(lint)


def _moment(text: str) -> float:
    if text == "yesterday":
        return time.time() - 86400
    if re.fullmatch(r"\d+(?:\.\d+)?[smhdwy]", text):
        return time.time() - float(text[:-1]) * UNITS[text[-1]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise click.UsageError(f"{text!r} is no moment; say yesterday, 3d, or 2026-05-01") from error


def _when(since: float) -> str:
    return datetime.fromtimestamp(since).astimezone().isoformat(timespec="seconds") if since > 0 else "?"


def _upkeep(session: Session) -> Upkeep:
    if not isinstance(kept := places.truth(session.settings.store_location), Upkeep):
        raise StoreError(f"{session.settings.store_name} does not say what it keeps")
    return kept


def _generations(session: Session) -> Generations:
    if not isinstance(kept := places.truth(session.settings.store_location), Generations):
        raise StoreError(f"{session.settings.store_name} keeps no earlier generations")
    return kept


def _chosen(session: Session, kernel: str, device: str, prefix: str) -> list[Decision]:
    found = [
        decision
        for decision in places.truth(session.settings.store_location).decisions(kernel)
        if device.lower() in str(decision.key.device).lower() and decision.key.digest.startswith(prefix)
    ]
    if not found:
        raise NoDecision(f"nothing is decided for {kernel!r} on such a device or key; `tunewright show` lists what is")
    return found
