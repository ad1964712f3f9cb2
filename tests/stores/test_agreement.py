"""Eight processes miss one key at once: near ties, noise, a leader that is killed; one search, one answer."""

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from contextlib import closing, suppress

import pytest

from tunewright import Config, Knob, Session, Space
from tunewright.model.decision import Problem
from tunewright.model.trial import Timing, Trial
from tunewright.sharing import flight, wire
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import KEY

PROCESSES = 8
CONTEXT = multiprocessing.get_context("forkserver")
SPACE = Space(Knob("tile", list(range(12))))


class Noisy:
    """Near ties, all better than the default, under noise of its own: alone, processes would choose differently.

    The first whose count of measurements reaches `last` says who it is in `mark`, and waits to be killed.
    """

    def __init__(self, seed: int, mark: str = "", last: int = 0) -> None:
        self._rng, self._mark, self._left = random.Random(seed), mark, last

    def __call__(self, entry):
        self._left -= 1
        if self._left == 0:
            with suppress(FileExistsError), open(self._mark, "x") as out:
                out.write(f"{os.getpid()}\n")
                out.flush()
                signal.pause()
        seconds = 1e-3 * (1 + 0.001 * (entry.config["tile"] % 3) if entry.config["tile"] else 1.3)
        return Trial(entry.config, Timing(tuple(seconds * self._rng.uniform(0.95, 1.05) for _ in range(5)), "cpu"))


def _member(number: int, folder: str, last: int, together) -> None:
    flight.LEASE = 3600.0  # a leader that a busy machine holds up is not dead
    session = Session(cache=folder, store=f"{folder}/store.sqlite", pool="serial", strategy="random", worth=0.0)
    together.wait(600)
    decision = session.resolve(Problem(KEY, SPACE, Config(tile=0)), Noisy(number, f"{folder}/leader", last))
    with open(f"{folder}/{number}.json", "w") as out:
        json.dump([wire.dump_decision(decision).decode(), session.counts["searches"]], out)


@pytest.fixture
def together():
    return CONTEXT.Barrier(PROCESSES)


def _started(folder, together, last: int = 0) -> list:
    members = [CONTEXT.Process(target=_member, args=(i, str(folder), last, together)) for i in range(PROCESSES)]
    for member in members:
        member.start()
    return members


def _ended(members, folder) -> tuple[set[str], int]:
    """The different answers of those that ended, and how many searches they made; none may hang."""
    until = time.monotonic() + 600
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
        chosen.add(session.resolve(Problem(KEY, SPACE, Config(tile=0)), Noisy(number)).config)
    assert len(chosen) > 1


@pytest.mark.slow
def test_eight_processes_decide_the_same_bytes_and_one_of_them_tunes(tmp_path, together) -> None:
    answers, searches = _ended(_started(tmp_path, together), tmp_path)
    assert len(answers) == 1
    assert searches == 1
    assert len(SqliteStore(tmp_path / "store.sqlite").history(KEY)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("last", [1, 5, 12])
def test_a_tuning_process_that_is_killed_is_replaced_once_and_nobody_hangs(
    tmp_path, together, wait_until, last
) -> None:
    members, leader = _started(tmp_path, together, last), tmp_path / "leader"
    wait_until(lambda: leader.exists() and leader.read_text(), "the measurement that ends it", seconds=600)
    os.kill(int(leader.read_text()), signal.SIGKILL)
    with closing(sqlite3.connect(tmp_path / "store.sqlite", timeout=120)) as raw, raw:
        assert raw.execute("UPDATE leases SET until = 0").rowcount == 1, "its lease ends"
    answers, searches = _ended(members, tmp_path)
    assert [member.exitcode for member in members].count(-signal.SIGKILL) == 1
    assert len(answers) == 1
    assert searches == 1
    assert len(SqliteStore(tmp_path / "store.sqlite").history(KEY)) == 1
