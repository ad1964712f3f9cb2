"""64 processes on one store, killed at random: nothing acknowledged is lost, no record is torn."""

import os
import random
import signal
import sqlite3
import subprocess
import sys

import pytest

from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import other_key

PROCESSES, ROUNDS = 64, 12

WRITER = """
import sys
from tunewright import Config
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import TIMED, other_decision, other_key
import msgspec

path, number, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = SqliteStore(path)
for turn in range(rounds):
    mine = other_key(mode={"writer": str(number)})
    store.record(mine, [msgspec.structs.replace(TIMED, config=Config(turn=turn, part=part)) for part in range(3)])
    print(f"trials {number} {turn}", flush=True)
    own = other_key(mode={"writer": str(number), "turn": str(turn)})
    store.put(other_decision(key=own, config=Config(writer=number, turn=turn)))
    print(f"put {number} {turn}", flush=True)
    shared = other_key(mode={"shared": str(turn)})
    stands = store.put(other_decision(key=shared, config=Config(writer=number)), replace=False)
    print(f"agreed {turn} {stands.config['writer']}", flush=True)
"""


def lines(path) -> int:
    return path.read_bytes().count(b"\n")


@pytest.mark.slow
def test_64_processes_with_random_kills_lose_nothing_acknowledged(tmp_path, wait_until) -> None:
    path, rng = tmp_path / "store.sqlite", random.Random(7)
    logs = [(tmp_path / f"{i}.log").open("w+") for i in range(PROCESSES)]
    # Every other one writes until it is killed, after so many acknowledged writes.
    killed_after = {number: rng.randrange(1, 3 * ROUNDS) for number in range(0, PROCESSES, 2)}
    rounds = [10**9 if number in killed_after else ROUNDS for number in range(PROCESSES)]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(i), str(rounds[i])], stdout=log)
        for i, log in enumerate(logs)
    ]

    def all_killed() -> bool:
        for number in [n for n, enough in killed_after.items() if lines(tmp_path / f"{n}.log") >= enough]:
            os.kill(writers[number].pid, signal.SIGKILL)
            del killed_after[number]
        return not killed_after

    try:
        wait_until(all_killed, "the writes after which a process is killed", seconds=900)
        codes = [writer.wait(900) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert codes == [-signal.SIGKILL, 0] * (PROCESSES // 2)
    killed = PROCESSES // 2

    store, agreed, acknowledged = SqliteStore(path), {}, 0
    for log in logs:
        log.seek(0)
        for line in log.read().splitlines():
            verb, *numbers = line.split()
            if len(numbers) < 2:
                continue  # cut off by the kill
            first, second = numbers
            acknowledged += 1
            if verb == "trials":
                found = [t for t in store.trials(other_key(mode={"writer": first})) if t.config["turn"] == int(second)]
                assert len(found) == 3, "a batch of trials is kept whole"
            elif verb == "put":
                own = store.get(other_key(mode={"writer": first, "turn": second}))
                assert own is not None
                assert own.config["turn"] == int(second)
            else:
                assert agreed.setdefault(first, second) == second, "all processes agree on the first decision"
        log.close()
    assert acknowledged > PROCESSES
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        torn = raw.execute("SELECT problem, count(*) AS n FROM trials GROUP BY problem HAVING n % 3").fetchall()
    raw.close()
    assert torn == [], "no batch of trials is kept in part"
    print(f"{acknowledged} acknowledged writes by {PROCESSES} processes, {killed} killed, none lost")  # noqa: T201
