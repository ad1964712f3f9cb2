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

from tunewright.pools.loading import find
from tunewright.session import Session

SCRIPT = Path(__file__).parent.parent / "kernels" / "counted.py"
KILLS = 50


def lines(path: Path) -> list[str]:
    # The last line may be torn by the kill.
    return path.read_text().split("\n")[:-1] if path.exists() else []


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
            time.sleep(rng.uniform(0.2, 1.4) if kills < KILLS else 30)
            try:
                out, _ = process.communicate(timeout=0.01)
                done = b"done" in out
                assert process.returncode == 0, "the search itself failed"
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.communicate()
                kills += 1
            fresh = lines(marks)[marked:]
            # A trial whose record was written but not yet acknowledged may be there too: that is no loss.
            assert not before & set(fresh), "a finished trial was repeated"
            store, key = Session().store, find(f"{SCRIPT}:double").problem([np.ones(8)]).key
            kept = {str(trial.config["step"]) for trial in store.trials(key)}
            assert set(lines(acknowledged)) <= kept, "an acknowledged trial was lost"
        acknowledged_in_all += len(set(lines(acknowledged)))
        assert store.get(key) is not None
    print(f"{kills} kills over {searches} searches, {acknowledged_in_all} trials acknowledged, 0 lost, 0 repeated")  # noqa: T201
