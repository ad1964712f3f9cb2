"""What the processes of `faults.py` do while faults befall them; what they acknowledge stands in their logs."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from fault_places import set_ahead

from tunewright import Config, Knob, Session, Space
from tunewright.errors import StoreError
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.model.trial import Timing, Trial
from tunewright.ports.store import Store
from tunewright.stores import locations, serialization
from tunewright.stores.capabilities import KeepsRevisions, SupportsMaintenance
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import MirrorStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.statistics import MissRecord, RetentionLimits
from tunewright.testing.keys import TIMED, other_decision, other_key

T = TypeVar("T")

KNOWN = 200
"""Decisions that are there before anything happens."""

BATCH = 3
SPACE = Space(Knob("tile", list(range(KNOWN + 12))))
SMALL = Space(Knob("tile", list(range(12))))


def key_of(*name: object) -> Key:
    """A key that is like no other: no answer to a like question can be taken for it."""
    return other_key(kernel=" ".join(map(str, name)))


def known(number: int) -> Decision:
    """One of the decisions that are there before; the default, 0, is none of their configs."""
    return other_decision(key=key_of("known", number), config=Config(tile=number + 1))


def note(log: Path, *words: object) -> None:
    """Append a line to a log, in one call into the kernel: what was written before a kill is there."""
    line = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(line, (" ".join(map(str, words)) + "\n").encode())
    os.close(line)


def noted(log: Path) -> Iterator[list[str]]:
    """The lines of a log, in words."""
    return (line.split() for line in (log.read_text().splitlines() if log.exists() else ()))


def writer(location: str, log: Path, number: int, turns: int) -> None:
    """Put and record until the end or a kill."""
    store = locations.open_single(location)
    for turn in range(turns):
        began = time.monotonic()
        trials = [msgspec.structs.replace(TIMED, config=Config(turn=turn, part=part)) for part in range(BATCH)]
        store.record(key_of("writer", number), trials)
        note(log, "trials", number, turn, time.monotonic() - began)
        began = time.monotonic()
        store.put(other_decision(key=key_of("writer", number, turn), config=Config(writer=number, turn=turn)))
        note(log, "put", number, turn, time.monotonic() - began)
        began = time.monotonic()
        stands = store.put(other_decision(key=key_of("shared", turn), config=Config(writer=number)), replace=False)
        note(log, "agreed", turn, stands.config["writer"], time.monotonic() - began)


class Noisy:
    """Near ties, all better than the default, under noise of its own: alone, processes would choose differently."""

    def __init__(self, seed: int, seconds: float) -> None:
        self._rng, self._seconds = random.Random(seed), seconds

    def __call__(self, entry: Any) -> Trial:
        time.sleep(self._seconds)
        seconds = 1e-3 * (1 + 0.001 * (entry.config["tile"] % 3) if entry.config["tile"] else 1.3)
        return Trial(entry.config, Timing(tuple(seconds * self._rng.uniform(0.95, 1.05) for _ in range(5)), "cpu"))


def session_at(location: str, cache: Path, **more: Any) -> Session:
    return Session(
        store=location, cache=str(cache), pool="serial", strategy="random", trials=12, min_expected_gain=0.0, **more
    )


def tuner(location: str, cache: Path, log: Path, name: str, number: int) -> None:
    """One of many that miss one key at once."""
    session = session_at(location, cache)

    def leads(_: object) -> None:
        if session.counts["measurements"] == 1:
            note(log, "leads", os.getpid(), number)

    session.listeners.append(leads)
    note(log, "asks", os.getpid(), number)
    decision = session.resolve(Problem(key_of(name), SMALL, Config(tile=0)), Noisy(number, 0.08))
    note(log, "ends", number, session.counts["searches"], time.monotonic(), serialization.dump_decision(decision).hex())


def launcher(location: str, cache: Path, log: Path, number: int, over: Any) -> None:
    """Look up what is known and put what is new, on and on, through all that a session has but its memory."""
    store, rng = locations.open_store(location, locations.mirror_path(location, cache)), random.Random(number)
    turn = 0
    while not over.wait(rng.uniform(0.02, 0.1)):
        asked = known(rng.randrange(KNOWN))
        began = time.monotonic()
        found = store.get_many([asked.key]).get(asked.key)
        ended = time.monotonic()
        said = "miss" if found is None else "hit" if found.config == asked.config else "WRONG"
        note(log, "get", said, 0, ended - began, ended)
        began = time.monotonic()
        store.put(other_decision(key=key_of("launcher", number, turn), config=Config(writer=number, turn=turn)))
        ended = time.monotonic()
        note(log, "put", number, turn, ended - began, ended)
        turn += 1


def starter(location: str, cache: Path, log: Path) -> None:
    """A process that starts while a server is away, and needs fifty decisions at once."""
    began = time.monotonic()
    session = session_at(location, cache, mode="frozen")
    wanted = [known(number) for number in range(50)]
    problems = [Problem(decision.key, SPACE, Config(tile=0)) for decision in wanted]
    session.warm(problems)
    answers = [session.lookup_or_policy(problem) for problem in problems]
    pairs = zip(answers, wanted, strict=True)
    wrong = sum(
        answer is None or answer.config["tile"] not in (0, decision.config["tile"]) for answer, decision in pairs
    )
    note(log, "started", wrong, time.monotonic() - began)


def tried(what: Callable[[], T]) -> T | None:
    """What `what` returns; None if it ends with a StoreError, which it may."""
    try:
        return what()
    except StoreError:
        return None


def filler(location: str, folder: Path, log: Path, number: int) -> None:
    """Put until the disk is full, go on, and see whether all is well when there is space again."""
    cache, rng = folder / "cache", random.Random(number)
    store = (
        locations.open_store(location, locations.mirror_path(location, cache))
        if "//" in location
        else locations.open_single(location)
    )
    kept: list[Decision] = []
    worst, refused = 0.0, 0
    for turn in range(400):
        notes = ("x" * rng.randrange(1000, 12_000),)
        decision = other_decision(key=key_of("filler", number, turn), config=Config(turn=turn))
        assert decision.evidence is not None
        decision = decision.replace(evidence=msgspec.structs.replace(decision.evidence, notes=notes))
        began = time.monotonic()
        if tried(lambda decision=decision: store.put(decision)) is not None:
            kept.append(decision)
        else:
            refused += 1
        worst = max(worst, time.monotonic() - began)
        if refused == 3:
            break
    began = time.monotonic()
    session = session_at(location, cache)
    answer = session.resolve(Problem(key_of("filler", number), SMALL, Config(tile=0)), Noisy(number, 0.0))
    worst = max(worst, time.monotonic() - began)
    wrong = [] if answer.config in SMALL else ["no answer on a full disk"]
    wrong += _missing(store, kept, "on a full disk")
    (folder / "ballast").unlink()
    after = other_decision(key=key_of("filler", number, "after"), config=Config(turn=-1))
    if tried(lambda: store.put(after)) is None:
        wrong.append("nothing is kept though there is space again")
    else:
        kept.append(after)
    wrong += _missing(locations.open_single(location), kept, "when there was space again")
    if "//" not in location:
        wrong += [f"a fault: {fault}" for fault in SqliteStore(location).faults()]
    note(log, "filled", len(kept), refused, worst, json.dumps(wrong))


def _missing(store: Store, kept: Sequence[Decision], when: str) -> list[str]:
    found = tried(lambda: store.get_many([decision.key for decision in kept])) or {}
    lost = [decision for decision in kept if found.get(decision.key) != decision]
    return [f"{len(lost)} of {len(kept)} acknowledged decisions are lost {when}"] if lost else []


class Gone(MemoryStore):
    """A remote that never answers."""

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        raise StoreError("gone")

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        raise StoreError("gone")


def reader(paths: Sequence[Path], log: Path) -> None:
    """Use damaged files as a store and as a mirror: a miss and a StoreError are answers, anything else is not."""
    for path in paths:
        note(log, "begins", path.name)
        began, wrong = time.monotonic(), list[str]()
        try:
            wrong += _read_all(SqliteStore(path))
            wrong += _used(path)
            wrong += _mirrored(path)
        except Exception as error:  # noqa: BLE001 - whatever a user would see in place of an answer
            wrong.append(f"{type(error).__name__}: {error}")
        note(log, "ends", path.name, time.monotonic() - began, json.dumps(wrong))


def _believed(found: dict[Key, Decision]) -> list[str]:
    truth = {known(number).key: known(number).config for number in range(KNOWN)}
    return [f"{key.kernel}: {found[key].config} is believed" for key in found if found[key].config != truth.get(key)]


def _read_all(store: SqliteStore) -> list[str]:
    wanted = [known(number).key for number in range(KNOWN)]
    wrong = _believed({key: found for key in wanted if (found := tried(lambda key=key: store.get(key))) is not None})
    wrong += _believed(tried(lambda: store.get_many(wanted)) or {})
    wrong += _believed({d.key: d for d in tried(lambda: list(store.decisions())) or ()})
    wrong += _believed({g.decision.key: g.decision for g in tried(lambda: store.history(wanted[0])) or ()})
    trials = tried(lambda: list(store.trials(wanted[0]))) or []
    wrong += [f"{trial} is believed" for trial in trials if trial.outcome != TIMED.outcome]
    entries = tried(lambda: list(store.entries("shelf"))) or []
    wrong += [f"{name}: {body!r} is believed" for name, body in entries if body != name.encode() * 9]
    for ask in (store.stats, lambda: list(store.keys()), lambda: list(store.misses()), lambda: list(store.faults())):
        tried(ask)  # type: ignore[arg-type]
    return wrong


def _used(path: Path) -> list[str]:
    wrong = []
    for mode in ("frozen", "tune"):
        session = session_at(str(path), path.with_suffix(".cache"), mode=mode)
        asked = known(7)
        answer = session.resolve(Problem(asked.key, SPACE, Config(tile=0)), Noisy(7, 0.0))
        told = {asked.config, Config(tile=0)} if mode == "frozen" else {asked.config}
        if answer.config not in told and not session.counts["searches"]:
            wrong.append(f"{mode}: {answer.config} is no answer")
    return wrong


def _mirrored(path: Path) -> list[str]:
    remote = MemoryStore()
    for number in range(7, 20):  # 7 may have been decided anew on the file
        remote.put(known(number))
    wanted, wrong = [known(number).key for number in range(8, 20)], []
    with_remote = MirrorStore(remote, SqliteStore(path))
    found = with_remote.get_many(wanted)
    wrong += _believed(found)
    wrong += [] if len(found) == len(wanted) else ["a damaged mirror hides what the remote says"]
    added = other_decision(key=key_of("added"))
    if with_remote.put(added) != added or remote.get(added.key) != added:
        wrong.append("a damaged mirror keeps the remote from being written to")
    alone = MirrorStore(Gone(), SqliteStore(path))
    wrong += _believed(tried(lambda: alone.get_many(wanted)) or {})
    return wrong


def fill(store: SqliteStore) -> None:
    """A file with something of everything in it."""
    for number in range(KNOWN):
        store.put(known(number))
        store.record(known(number).key, [TIMED] * BATCH)
    store.record_misses([MissRecord(key_of("wanted", number), 1, 1.0) for number in range(20)])
    for number in range(20):
        store.keep("shelf", f"name {number}", f"name {number}".encode() * 9)
    store.claim("lease", "owner", 60.0)


LEASE = 1.5


def clock(location: str, file: Path, jump: int) -> list[str]:
    """What a clock that jumps by so much spoils of leases, shelves, histories and ages; nothing, if all is well."""
    store: Any = locations.open_single(location)
    name = f"jump {jump} {os.getpid()}"
    lasting = key_of(name, "lasting")
    store.put(other_decision(key=lasting, config=Config(turn=0)))
    store.record(lasting, [TIMED] * BATCH)
    wrong = _held(store, name, file, jump)
    for turn, ahead in enumerate((jump, -jump, 0), 1):
        set_ahead(file, ahead)
        store.put(other_decision(key=lasting, config=Config(turn=turn)))
        store.put(other_decision(key=key_of(name, "new", turn)))
        if isinstance(store, SupportsMaintenance):
            store.trim(RetentionLimits(age=86_400.0, decisions=True))
    wrong += [f"{key.kernel} was dropped" for turn in (1, 2, 3) if store.get(key := key_of(name, "new", turn)) is None]
    return wrong + _lasted(store, lasting)


def _held(store: Any, name: str, file: Path, jump: int) -> list[str]:
    """What is wrong with a lease and an entry while the clock jumps; time is told by the clock that cannot be set."""
    wrong, wall, before = list[str](), time.time(), time.monotonic()
    store.claim(name, "one", LEASE)
    store.keep(name, "entry", b"body", seconds=LEASE)
    after = asked = time.monotonic()
    set_ahead(file, jump)
    if abs(time.time() - wall - (time.monotonic() - before) - jump) > 1.0:
        wrong.append("the clock did not jump")
    if not store.fetch(name, ["entry"]) and time.monotonic() < before + LEASE:
        wrong.append("an entry expired early")
    while not store.claim(name, "other", LEASE):
        if asked > after + LEASE + 0.1:
            return [*wrong, "a lease lasts longer"]
        time.sleep(0.03)
        asked = time.monotonic()
    if (early := before + LEASE - time.monotonic()) > 0:
        wrong.append(f"a lease ended {early:.2f} s early")
    time.sleep(max(0.0, after + LEASE + 0.2 - time.monotonic()))
    return [*wrong, "an entry lasts longer"] if store.fetch(name, ["entry"]) else wrong


def _lasted(store: Any, lasting: Key) -> list[str]:
    wrong = []
    if isinstance(store, KeepsRevisions):
        history = store.history(lasting)
        if [(g.number, g.decision.config["turn"]) for g in history] != [(1, 0), (2, 1), (3, 2), (4, 3)]:
            wrong.append(f"history is {[(g.number, g.decision.config['turn']) for g in history]}")
        if sorted(g.since for g in history) != [g.since for g in history]:
            wrong.append("a later generation stood earlier")
    if (stands := store.get(lasting)) is None or stands.config["turn"] != 3:
        wrong.append("the last decision does not stand")
    if len(list(store.trials(lasting))) != BATCH:
        wrong.append("young trials were dropped")
    return wrong


if __name__ == "__main__":
    print(json.dumps(clock(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
