"""What functions remember outside the process: files, stores that fail, many processes, killed ones."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from file_shelf import FileShelf

from tunewright.errors import MemoError, StoreError
from tunewright.memoization import memo, persistent_memo
from tunewright.stores.memory import MemoryStore

HERE = str(Path(__file__).parent)


def f(x, *rest, scale=1.0, **named):
    return [len(rest), scale, len(named)]


def called(g):
    """Calls of all kinds: atoms, zeros, lists, arrays, more arguments."""
    return [g(1), g(2.5, "a", scale=0.0), g([1, 2], k=b"x"), g(np.arange(3)), g(1, 2, k=3, j=4), g(2**70, None)]


def either(kind, **said):
    return memo(**said) if kind == "memo" else persistent_memo(store=MemoryStore(), **said)


@pytest.mark.parametrize("kind", ["memo", "persistent_memo"])
@pytest.mark.parametrize("other", ["memo", "persistent_memo"])
def test_what_is_dumped_loads_into_either_kind(kind, other, tmp_path) -> None:
    dumped, loaded, path = either(kind)(f), either(other)(f), tmp_path / "dump.jsonl"
    results = called(dumped)
    assert dumped.dump(path) == 6
    assert loaded.load(path) == (6, 0)
    assert called(loaded) == results
    assert loaded.cache_info() == (6, 0, None, 6)


def test_a_dump_can_be_read_by_people(tmp_path) -> None:
    g, path = memo(f), tmp_path / "dump.jsonl"
    called(g)
    g.dump(path)
    first = json.loads(path.read_text().splitlines()[0])["record"]
    assert first["arguments"] == {"x": 1, "rest": {"tuple": []}, "scale": 1.0, "named": {"dict": {}}}
    assert (first["function"], first["value"]) == ("test_memo_kept:f", [0, 1.0, 0])


def test_a_torn_or_foreign_file_gives_what_is_whole(tmp_path) -> None:
    g, path = memo(f), tmp_path / "dump.jsonl"
    called(g)
    g.dump(path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(whole[:-20])
    assert memo(f).load(path) == (5, 1)
    path.write_bytes(b"".join(lines[:2]) + b"\x80\x04.\n{}\n[1]\nnull\n" + lines[3].replace(b"3", b"4"))
    assert memo(f).load(path) == (2, 5)
    assert memo(lambda x: x).load(path) == (0, 7), "another function's results are foreign"
    path.write_bytes(os.urandom(4096))
    assert memo(f).load(path).taken == 0
    assert memo(f).load(tmp_path / "nowhere") == memo(f).load(tmp_path) == (0, 0)


def test_every_flipped_byte_of_a_dump_is_noticed(tmp_path) -> None:
    g, path = memo(lambda x: [x, "text"]), tmp_path / "dump.jsonl"
    g(1)
    g.dump(path)
    line = path.read_bytes()
    for at in range(len(line) - 1):
        path.write_bytes(line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :])
        g.cache_clear()
        assert g.load(path).taken == 0, line[at : at + 1]


def test_loading_leaves_what_is_kept_and_a_failed_dump_leaves_the_file(tmp_path) -> None:
    number, path = [1], tmp_path / "dump.jsonl"
    g = memo(version=1)(lambda x: number[0])
    g(1)
    g.dump(path)
    number[0] = 2
    g.refresh(1)
    g.load(path)
    assert g(1) == 2
    number[0] = object()
    g.refresh(1)
    before = path.read_bytes()
    with pytest.raises(MemoError, match="write="):
        g.dump(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[: len(body) // 2],
        lambda body: b"",
        lambda body: os.urandom(200),
        lambda body: body.replace(b'"value":', b'"value":1'),
        lambda body: b'{"check":"","record":{"value":666}}',
        lambda body: b"\x80\x04\x95",
    ],
    ids=["torn", "empty", "noise", "flipped", "foreign", "pickle"],
)
def test_a_damaged_record_is_a_miss_and_is_replaced(change, tmp_path) -> None:
    store = FileShelf(tmp_path / "shelf")
    g = persistent_memo(store=store)(lambda x: x + 1)
    g(1)
    store.damage(change)
    assert g.cache_info().currsize == 0
    assert (g(1), g(1)) == (2, 2)
    assert g.cache_info()[:2] == (1, 2)


def test_a_record_that_stands_under_another_name_is_a_miss(tmp_path) -> None:
    store = FileShelf(tmp_path / "shelf")
    g = persistent_memo(store=store)(lambda x: x + 1)
    g(1), g(2)
    bodies = [body for _, body in store.entries(f"memo {__name__}:{g.__qualname__}")]
    assert len(bodies) == 2
    store.damage(lambda body: bodies[0])
    assert (g(1), g(2)) == (2, 3)


class Broken(MemoryStore):
    """A store whose verbs fail, one after the other."""

    def __init__(self, *verbs) -> None:
        super().__init__()
        self.verbs = verbs

    def __getattribute__(self, name):
        if name in object.__getattribute__(self, "__dict__").get("verbs", ()):
            return self._fail
        return super().__getattribute__(name)

    def _fail(self, *args, **kwargs):
        raise StoreError("down")


@pytest.mark.parametrize("verbs", [("fetch",), ("claim",), ("keep",), ("release",), ("fetch", "claim", "keep")])
def test_a_store_that_is_down_is_passed_over(verbs, caplog) -> None:
    g = persistent_memo(store=Broken(*verbs))(lambda x: [x])
    assert (g(1), g(1)) == ([1], [1])
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == (verbs != ("release",))


def test_a_store_without_shelves_is_refused_with_a_way_out() -> None:
    with pytest.raises(MemoError, match="store="):
        persistent_memo(store=object())(lambda: 1)()


CHILD = """
import os, sys, time
sys.path.insert(0, {here!r})
from file_shelf import FileShelf
from tunewright.memoization import persistent_memo

