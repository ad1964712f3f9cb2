"""SIGKILL of a tuning process at random moments: nothing acknowledged is lost, nothing finished is repeated."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tunewright.pools.kernel_loader import load_target
from tunewright.session import Session

SCRIPT = Path(__file__).parent.parent / "kernels" / "counted.py"
KILLS = 50


def lines(path: Path) -> list[str]:
    # The last line may be torn by the kill.
    return path.read_text().split("\n")[:-1] if path.exists() else []


def in_the_middle(process, rng, attempts) -> bool:
    """Wait for a random number of attempts and a random moment more; whether it still runs then."""
    goal, until = rng.randrange(13), time.monotonic() + 300
    while attempts() < goal and process.poll() is None:
        assert time.monotonic() < until, "the search hangs"
        time.sleep(0.005)
    time.sleep(rng.uniform(0, 0.05 if goal else 0.5))
    return process.poll() is None


@pytest.mark.slow
def test_50_kills_at_random_moments_cost_nothing_that_was_finished(tmp_path, monkeypatch) -> None:
    rng = random.Random(11)
    monkeypatch.setenv("TUNEWRIGHT_WORKERS", "2")
    kills = searches = acknowledged_in_all = 0
    while kills < KILLS:
        searches += 1
        folder = tmp_path / f"search{searches}"
        folder.mkdir()
        marks, acknowledged = folder / "marks", folder / "acknowledged"
        monkeypatch.setenv("TUNEWRIGHT_CACHE", str(folder / "cache"))
        monkeypatch.setenv("COUNTED_MARKS", str(marks))
        done = False
        while not done:
            before = set(lines(acknowledged))
            marked = len(lines(marks))
            process = subprocess.Popen([sys.executable, str(SCRIPT), str(acknowledged)], stdout=subprocess.PIPE)
            if kills < KILLS and in_the_middle(process, rng, lambda: len(lines(marks)) - marked):  # noqa: B023 - now
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
            out, _ = process.communicate(timeout=600)
            done = b"done" in out
            assert done or process.returncode == -signal.SIGKILL, "the search itself failed"
            fresh = lines(marks)[marked:]
            # A trial whose record was written but not yet acknowledged may be there too: that is no loss.
            assert not before & set(fresh), "a finished trial was repeated"
            store, key = Session().store, load_target(f"{SCRIPT}:double").problem([np.ones(8)]).key
            kept = {str(trial.config["step"]) for trial in store.trials(key)}
            assert set(lines(acknowledged)) <= kept, "an acknowledged trial was lost"
        acknowledged_in_all += len(set(lines(acknowledged)))
        assert store.get(key) is not None
    print(f"{kills} kills over {searches} searches, {acknowledged_in_all} trials acknowledged, 0 lost, 0 repeated")  # noqa: T201
