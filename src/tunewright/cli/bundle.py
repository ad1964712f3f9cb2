"""`tunewright bundle`: decisions and builds as one signed file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.bundle_options import (
    FILE,
    expectation_options,
    make_expectation,
    make_release,
    open_bundle,
    release_options,
    trust_options,
)
from tunewright.cli.lazy_group import CommandEntry, LazyGroup
from tunewright.cli.targets import json_option, load_kernel, make_session, store_option
from tunewright.errors import NoDecision
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.report import formatting
from tunewright.session import Session
from tunewright.stores import artifacts, transcripts
from tunewright.stores.capabilities import KeepsNamespaces, SupportsSync
from tunewright.stores.conflicts import resolve_conflict

_TRANSFER, _SIGNERS = "tunewright.cli.bundle_transfer", "tunewright.cli.bundle_signers"
ENTRIES = {
    "verify": CommandEntry(
        "tunewright.cli.bundle_verify",
        "verify",
        "Check who signed FILE, and read every decision in it.",
        extension="shipping",
    ),
    "push": CommandEntry(_TRANSFER, "push", "Upload FILE to a registry.", extension="shipping"),
    "pull": CommandEntry(_TRANSFER, "pull", "Fetch a bundle and install it as FILE.", extension="shipping"),
    "sign": CommandEntry(_SIGNERS, "sign", "Add a signature to FILE."),
    "rotate": CommandEntry(_SIGNERS, "rotate", "Replace the list of signers CURRENT by NEW."),
}


@click.group(cls=LazyGroup, entries=ENTRIES, path=("bundle",))
def bundle() -> None:
    """Build, check and apply bundles: decisions as one signed file."""


@bundle.command()
@click.argument("file", type=FILE)
def key(file: Path) -> None:
    """Make a key to sign with at FILE.

    FILE is readable by its owner alone. The line printed goes into others' lists of signers.
    """
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    try:
        public = signing.generate_key(file)
    except FileExistsError as error:
        raise click.UsageError(f"{file} exists already; a key is never overwritten") from error
    output.echo(f"{public} {file.stem}")


@bundle.command()
@click.argument("file", type=FILE)
@click.argument("kernels", nargs=-1)
@click.option("--sign", type=FILE, help="The private key to sign with, as made by `tunewright bundle key`.")
@click.option("--bare", is_flag=True, help="Only decisions, without builds.")
@click.option("--note", default="", help="A sentence for whoever opens the bundle.")
@release_options
@click.option("--provenance", is_flag=True, help="State who tuned, where, from which commit, and by which races.")
@click.option("--by", default="", help="Who and where, as an address (default: user and host); implies --provenance.")
@store_option
@json_option
def build(file: Path, kernels: Sequence[str], sign: Path | None, note: str, **options: Any) -> None:
    """Pack decisions into FILE.

    For all kernels, or for KERNELS: names, or FILE.py:NAME. Builds of the decided configs are included, so that
    production compiles nothing. For a kernel given as FILE.py:NAME, missing builds are made first, and that of the
    default. For Triton kernels, what `tunewright triton prebuild` compiled is included.
    """
    from tunewright.shipping import pack, provenance  # noqa: PLC0415 - needs `cryptography`
    from tunewright.stores.bundle import build as writer  # noqa: PLC0415 - as above
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - as above

    release = make_release(options)
    loaded = [load_kernel(target) for target in kernels if ":" in target]
    names = [name for name in kernels if ":" not in name] + [kernel.name for kernel in loaded]
    session = make_session(None, {"store": options["store"]})
    decisions = [decision for name in names or (None,) for decision in session.store.decisions(name)]
    for kernel in loaded:
        pack.build_all(kernel, [decision for decision in decisions if decision.key.kernel == kernel.name])
    attachments: list[writer.Attachment] = []
    if not options["bare"]:
        attachments += [*pack.attachments(session, decisions, loaded), *pack.triton_artifacts(session, names)]
    if not decisions and not attachments:
        raise NoDecision(f"nothing is decided for {', '.join(names) or 'any kernel'} in {session.settings.store_name}")
    builds, races = (sum(attachment.kind == kind for attachment in attachments) for kind in ("build", "race"))
    if options["provenance"] or options["by"]:
        attachments.append(provenance.make_statement(decisions, attachments, options["by"]))
    content = writer.build(decisions, attachments, note=note, release=release)
    digest = writer.write(file, content, signing.load_private_key(sign) if sign else None)
    if options["as_json"]:
        answer = {"file": str(file), "digest": digest, "decisions": len(decisions), "builds": builds}
        output.print_json({**answer, "races": races, "signed": sign is not None})
        return
    output.echo(
        f"{file}: {formatting.counted(len(decisions), 'decision')}, {formatting.counted(builds, 'build')}, "
        f"{formatting.size(len(content))}, " + ("signed" if sign else "not signed")
    )
    output.echo(f"pin it with {digest}")


@bundle.command()
@click.argument("file", type=FILE)
@trust_options
@json_option
def show(file: Path, signers: Path | None, pin: str | None, as_json: bool) -> None:
    """Show the manifest and the decisions of FILE."""
    from tunewright.stores.bundle import statements  # noqa: PLC0415 - for bundles alone

    store = open_bundle(file, signers, pin)
    origins = statements.read_statements(store)
    if as_json:
        answer = {"digest": store.digest, "signer": store.signer, "manifest": store.manifest}
        output.print_json({**answer, "provenance": origins, "decisions": list(store.decisions())})
        return
    manifest = store.manifest
    count = formatting.counted(manifest.decisions, "decision")
    output.echo(f"{count} by {manifest.made_by}; choice {manifest.choice[:16]}", "bold")
    if manifest.note:
        output.echo(manifest.note)
    if manifest.channel:
        whom = ", ".join(manifest.audience) or "everybody"
        output.echo(f"version {manifest.version} of channel {manifest.channel}, until {manifest.expires}, for {whom}")
    for origin in origins:
        output.echo(f"tuned {statements.summarize(origin)}")
    rows = [
        (decision.key.kernel, decision.key.signature, decision.key.device, decision.config)
        for decision in store.decisions()
    ]
    output.print_table(("kernel", "arguments", "device", "config"), rows)


@bundle.command()
@click.argument("one", type=FILE)
@click.argument("other", type=FILE)
@trust_options
@json_option
def diff(one: Path, other: Path, signers: Path | None, pin: str | None, as_json: bool) -> None:
    """List the decisions in which OTHER differs from ONE. Exit status 1 if there is a difference."""
    before, after = (
        {decision.key: decision for decision in open_bundle(path, signers, pin).decisions()} for path in (one, other)
    )
    changes: list[tuple[str, Key, Decision | None, Decision | None]] = []
    changes += [("gone", key, old, None) for key, old in before.items() if key not in after]
    changes += [("new", key, None, new) for key, new in after.items() if key not in before]
    changes += [
        ("changed", key, old, after[key])
        for key, old in before.items()
        if key in after and after[key].config != old.config
    ]
    if as_json:
        output.print_json(
            [
                {"what": what, "before": old and output.to_builtins(old), "after": new and output.to_builtins(new)}
                for what, _, old, new in changes
            ]
        )
    else:
        rows = [
            (what, key.kernel, key.signature, old.config if old else "", new.config if new else "")
            for what, key, old, new in changes
        ]
        output.print_table(("", "kernel", "arguments", "before", "after"), rows)
        output.echo(f"{formatting.counted(len(changes), 'difference')}")
    if changes:
        sys.exit(1)


@bundle.command()
@click.argument("file", type=FILE)
@click.argument("sources", nargs=-1, required=True, type=FILE)
@click.option("--sign", type=FILE, help="The key to sign with.")
@release_options
@trust_options
@json_option
def merge(file: Path, sources: Sequence[Path], sign: Path | None, signers: Path | None, **options: Any) -> None:
    """Merge several bundles into FILE.

    Where SOURCES differ, the decision with the better evidence is kept, and the conflict is listed.
    """
    from tunewright.stores.bundle import build as writer  # noqa: PLC0415 - needs `cryptography`
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - as above

    release = make_release(options)
    merged: dict[Key, Decision] = {}
    conflicts: list[tuple[Decision, Decision, str]] = []
    attachments: list[writer.Attachment] = []
    for source in sources:
        opened = open_bundle(source, signers, options["pin"])
        for decision in opened.decisions():
            present = merged.setdefault(decision.key, decision)
            if present != decision:
                winner, reason = resolve_conflict(present, decision)
                conflicts.append((winner, decision if winner is present else present, reason))
                merged[decision.key] = winner
        for item in opened.attachments.values():
            body = opened.read_attachment(item.kind, item.name)
            attachments.append(writer.Attachment(item.kind, item.name, body, item.label))
    content = writer.build(merged.values(), attachments, release=release)
    digest = writer.write(file, content, signing.load_private_key(sign) if sign else None)
    if options["as_json"]:
        resolved = [
            {"kept": output.to_builtins(kept), "dropped": output.to_builtins(dropped), "reason": reason}
            for kept, dropped, reason in conflicts
        ]
        output.print_json({"file": str(file), "digest": digest, "decisions": len(merged), "conflicts": resolved})
        return
    rows = [
        (kept.key.kernel, kept.key.signature, kept.config, dropped.config, reason)
        for kept, dropped, reason in conflicts
    ]
    if rows:
        output.print_table(("kernel", "arguments", "kept", "dropped", "because"), rows)
    output.echo(
        f"{file}: {formatting.counted(len(merged), 'decision')}, "
        f"{formatting.counted(len(conflicts), 'conflict')} resolved"
    )


@bundle.command()
@click.argument("file", type=FILE)
@trust_options
@expectation_options
@store_option
@json_option
def apply(file: Path, signers: Path | None, pin: str | None, as_json: bool, **options: Any) -> None:
    """Put the decisions of FILE into the store.

    Builds go into the cache. Earlier decisions stay in the history: `tunewright store rollback` restores them.
    """
    source = open_bundle(file, signers, pin, make_expectation(options))
    session = make_session(None, {"store": options["store"]})
    source.require_fresh(session.settings.cache_path, in_use=False)
    source.apply_quarantine(session.settings.cache_path)
    changed = 0
    for decision in source.decisions():
        if not source.is_quarantined(decision.key) and session.store.get(decision.key) != decision:
            session.store.put(decision)
            changed += 1
    builds = _unpack(source, session)
    if isinstance(session.store, SupportsSync):
        session.store.sync()
    if as_json:
        output.print_json({"decisions": source.manifest.decisions, "changed": changed, "builds": builds})
        return
    output.echo(
        f"{formatting.counted(source.manifest.decisions, 'decision')} of {file} are in "
        f"{session.settings.store_name}, "
        f"{changed} of them new or changed, with {formatting.counted(builds, 'build')}; "
        "`tunewright store rollback KERNEL` undoes that"
    )


def _unpack(source: Any, session: Session) -> int:
    """Puts attachments where launches look for them, and returns the number of builds."""
    labels = []
    for (kind, name), item in source.attachments.items():
        content = source.read_attachment(kind, name)
        if kind == "build" and item.label is not None:
            artifacts.unpack(session.settings.cache_path, content, item.label, durable=True)
            labels.append(item.label)
        elif kind == "race" and isinstance(session.store, KeepsNamespaces):
            session.store.keep(transcripts.NAMESPACE, name, content)
    if labels:
        artifacts.record_applied(session.settings.cache_path, source.digest, labels)
    return len(labels)
