"""Eight processes miss one key at once: near ties, noise, a leader that is killed; one search, one answer."""

import json
import multiprocessing
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from noisy_trials import SPACE, NoisyTrials, kill_marked, resolve_and_report

from tunewright import Config, Session
from tunewright.model.decision import Problem
from tunewright.stores import singleflight
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import KEY

PROCESSES = 8
CONTEXT = multiprocessing.get_context("forkserver")


def _seconds_of(tile: int) -> float:
    """Near ties, all better than the default."""
    return 1e-3 * (1 + 0.001 * (tile % 3) if tile else 1.3)


def _member(number: int, folder: str, last: int, together) -> None:
    singleflight.LEASE = 3600.0  # a leader that a busy machine holds up is not dead
    session = Session(
        cache=folder, store=f"{folder}/store.sqlite", pool="serial", strategy="random", min_expected_gain=0.0
    )
    together.wait(600)
    trials = NoisyTrials(number, _seconds_of, f"{folder}/leader", last)
    resolve_and_report(session, trials, Path(folder) / f"{number}.json")


@pytest.fixture
def together():
    return CONTEXT.Barrier(PROCESSES)


def _start(folder, together, last: int = 0) -> list:
    members = [CONTEXT.Process(target=_member, args=(i, str(folder), last, together)) for i in range(PROCESSES)]
    for member in members:
        member.start()
    return members


def _join(members, folder) -> tuple[set[str], int]:
    """Returns the different answers of those that ended, and how many searches they made; none may hang."""
    deadline = time.monotonic() + 600
    for member in members:
        member.join(max(0.0, deadline - time.monotonic()))
    hanging = [member for member in members if member.exitcode is None]
    for member in hanging:
        member.kill()
    assert not hanging
    reports = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert len(reports) == sum(member.exitcode == 0 for member in members)
    return {body for body, _ in reports}, sum(searches for _, searches in reports)


def test_alone_they_would_choose_differently(tmp_path) -> None:
    chosen = set()
    for number in range(PROCESSES):
        session = Session(store="memory:", cache=str(tmp_path), pool="serial", strategy="random", min_expected_gain=0.0)
        chosen.add(session.resolve(Problem(KEY, SPACE, Config(tile=0)), NoisyTrials(number, _seconds_of)).config)
    assert len(chosen) > 1


@pytest.mark.slow
def test_eight_processes_decide_the_same_bytes_and_one_of_them_tunes(tmp_path, together) -> None:
    answers, searches = _join(_start(tmp_path, together), tmp_path)
    assert len(answers) == 1
    assert searches == 1
    assert len(SqliteStore(tmp_path / "store.sqlite").history(KEY)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("last", [1, 5, 12])
def test_a_tuning_process_that_is_killed_is_replaced_once_and_nobody_hangs(
    tmp_path, together, wait_until, last
) -> None:
    members, leader = _start(tmp_path, together, last), tmp_path / "leader"
    kill_marked(leader, wait_until)
    with closing(sqlite3.connect(tmp_path / "store.sqlite", timeout=120)) as raw, raw:
        assert raw.execute("UPDATE leases SET until = 0").rowcount == 1, "its lease ends"
    answers, searches = _join(members, tmp_path)
    assert [member.exitcode for member in members].count(-signal.SIGKILL) == 1
    assert len(answers) == 1
    assert searches == 1
    assert len(SqliteStore(tmp_path / "store.sqlite").history(KEY)) == 1
