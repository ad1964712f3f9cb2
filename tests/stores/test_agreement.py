"""Eight processes miss one key at once: near ties, noise, a leader that is killed; one search, one answer."""

import json
import multiprocessing
import os
import random
import signal
import time

import pytest

from tunewright import Config, Knob, Session, Space
from tunewright.model.decision import Problem
from tunewright.model.trial import Timing, Trial
from tunewright.sharing import wire
from tunewright.sharing.flight import LEASE
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import KEY

PROCESSES = 8
CONTEXT = multiprocessing.get_context("forkserver")
SPACE = Space(Knob("tile", list(range(12))))


class Noisy:
    """Near ties, all better than the default, under noise of its own: alone, processes would choose differently."""

    def __init__(self, seed: int, seconds: float) -> None:
        self._rng, self._seconds = random.Random(seed), seconds

    def __call__(self, entry):
        time.sleep(self._seconds)
        seconds = 1e-3 * (1 + 0.001 * (entry.config["tile"] % 3) if entry.config["tile"] else 1.3)
        return Trial(entry.config, Timing(tuple(seconds * self._rng.uniform(0.95, 1.05) for _ in range(5)), "cpu"))


def _member(number: int, folder: str, seconds: float, together) -> None:
    session = Session(cache=folder, store=f"{folder}/store.sqlite", pool="serial", strategy="random", worth=0.0)

    def told(event) -> None:
        if session.counts["measurements"] == 1:
            with open(f"{folder}/leaders", "a") as out:
                out.write(f"{os.getpid()}\n")

    session.listeners.append(told)
    together.wait(60)
    decision = session.resolve(Problem(KEY, SPACE, Config(tile=0)), Noisy(number, seconds))
    with open(f"{folder}/{number}.json", "w") as out:
        json.dump([wire.dump_decision(decision).decode(), session.counts["searches"]], out)


@pytest.fixture
def together():
    return CONTEXT.Barrier(PROCESSES)


def _started(folder, seconds: float, together) -> list:
    members = [CONTEXT.Process(target=_member, args=(i, str(folder), seconds, together)) for i in range(PROCESSES)]
    for member in members:
        member.start()
    return members


def _ended(members, folder, seconds: float) -> tuple[set[str], int]:
    """The different answers of those that ended, and how many searches they made."""
    until = time.monotonic() + seconds
    for member in members:
        member.join(max(0.0, until - time.monotonic()))
    hanging = [member for member in members if member.exitcode is None]
    for member in hanging:
        member.kill()
    assert not hanging
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert len(found) == sum(member.exitcode == 0 for member in members)
    return {body for body, _ in found}, sum(searches for _, searches in found)


def test_alone_they_would_choose_differently(tmp_path) -> None:
    chosen = set()
    for number in range(PROCESSES):
        session = Session(store="memory:", cache=str(tmp_path), pool="serial", strategy="random", worth=0.0)
        chosen.add(session.resolve(Problem(KEY, SPACE, Config(tile=0)), Noisy(number, 0.0)).config)
    assert len(chosen) > 1


@pytest.mark.slow
def test_eight_processes_decide_the_same_bytes_and_one_of_them_tunes(tmp_path, together) -> None:
    answers, searches = _ended(_started(tmp_path, 0.02, together), tmp_path, 60)
    assert len(answers) == 1
    assert searches == 1
    assert len(SqliteStore(tmp_path / "store.sqlite").history(KEY)) == 1


@pytest.mark.slow
def test_a_tuning_process_that_is_killed_is_replaced_once_and_nobody_hangs(tmp_path, together) -> None:
    members = _started(tmp_path, 0.1, together)
    leaders, deadline = tmp_path / "leaders", time.monotonic() + 60
    while not leaders.exists() or not leaders.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.8))
    os.kill(int(leaders.read_text()), signal.SIGKILL)
    answers, searches = _ended(members, tmp_path, LEASE + 20)
    assert [member.exitcode for member in members].count(-signal.SIGKILL) == 1
    assert len(answers) == 1
    assert searches == 1
    assert len(SqliteStore(tmp_path / "store.sqlite").history(KEY)) == 1
