"""Records that somebody who can write to a store has planted in it: malformed, for another key, forged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tunewright as tw
from hostile_corpus.case import WRONG_CONFIG, Finding, NotPossibleHere, Workspace, attack, held, honest
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Timing, Trial
from tunewright.spaces.config import Config
from tunewright.stores import serialization, transcripts
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import PENDING, MirrorStore
from tunewright.stores.records import checksum, related_prefix
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

WRONG = 3
"""The step with which the kernel below computes wrong results."""


def kernel(session: tw.Session) -> Any:
    """Returns a kernel that is right with the steps 1 and 2."""

    @tw.tune(tw.Space(tw.Knob("step", [1, 2, WRONG])), session=session)
    def double(x: tw.In("N"), *, step: int) -> Any:
        return x if step == WRONG else 2 * x

    return double


def session(workspace: Workspace, **options: Any) -> tw.Session:
    """Returns a session whose store is a file in the workspace."""
    cache, store = workspace.folder / "cache", workspace.folder / "store.sqlite"
    return tw.Session(cache=cache, store=store, pool="serial", trials=3, tuning_wait_seconds=0.0, **options)


def key_of(workspace: Workspace, size: int = 3) -> Key:
    """Returns the key of a call of the kernel."""
    return kernel(session(workspace)).problem((np.ones(size),)).key


def plant(path: Path, key: Key, body: bytes) -> None:
    """Writes a sealed record into a store, as whoever can write to it does."""
    SqliteStore(path).get(key)
    digest = bytes.fromhex(key.digest)
    row = (digest, key.kernel, related_prefix(key), 1, 0.0, checksum(body, digest), body)
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def called(workspace: Workspace, **options: Any) -> Finding:
    """Calls the kernel in all modes twice, and returns whether all results are right."""
    for mode in ("tune", "frozen", "strict", "tune"):
        made = session(workspace, mode=mode, **options)
        try:
            result = kernel(made)(np.ones(3))
        except tw.NoDecision:
            continue
        if result.tolist() != [2, 2, 2] or not set(made.chosen.values()) <= {Config(step=1), Config(step=2)}:
            return Finding(WRONG_CONFIG, f"in mode {mode} {made.chosen}")
    return held("ignored")


def malformed(workspace: Workspace, start: bytes) -> Finding:
    """Plants a record that begins as given and ends as one for the key, and calls the kernel."""
    key = key_of(workspace)
    plant(workspace.folder / "store.sqlite", key, start + key.record_end)
    return called(workspace)


@attack
def a_list_as_a_value_of_a_config(workspace: Workspace) -> Finding:
    """A sealed decision whose config has a list."""
    return malformed(workspace, b'{"decision":{"config":{"step":[3]},')


@attack
def a_config_of_the_wrong_type(workspace: Workspace) -> Finding:
    """A sealed decision whose config is a number."""
    return malformed(workspace, b'{"decision":{"config":3,')


@attack
def a_config_outside_the_space(workspace: Workspace) -> Finding:
    """A sealed decision for a step that the space does not have."""
    return malformed(workspace, b'{"decision":{"config":{"step":666},')


@attack
def a_config_with_a_knob_too_many(workspace: Workspace) -> Finding:
    """A sealed decision with a knob that the space does not have."""
    return malformed(workspace, b'{"decision":{"config":{"extra":1,"step":3},')


@attack
def evidence_of_the_wrong_type(workspace: Workspace) -> Finding:
    """A sealed decision whose evidence is text."""
    return malformed(workspace, b'{"decision":{"config":{"step":3},"evidence":"trust me",')


@attack
def a_deeply_nested_record(workspace: Workspace) -> Finding:
    """A sealed decision with 100,000 levels of lists."""
    return malformed(workspace, b'{"decision":{"config":' + b"[" * 100_000 + b"]" * 100_000 + b",")


@attack
def a_huge_record(workspace: Workspace) -> Finding:
    """A sealed decision of 8 MB."""
    return malformed(workspace, b'{"decision":{"config":{"step":"' + b"x" * (8 << 20) + b'"},')


@attack
def a_record_for_another_key(workspace: Workspace) -> Finding:
    """A sealed decision that says that it is for another kernel."""
    body = serialization.dump_decision(Decision(KEY, Config(step=WRONG)))
    plant(workspace.folder / "store.sqlite", key_of(workspace), body)
    return called(workspace)


@attack
def forged_trials(workspace: Workspace) -> Finding:
    """Trials which say that a wrong config is fast and that all others are slow, also of a related key."""
    lies = [Trial(Config(step=WRONG), Timing((1e-9,) * 5)), Trial(Config(step=1), Timing((1e9,) * 5))]
    store = SqliteStore(workspace.folder / "store.sqlite")
    for size in (3, 4):
        store.record(key_of(workspace, size), lies * 8)
    return called(workspace)


@attack
def trials_with_impossible_times(workspace: Workspace) -> Finding:
    """Trials of no time, of negative time, and of more than a float can hold."""
    store = SqliteStore(workspace.folder / "store.sqlite")
    samples = [(0.0,), (-1.0,), (1e308, 1e308)]
    trials = [Trial(Config(step=step), Timing(times)) for step in (1, 2, WRONG) for times in samples]
    store.record(key_of(workspace), trials)
    return called(workspace)


@attack
def malformed_trials(workspace: Workspace) -> Finding:
    """Sealed trials without samples, with text as samples, and with 100,000 levels of lists."""
    key, path = key_of(workspace), workspace.folder / "store.sqlite"
    SqliteStore(path).record(key, [Trial(Config(step=1), Timing((1.0,)))])
    start = b'{"schema":1,"trial":{"config":{"step":3},"outcome":'
    with sqlite3.connect(path) as raw:
        for outcome in (b'{"is":"timing","samples":[]}', b'{"is":"timing","samples":["x"]}', b"[" * 100_000):
            body = start + outcome + b"}}"
            row = (1, 0.0, checksum(body, bytes.fromhex(key.digest)), body)
            raw.execute("INSERT INTO trials (problem, at, seal, body) VALUES (?, ?, ?, ?)", row)
    return called(workspace)


@attack
def a_forged_lease(workspace: Workspace) -> Finding:
    """A lease of somebody who never tunes."""
    SqliteStore(workspace.folder / "store.sqlite").claim(f"tune {key_of(workspace).digest}", "attacker", 1e9)
    return called(workspace)


def _signed(workspace: Workspace) -> dict[str, str]:
    """Returns the settings of a team that signs its decisions."""
    try:
        from tunewright.stores.bundle import signing
    except tw.TunewrightError as error:
        raise NotPossibleHere(str(error)) from error
    key, signers = workspace.folder / "team.pem", workspace.folder / "signers"
    signers.write_text(f"{signing.generate_key(key)} team\n")
    return {"signers": str(signers), "signing_key": str(key)}


def _forged(workspace: Workspace, sign: Callable[[bytes], bytes]) -> Finding:
    options, key = _signed(workspace), key_of(workspace)
    for target in (key, key_of(workspace, 4)):
        record = serialization.dump_decision(Decision(target, Config(step=WRONG)))
        plant(workspace.folder / "store.sqlite", target, sign(record))
    return called(workspace, **options)


@attack
def a_forged_decision_without_a_signature(workspace: Workspace) -> Finding:
    """A decision that nobody signed, where decisions are signed."""
    return _forged(workspace, lambda record: record)


@attack
def a_forged_decision_with_a_wrong_signature(workspace: Workspace) -> Finding:
    """A decision that a key signed which is not on the list."""

    def sign(record: bytes) -> bytes:
        from tunewright.stores.bundle import signing

        path = workspace.folder / f"other{len(list(workspace.folder.iterdir()))}.pem"
        signing.generate_key(path)
        author = signing.sign_decision(record, "", signing.load_private_key(path))
        return serialization.with_author(record, author)

    return _forged(workspace, sign)


@attack
def a_decision_signed_for_another_config(workspace: Workspace) -> Finding:
    """A decision with the signature of the team for another one."""

    def sign(record: bytes) -> bytes:
        from tunewright.stores.bundle import signing

        key = signing.load_private_key(workspace.folder / "team.pem")
        author = signing.sign_decision(record.replace(b'"step":3', b'"step":1'), "", key)
        return serialization.with_author(record, author)

    return _forged(workspace, sign)


@attack
def malformed_transcripts(workspace: Workspace) -> Finding:
    """Transcripts that are cut off, of another key, and nested."""
    store = SqliteStore(workspace.folder / "store.sqlite")
    for body in (b"{", b'{"key":"x"}', b"[" * 100_000):
        store.keep(transcripts.NAMESPACE, KEY.digest, body)
        if transcripts.load_transcript(store, KEY) is not None:
            return Finding(WRONG_CONFIG, "a malformed transcript is believed")
    return held("ignored")


@attack
def malformed_pending_writes(workspace: Workspace) -> Finding:
    """Pending writes of a mirror that are cut off, nested, or have a decision for another key."""
    remote, local = MemoryStore(), SqliteStore(workspace.folder / "mirror.sqlite")
    moved = serialization.encode({"key": other_key(kernel="conv"), "decision": DECISION, "schema": 1})
    for number, body in enumerate((b"{", b"[" * 100_000, moved)):
        local.keep(PENDING, str(number), body)
    store = MirrorStore(remote, local)
    store.put(other_decision(key=other_key(kernel="mine")))
    kernels = {decision.key.kernel for decision in remote.decisions()}
    return held("ignored") if kernels == {"mine"} else Finding(WRONG_CONFIG, f"{kernels} were sent")


@honest
def a_decision_in_another_order_is_used(workspace: Workspace) -> Finding:
    """A record of our schema whose fields another program wrote in another order."""
    key = key_of(workspace)
    text = serialization.dump_decision(Decision(key, Config(step=2))).replace(
        b'{"decision":', b'{"schema":1,"decision":'
    )
    plant(workspace.folder / "store.sqlite", key, text.removesuffix(b',"schema":1}') + b"}")
    made = session(workspace, mode="strict")
    kernel(made)(np.ones(3))
    return held("used") if made.chosen[key] == Config(step=2) else Finding(WRONG_CONFIG, str(made.chosen))


@honest
def a_signed_decision_is_used_with_and_without_signers(workspace: Workspace) -> Finding:
    """What a team signed is read by who checks signatures and by who does not."""
    options = _signed(workspace)
    kernel(session(workspace, **options))(np.ones(3))
    for given in (options, {"signers": options["signers"]}, {}):
        kernel(session(workspace, mode="strict", **given))(np.ones(3))
    return held("used")
