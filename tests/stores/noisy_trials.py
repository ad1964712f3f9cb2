"""Noisy measurements that one process can be killed in, for tests of processes that tune together."""

import json
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tunewright import Config, Knob, Session, Space
from tunewright.model.decision import Problem
from tunewright.model.trial import Timing, Trial
from tunewright.stores import serialization
from tunewright.testing.keys import KEY

SPACE = Space(Knob("tile", list(range(12))))


class NoisyTrials:
    """Measures near ties under noise that differs from process to process: alone, processes choose differently.

    The first process whose count of measurements reaches `last` writes its id to `mark`, and waits to be killed.
    """

    def __init__(self, seed: int, seconds_of: Callable[[int], float], mark: str = "", last: int = 0) -> None:
        self._rng, self._seconds_of, self._mark, self._left = random.Random(seed), seconds_of, mark, last

    def __call__(self, entry):
        self._left -= 1
        if self._left == 0:
            with suppress(FileExistsError), open(self._mark, "x") as out:
                out.write(f"{os.getpid()}\n")
                out.flush()
                signal.pause()
        seconds = self._seconds_of(entry.config["tile"])
        return Trial(entry.config, Timing(tuple(seconds * self._rng.uniform(0.95, 1.05) for _ in range(5)), "cpu"))


def resolve_and_report(session: Session, trials: NoisyTrials, report: Path) -> None:
    """Resolves the problem and writes the decision and the number of searches to `report`."""
    decision = session.resolve(Problem(KEY, SPACE, Config(tile=0)), trials)
    report.write_text(json.dumps([serialization.dump_decision(decision).decode(), session.counts["searches"]]))


def kill_marked(mark: Path, wait_until) -> None:
    """Kills the process that wrote its id to `mark`."""
    wait_until(lambda: mark.exists() and mark.read_text(), "the measurement that ends it", seconds=600)
    os.kill(int(mark.read_text()), signal.SIGKILL)
