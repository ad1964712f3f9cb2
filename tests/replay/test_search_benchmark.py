import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "search.py"


@pytest.mark.slow
def test_the_benchmark_runs_without_recordings_and_peers(tmp_path) -> None:
    parts = [word for part in ("from-scratch", "batches", "cost") for word in ("--only", part)]
    command = [sys.executable, SCRIPT, "--quick", "--json", "--strategies", "random", "--workers", "1", *parts]
    nowhere = ["--spaces", tmp_path / "nowhere", "--peers", tmp_path / "nowhere"]
    done = subprocess.run([*command, *nowhere], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {"r25", "r50", "e5", "e1", "within1", "batch8_gap", "cost_ms", "large_cost_ms", "large_peak_mb"} <= set(said)
    assert said["strategies"]["random"]["r50"] == said["r50"]
    assert said["batch8_gap"] == 0  # random search learns nothing, so batches cost it nothing
