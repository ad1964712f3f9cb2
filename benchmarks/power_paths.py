"""The paths that are cut off: what a child does in a folder, what it was told is safe, and what must be there then.

    python benchmarks/power_paths.py NAME FOLDER      (as a child of power.py, with the shim)

Each path has a child, which acknowledges (`ack`) after each call that promises durability, and a check, which opens a
state by the real code and returns what was lost and what was torn.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tunewright.errors import TunewrightError
from tunewright.model.decision import Decision
from tunewright.model.signature import Signature
from tunewright.spaces.config import Config
from tunewright.stores import artifacts, locations
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import MirrorStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.statistics import RetentionLimits
from tunewright.testing.keys import TIMED, other_decision, other_key

DEAD = "redis://127.0.0.1:1/0"
"""A remote store that refuses connections."""

ORIGIN = {"token": "t", "request": "r"}


class Damage(NamedTuple):
    """What a state lacks although it was acknowledged, and what it serves although it is not whole."""

    lost: list[str]
    torn: list[str]


class PowerPath(NamedTuple):
    """A path: what is in the folder before, what the child does, and how a state is judged."""

    child: Callable[[Path], None]
    check: Callable[[Path, list[Any]], Damage]
    before: Callable[[Path], None] = lambda folder: None


def ack(*what: Any) -> None:
    """States that this was acknowledged; without the shim, nothing."""
    function = getattr(ctypes.CDLL(None), "power_acknowledge", None)
    if function is not None:
        function(json.dumps(what).encode())


def decision(number: int, version: int = 0) -> Decision:
    return other_decision(key=other_key(kernel=f"kernel {number}"), config=Config(tile=version, note="x" * 300))


def expect(damage: Damage, found: Decision | None, number: int, least: int) -> None:
    """Judges the decision of a key: `least` is the version that was acknowledged, -1 if none was."""
    if found is None:
        if least >= 0:
            damage.lost.append(f"decision {number}")
        return
    version = found.config["tile"]
    if found != decision(number, version):
        damage.torn.append(f"decision {number}")
    elif version < least:
        damage.lost.append(f"version {least} of decision {number}")


def latest(acks: list[Any], kind: str) -> dict[int, int]:
    """Returns the acknowledged version of each number."""
    return {ack[1]: ack[2] for ack in acks if ack[0] == kind}


def judge_store(store: Any, acks: list[Any], damage: Damage) -> None:
    """Judges decisions and trials that were acknowledged, and whether every record is whole."""
    damage.torn.extend(store.faults())
    versions, trials = latest(acks, "put"), latest(acks, "record")
    for number in range(20):
        expect(damage, store.get(decision(number).key), number, versions.get(number, -1))
        count = sum(1 for _ in store.trials(decision(number).key))
        if count < trials.get(number, 0):
            damage.lost.append(f"trials of {number}")
        if count % 2:
            damage.torn.append(f"trials of {number}: {count}, recorded in pairs")


# --- SQLite


def use_store(path: Path, *, durable: bool, claims: bool) -> None:
    """Puts, replaces, records, trims, and opens the file again, which moves the log into it.

    If it `claims` durability, each write is acknowledged; else all are after a `sync`.
    """
    acknowledge = ack if claims else (lambda *what: None)
    for opened in range(2):
        store = SqliteStore(path, durable=durable)
        for number in range(3 * opened, 3 * opened + 3):
            store.put(decision(number))
            acknowledge("put", number, 0)
            store.record(decision(number).key, [TIMED, TIMED])
            acknowledge("record", number, 2)
        store.put(decision(0, opened + 1))
        acknowledge("put", 0, opened + 1)
        del store
        gc.collect()
    store = SqliteStore(path, durable=durable)
    store.trim(RetentionLimits(bytes=1 << 20))
    store.put(decision(6))
    acknowledge("put", 6, 0)
    if not claims:
        store.sync()
        for what in [("put", number, 2 * (not number)) for number in range(7)]:
            ack(*what)
        store.put(decision(7))


def check_store(folder: Path, acks: list[Any]) -> Damage:
    damage = Damage([], [])
    store = SqliteStore(folder / "cache" / "store.sqlite")
    judge_store(store, acks, damage)
    present = [store.get(decision(number).key) is not None for number in range(8)]
    if present != sorted(present, reverse=True):
        damage.torn.append(f"a later decision without an earlier one: {present}")
    return damage


# --- the mirror of a remote store that is down


def use_mirror(folder: Path) -> None:
    for opened in range(2):
        store: Any = locations.open_store(DEAD, folder / "mirrors" / "remote.sqlite")
        for number in range(3 * opened, 3 * opened + 3):
            store.put(decision(number))
            ack("put", number, 0)
            store.record(decision(number).key, [TIMED, TIMED])
            ack("record", number, 2)
        store.put(decision(0, opened + 1))
        ack("put", 0, opened + 1)
        del store
        gc.collect()


def check_mirror(folder: Path, acks: list[Any]) -> Damage:
    """The remote is back, and must get everything that was acknowledged."""
    damage, remote = Damage([], []), MemoryStore()
    local = SqliteStore(folder / "mirrors" / "remote.sqlite")
    damage.torn.extend(local.faults())
    MirrorStore(remote, local).send_pending()
    remote.faults = lambda: iter(())  # type: ignore[attr-defined]
    judge_store(remote, acks, damage)
    return damage


# --- what the service acknowledges


def open_service_store(folder: Path) -> SqliteStore:
    """What `service.storage.open_primary` opens, without its search for installed stores, which takes 20 ms."""
    return SqliteStore(folder / "service" / "store.sqlite").durable()


def bundle_of(number: int) -> bytes:
    from tunewright.stores.bundle import build, signing

    content = build.build([decision(number)])
    return content + signing.make_trailer(sha256(content).digest(), None)


def use_service(folder: Path) -> None:
    """Requests to the application itself; an answer is the acknowledgment."""
    import asyncio

    import httpx

    from tunewright.service.app import create_app
    from tunewright.service.config import ServiceConfig
    from tunewright.service.responses import record_tag
    from tunewright.stores import serialization

    async def ask(client: httpx.AsyncClient) -> None:
        for number in range(2):
            body = {"decision": json.loads(serialization.dump_decision(decision(number)))}
            assert (await client.post("/v1/decisions", json=body)).status_code == 200
            ack("put", number, 0)
            over = record_tag(serialization.dump_decision(decision(number)))
            body = {"decision": json.loads(serialization.dump_decision(decision(number, 1))), "over": over}
            assert (await client.post("/v1/decisions", json=body)).status_code == 200
            ack("put", number, 1)
            bundle = bundle_of(number)
            digest = sha256(bundle).hexdigest()
            assert (await client.put(f"/v1/bundles/{digest}", content=bundle)).status_code == 200
            ack("bundle", number, digest)
            lines = [serialization.dump_key(decision(number).key), *serialization.dump_trials([TIMED, TIMED])]
            assert (await client.post("/v1/trials", content=b"\n".join(lines))).status_code == 200
            ack("record", number, 2)

    async def serve() -> None:
        app = create_app(ServiceConfig(store=str(folder / "service" / "store.sqlite"), open=True, threads=1))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await ask(client)

    asyncio.run(serve())
    use_tokens(folder)


def use_tokens(folder: Path) -> None:
    """The commands that make, rotate and revoke tokens."""
    from tunewright.cli.main import command

    place = ("--store", str(folder / "service" / "store.sqlite"))
    for name in ("kept", "gone"):
        command(["service", "token", "add", name, "--scope", "read", *place], standalone_mode=False)
        ack("token", name, True)
    command(["service", "token", "rotate", "kept", "--grace", "0s", *place], standalone_mode=False)
    ack("rotated", "kept", True)
    command(["service", "token", "revoke", "gone", *place], standalone_mode=False)
    ack("token", "gone", False)


def check_service(folder: Path, acks: list[Any]) -> Damage:
    from tunewright.service.bundles import BUNDLE_NAMESPACE, LISTING_NAMESPACE, digest_of
    from tunewright.service.tokens import TokenStore

    damage, store = Damage([], []), open_service_store(folder)
    judge_store(store, acks, damage)
    names, acknowledged = {token.name: token for token in TokenStore(store).all()}, latest(acks, "token")
    for name, valid in acknowledged.items():
        if valid != (name in names) and not (name == "gone" and valid):
            damage.lost.append(f"that {name} is {'valid' if valid else 'revoked'}")
    if latest(acks, "rotated") and not names["kept"].former:
        damage.lost.append("a rotation")
    for number, digest in latest(acks, "bundle").items():
        if not store.fetch(BUNDLE_NAMESPACE, [digest]) or not store.fetch(LISTING_NAMESPACE, [digest]):
            damage.lost.append(f"bundle {number}")
    for name, body in store.entries(BUNDLE_NAMESPACE):
        if digest_of(body) != name:
            damage.torn.append(f"bundle {name}")
    return damage


# --- artifacts of the local cache, which promises no durability, only whole files


ARTIFACTS = 16


def artifact(number: int) -> tuple[bytes, ArtifactLabel]:
    content = sha256(str(number).encode()).digest() * 100
    name = f"{sha256(content).hexdigest()}.so"
    return content, ArtifactLabel(name, f"kernel {number}", "source", Config(tile=number), Signature(()), {"cc": "1"})


def use_artifacts(folder: Path) -> None:
    cache = folder / "cache"
    for number in range(ARTIFACTS):
        content, label = artifact(number)
        if number % 2:
            artifacts.unpack(cache, content, label)
            continue
        artifacts.save_artifact(cache, content, label)


def check_artifacts(folder: Path, acks: list[Any]) -> Damage:
    damage, whole = Damage([], []), {label.name: content for content, label in map(artifact, range(ARTIFACTS))}
    for name, content in whole.items():
        path = artifacts.artifact_path(folder / "cache", name)
        if path.is_file() and path.read_bytes() != content:
            damage.torn.append(f"artifact {name[:8]}")
    digests = [(label, sha256(content).hexdigest()) for content, label in map(artifact, range(ARTIFACTS))]
    known = [msgspec.structs.replace(label, digest=digest) for label, digest in digests]
    damage.torn.extend(f"label {one.name[:8]}" for one in artifacts.read_labels(folder / "cache") if one not in known)
    return damage


# --- bundles that are built, applied, and whose entries are found bad


def before_bundles(folder: Path) -> None:
    from tunewright.stores.bundle.build import Attachment, build, write

    for number in range(2):
        content, label = artifact(number)
        body = build([decision(number)], [Attachment("build", label.name, content, label)])
        (folder / f"pin{number}").write_text(write(folder / f"{number}.bundle", body))


def use_bundles(folder: Path) -> None:
    from tunewright.cli.main import command
    from tunewright.stores.bundle.build import build, write
    from tunewright.stores.bundle.quarantine import Quarantine

    place = ("--store", str(folder / "cache" / "store.sqlite"))
    for number in range(2):
        pin = (folder / f"pin{number}").read_text()
        words = ["bundle", "apply", str(folder / f"{number}.bundle"), "--pin", pin, *place]
        command(words, standalone_mode=False)
        ack("put", number, 0)
        ack("applied", number, 0)
        Quarantine(folder / "cache", pin).add(decision(number).key.digest, Config(tile=0), "wrong result")
        ack("quarantined", number, pin)
        digest = write(folder / "out" / "new.bundle", build([decision(number, 1), decision(5)]))
        ack("built", number, digest)


def check_bundles(folder: Path, acks: list[Any]) -> Damage:
    from tunewright.stores.bundle.quarantine import Quarantine
    from tunewright.stores.bundle.store import BundleStore

    damage = check_artifacts(folder, [])
    judge_store(SqliteStore(folder / "cache" / "store.sqlite"), acks, damage)
    for number in latest(acks, "applied"):
        _, label = artifact(number)
        path = artifacts.artifact_path(folder / "cache", label.name)
        if label not in artifacts.read_applied(folder / "cache", label.kernel) or not path.is_file():
            damage.lost.append(f"artifact {number}")
    for pin in latest(acks, "quarantined").values():
        if not Quarantine(folder / "cache", str(pin)).entries():
            damage.lost.append("an entry in quarantine")
    built = list(latest(acks, "built").values())
    path = folder / "out" / "new.bundle"
    if path.exists():
        try:
            decisions = list(BundleStore.open_trusted(path, None, _digest_of(path)).decisions())
            damage.torn.extend([] if len(decisions) == 2 else ["a built bundle"])
        except TunewrightError as error:
            damage.torn.append(f"a built bundle: {error}")
    elif built:
        damage.lost.append("a built bundle")
    return damage


def _digest_of(path: Path) -> str:
    from tunewright.stores.bundle.layout import TRAILER

    return sha256(path.read_bytes()[:-TRAILER]).hexdigest()


# --- the audit log


def use_audit(folder: Path) -> None:
    from tunewright.cli.main import command
    from tunewright.service.publishing import Publisher
    from tunewright.service.responses import record_tag
    from tunewright.service.storage import ServiceStorage
    from tunewright.stores import serialization

    place = folder / "service" / "store.sqlite"
    publisher = Publisher(ServiceStorage(str(place)))
    for number in range(6):
        publisher.publish(decision(number), None, ORIGIN)
        ack("put", number, 0)
        if number % 2:
            over = record_tag(serialization.dump_decision(decision(number)))
            publisher.publish(decision(number, 1), over, ORIGIN)
            ack("put", number, 1)
            words = ["service", "audit", "export", str(folder / "old" / "audit.ndjson"), "--keep", "1"]
            command([*words, "--store", str(place)], standalone_mode=False)
            ack("exported", number, 0)


def check_audit(folder: Path, acks: list[Any]) -> Damage:
    """Every decision that was ever current has one entry, every entry its decision, and the chain is whole."""
    from tunewright.service import audit_export
    from tunewright.service.audit_log import AUDIT_LOG, read_record

    damage, store = Damage([], []), open_service_store(folder)
    judge_store(store, acks, damage)
    file = folder / "old" / "audit.ndjson"
    report = audit_export.verify(store, [file] if file.exists() else [])
    if report.problem:
        damage.torn.append(report.problem)
    audit_export.export(store, file, keep=1)
    lines = file.read_bytes().splitlines() if file.exists() else []
    bodies = dict.fromkeys([*lines, *(body for _, body in store.entries(AUDIT_LOG))])
    records = [record for body in bodies if (record := read_record(body)) is not None]
    logged = sorted((record.digest, record.after["tile"]) for record in records)
    stored = sorted(
        (one.decision.key.digest, one.decision.config["tile"])
        for number in range(6)
        for one in store.history(decision(number).key)
    )
    if logged != stored:
        (damage.lost if len(logged) < len(stored) else damage.torn).append(f"{len(logged)} entries of {len(stored)}")
    return damage


# --- writers that are unsafe, to show that the harness notices


def use_in_place(folder: Path) -> None:
    """Writes files in place, and never syncs."""
    for number in range(3):
        (folder / f"{number}.json").write_bytes(b"[%d]" % number * 500)
        ack("put", number, 0)


def use_renamed(folder: Path) -> None:
    """Writes a file and renames it, as many programs do; its content is not synced."""
    for number in range(3):
        (folder / "part").write_bytes(b"[%d]" % number * 500)
        (folder / "part").rename(folder / f"{number}.json")
        ack("put", number, 0)


def check_files(folder: Path, acks: list[Any]) -> Damage:
    damage = Damage([], [])
    for number in range(3):
        path = folder / f"{number}.json"
        if not path.exists():
            damage.lost.extend([f"file {number}"] if number in latest(acks, "put") else [])
        elif path.read_bytes() != b"[%d]" % number * 500:
            damage.torn.append(f"file {number}")
    return damage


def store_path(*, durable: bool, claims: bool) -> PowerPath:
    def use(folder: Path) -> None:
        use_store(folder / "cache" / "store.sqlite", durable=durable, claims=claims)

    return PowerPath(use, check_store)


PATHS = {
    "sqlite": store_path(durable=True, claims=True),
    "sqlite_relaxed": store_path(durable=False, claims=False),
    "mirror": PowerPath(use_mirror, check_mirror),
    "service": PowerPath(use_service, check_service),
    "artifact": PowerPath(use_artifacts, check_artifacts),
    "bundle": PowerPath(use_bundles, check_bundles, before_bundles),
    "audit": PowerPath(use_audit, check_audit),
}
UNSAFE = {
    "in_place": PowerPath(use_in_place, check_files),
    "renamed": PowerPath(use_renamed, check_files),
    "sqlite_unsynced": store_path(durable=False, claims=True),
}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    (PATHS | UNSAFE)[sys.argv[1]].child(Path(sys.argv[2]))