shelf, calls, lease, awaits = sys.argv[1:]

@persistent_memo(store=FileShelf(shelf), lease=float(lease), version=1)
def slow(x):
    with open(calls, "a") as log:
        log.write(f"{{os.getpid()}}\\n")
    while awaits and not os.path.exists(awaits):
        time.sleep(0.01)
    return [x, os.getpid()]

print("asks", flush=True)
print(slow(1), flush=True)
"""
LONG = 600
"""Seconds of a lease that does not end in a test."""


def start(folder, lease, awaits=""):
    """A process that computes until a file is there; without one, it has the result at once."""
    command = [sys.executable, "-c", CHILD.format(here=HERE), str(folder / "shelf"), str(folder / "calls")]
    return subprocess.Popen([*command, str(lease), str(awaits)], stdout=subprocess.PIPE, text=True)


def leading(folder, lease, wait_until):
    """A process that has begun to compute, and goes on until there is a file `go`."""
    child, calls = start(folder, lease, folder / "go"), folder / "calls"
    wait_until(lambda: calls.exists() and calls.read_text(), "a leader")
    return child


def test_of_many_processes_one_computes_and_all_have_its_result(tmp_path, wait_until) -> None:
    FileShelf(tmp_path / "shelf")
    children = [leading(tmp_path, LONG, wait_until), *(start(tmp_path, LONG) for _ in range(5))]
    assert [child.stdout.readline() for child in children] == ["asks\n"] * 6
    (tmp_path / "go").touch()
    said = [child.communicate(timeout=300)[0] for child in children]
    assert len(set(said)) == 1
    assert said[0]
    assert len((tmp_path / "calls").read_text().split()) == 1


@pytest.mark.clock("a lease of 1.5 s is renewed every 0.5 s; no renewal may come more than 1 s late")
def test_one_computes_for_longer_than_its_lease_which_it_renews(tmp_path, wait_until) -> None:
    FileShelf(tmp_path / "shelf")
    children = [leading(tmp_path, 1.5, wait_until), *(start(tmp_path, 1.5) for _ in range(2))]
    assert [child.stdout.readline() for child in children] == ["asks\n"] * 3
    time.sleep(3)
    (tmp_path / "go").touch()
    said = [child.communicate(timeout=300)[0] for child in children]
    assert len(set(said)) == 1
    assert len((tmp_path / "calls").read_text().split()) == 1


def test_a_killed_leader_is_replaced_when_its_lease_ends(tmp_path, wait_until) -> None:
    FileShelf(tmp_path / "shelf")
    leader = leading(tmp_path, 1, wait_until)
    waiting = [start(tmp_path, LONG) for _ in range(3)]
    assert [child.stdout.readline() for child in waiting] == ["asks\n"] * 3
    os.kill(leader.pid, signal.SIGKILL)
    leader.communicate()
    said = [child.communicate(timeout=300)[0] for child in waiting]
    assert len(set(said)) == 1
    calls = (tmp_path / "calls").read_text().split()
    assert len(calls) == 2
    assert calls[1] in said[0]


def test_a_leader_that_fails_hands_over_at_once(tmp_path) -> None:
    store, calls = FileShelf(tmp_path / "shelf"), []

    @persistent_memo(store=store, version=1, lease=60)
    def fails(x):
        calls.append(x)
        if len(calls) == 1:
            raise ZeroDivisionError
        return x

    with pytest.raises(ZeroDivisionError):
        fails(1)
    assert fails(1) == 1


def test_a_leader_that_was_stopped_and_comes_back_agrees_with_its_successor(tmp_path, wait_until) -> None:
    shelf = FileShelf(tmp_path / "shelf")
    leader = leading(tmp_path, 0.5, wait_until)
    assert leader.stdout.readline() == "asks\n"
    with shelf.locked():  # not while it holds the lock
        os.kill(leader.pid, signal.SIGSTOP)
    other = start(tmp_path, LONG)
    said = other.communicate(timeout=300)[0]
    (tmp_path / "go").touch()
    os.kill(leader.pid, signal.SIGCONT)
    assert f"asks\n{leader.communicate(timeout=300)[0]}" == said
    assert len((tmp_path / "calls").read_text().split()) == 2
