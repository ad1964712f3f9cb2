"""Bundle: what was tuned as one signed file: made, checked, shown, compared, merged, applied."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from tunewright.cli import arriving, output
from tunewright.cli.targets import json_option, kernel_at, session_for, store_option
from tunewright.errors import BundleError, NoDecision
from tunewright.model.decision import Decision
from tunewright.ports import plugins
from tunewright.report import words
from tunewright.session import Session
from tunewright.sharing import artefacts
from tunewright.sharing.offers import Shelves
from tunewright.sharing.settling import settled

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, path_type=Path)


def trust_options(function: F) -> F:
    """`--signers` and `--pin`."""
    signers = click.option("--signers", type=FILE, help="Who may sign: a public key and a name on each line.")
    pin = click.option("--pin", help="The digest that the bundle must have.")
    return signers(pin(function))


@click.group()
def bundle() -> None:
    """Make, check and use bundles: what was tuned as one signed file."""


def _opened(path: Path, signers: Path | None, pin: str | None) -> Any:
    """The bundle at `path`, verified."""
    return plugins.load("stores", "bundle").trusted(path, signers, pin)


@bundle.command()
@click.argument("file", type=FILE)
def key(file: Path) -> None:
    """Make a key to sign with at FILE.

    FILE is readable by its owner alone. The line printed goes into others' lists of signers.
    """
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    try:
        public = signing.new_key(file)
    except FileExistsError as error:
        raise click.UsageError(f"{file} is there already; a key is never overwritten") from error
    output.say(f"{public} {file.stem}")


@bundle.command()
@click.argument("file", type=FILE)
@click.argument("kernels", nargs=-1)
@click.option("--sign", type=FILE, help="The key to sign with, as `tunewright bundle key` makes it.")
@click.option("--bare", is_flag=True, help="Decisions alone, without what was built for them.")
@click.option("--note", default="", help="A sentence for whoever opens it.")
@store_option
@json_option
def build(file: Path, kernels: Sequence[str], sign: Path | None, note: str, **options: Any) -> None:
    """Pack what is decided into FILE.

    For all kernels, or for KERNELS: names, or FILE.py:NAME. What was built of the configs decided comes along, so
    that production compiles nothing. Of a kernel given as FILE.py:NAME what is missing is built first, and the
    default too. Of Triton kernels what `tunewright triton prebuild` compiled comes along.
    """
    from tunewright.fronts import packing  # noqa: PLC0415 - needs `cryptography`
    from tunewright.stores.bundle import build as making  # noqa: PLC0415 - as above
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - as above

    found = [kernel_at(target) for target in kernels if ":" in target]
    names = [name for name in kernels if ":" not in name] + [kernel.name for kernel in found]
    session = session_for(None, {"store": options["store"]})
    chosen = [decision for name in names or (None,) for decision in session.store.decisions(name)]
    for kernel in found:
        packing.build_all(kernel, [decision for decision in chosen if decision.key.kernel == kernel.name])
    enclosed: list[making.Enclosure] = []
    if not options["bare"]:
        enclosed += [*packing.enclosures(session, chosen, found), *packing.prebuilt(session, names)]
    if not chosen and not enclosed:
        raise NoDecision(f"nothing is decided for {', '.join(names) or 'any kernel'} in {session.settings.store_name}")
    content = making.build(chosen, enclosed, note=note)
    digest = making.write(file, content, signing.private_key(sign) if sign else None)
    builds = sum(one.kind == "build" for one in enclosed)
    if options["as_json"]:
        made = {"file": str(file), "digest": digest, "decisions": len(chosen), "builds": builds}
        output.as_json({**made, "races": len(enclosed) - builds, "signed": sign is not None})
        return
    output.say(
        f"{file}: {words.counted(len(chosen), 'decision')}, {words.counted(builds, 'build')}, "
        f"{words.size(len(content))}, " + ("signed" if sign else "not signed")
    )
    output.say(f"pin it with {digest}")


@bundle.command()
@click.argument("file", type=FILE)
@click.argument("kernels", nargs=-1)
@trust_options
@arriving.arrival_options
@store_option
@json_option
def verify(file: Path, signers: Path | None, pin: str | None, as_json: bool, **options: Any) -> None:
    """Check who signed FILE, and read every decision in it.

    Or that it is the one pinned. With --here or --budget it is raced again on this machine; KERNELS say where
    kernels are found: FILE.py:NAME. Exit status 1 if anything regressed.
    """
    store = _opened(file, signers, pin)
    readable = list(store.decisions())
    missing = store.manifest.decisions - len(readable)
    told = {"digest": store.digest, "signer": store.signer, "decisions": len(readable), "unreadable": missing}
    if not as_json:
        vouched = f"signed by {store.signer}" if store.signer else "as pinned"
        output.say(f"{file}: {vouched}, {words.counted(len(readable), 'decision')}")
    told |= arriving.arrived(store, readable, options, speak=not as_json)
    if as_json:
        output.as_json(told)
    if missing:
        raise BundleError(f"{missing} of its decisions cannot be read; do not use it")
    if told.get("objections") or told.get("regressed"):
        sys.exit(1)


@bundle.command()
@click.argument("file", type=FILE)
@trust_options
@json_option
def show(file: Path, signers: Path | None, pin: str | None, as_json: bool) -> None:
    """Show what FILE says of itself and what it decides."""
    store = _opened(file, signers, pin)
    if as_json:
        output.as_json({"digest": store.digest, "manifest": store.manifest, "decisions": list(store.decisions())})
        return
    said = store.manifest
    output.say(f"{words.counted(said.decisions, 'decision')} by {said.made_by}; choice {said.choice[:16]}", "bold")
    if said.note:
        output.say(said.note)
    rows = [(d.key.kernel, d.key.signature, d.key.device, d.config) for d in store.decisions()]
    output.table(("kernel", "arguments", "device", "config"), rows)


@bundle.command()
@click.argument("one", type=FILE)
@click.argument("other", type=FILE)
@trust_options
@json_option
def diff(one: Path, other: Path, signers: Path | None, pin: str | None, as_json: bool) -> None:
    """Say what OTHER decides otherwise than ONE. Exit status 1 if there is a difference."""
    before, after = ({d.key: d for d in _opened(path, signers, pin).decisions()} for path in (one, other))
    changes = [("gone", d, None) for k, d in before.items() if k not in after]
    changes += [("new", None, d) for k, d in after.items() if k not in before]
    changes += [("changed", d, after[k]) for k, d in before.items() if k in after and after[k].config != d.config]
    if as_json:
        output.as_json(
            [{"what": what, "before": a and output.plain(a), "after": b and output.plain(b)} for what, a, b in changes]
        )
    else:
        rows = [
            (what, _of(a, b).key.kernel, _of(a, b).key.signature, a.config if a else "", b.config if b else "")
            for what, a, b in changes
        ]
        output.table(("", "kernel", "arguments", "before", "after"), rows)
        output.say(f"{words.counted(len(changes), 'difference')}")
    if changes:
        sys.exit(1)


def _of(one: Decision | None, other: Decision | None) -> Decision:
    found = one or other
    assert found is not None
    return found


@bundle.command()
@click.argument("file", type=FILE)
@click.argument("sources", nargs=-1, required=True, type=FILE)
@click.option("--sign", type=FILE, help="The key to sign with.")
@trust_options
@json_option
def merge(file: Path, sources: Sequence[Path], sign: Path | None, signers: Path | None, **options: Any) -> None:
    """Make FILE of several bundles.

    Where SOURCES differ the better evidence wins, and that is said.
    """
    from tunewright.stores.bundle import build as making  # noqa: PLC0415 - needs `cryptography`
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - as above

    found: dict[Any, Decision] = {}
    conflicts: list[tuple[Decision, Decision, str]] = []
    enclosed: list[making.Enclosure] = []
    for source in sources:
        opened = _opened(source, signers, options["pin"])
        for decision in opened.decisions():
            standing = found.setdefault(decision.key, decision)
            if standing != decision:
                winner, reason = settled(standing, decision)
                conflicts.append((winner, decision if winner is standing else standing, reason))
                found[decision.key] = winner
        for one in opened.enclosures.values():
            enclosed.append(making.Enclosure(one.kind, one.name, opened.enclosed(one.kind, one.name), one.label))
    content = making.build(found.values(), enclosed)
    digest = making.write(file, content, signing.private_key(sign) if sign else None)
    if options["as_json"]:
        told = [{"kept": output.plain(a), "dropped": output.plain(b), "reason": why} for a, b, why in conflicts]
        output.as_json({"file": str(file), "digest": digest, "decisions": len(found), "conflicts": told})
        return
    rows = [(a.key.kernel, a.key.signature, a.config, b.config, why) for a, b, why in conflicts]
    if rows:
        output.table(("kernel", "arguments", "kept", "dropped", "because"), rows)
    output.say(f"{file}: {words.counted(len(found), 'decision')}, {words.counted(len(conflicts), 'conflict')} settled")


@bundle.command()
@click.argument("file", type=FILE)
@trust_options
@store_option
@json_option
def apply(file: Path, signers: Path | None, pin: str | None, store: str | None, as_json: bool) -> None:
    """Put the decisions of FILE into the store.

    Builds go into the cache. What stood before stays in history: `tunewright store rollback` goes back.
    """
    source = _opened(file, signers, pin)
    session = session_for(None, {"store": store})
    source.heed(session.settings.cache_path)
    changed = 0
    for decision in source.decisions():
        if not source.is_held(decision.key) and session.store.get(decision.key) != decision:
            session.store.put(decision)
            changed += 1
    builds = _unpacked(source, session)
    if as_json:
        output.as_json({"decisions": source.manifest.decisions, "changed": changed, "builds": builds})
        return
    output.say(
        f"{words.counted(source.manifest.decisions, 'decision')} of {file} stand in {session.settings.store_name}, "
        f"{changed} of them new or changed, with {words.counted(builds, 'build')}; "
        "`tunewright store rollback KERNEL` goes back"
    )


def _unpacked(source: Any, session: Session) -> int:
    """Put what is enclosed where launches look for it; how many builds there are."""
    labels = []
    for (kind, name), one in source.enclosures.items():
        content = source.enclosed(kind, name)
        if kind == "build" and one.label is not None:
            artefacts.unpack(session.settings.cache_path, content, one.label)
            labels.append(one.label)
        elif isinstance(session.store, Shelves):
            session.store.keep("races", name, content)
    if labels:
        artefacts.apply(session.settings.cache_path, source.digest, labels)
    return len(labels)
