"""Strategies compared on a recorded space: how far each still is from the best speed."""

import json
import subprocess
import sys
from pathlib import Path

from easel import blank, keep

SPACE = Path(__file__).resolve().parent.parent / "spaces" / "gemm-cpu-avx512.parquet"
SEEDS, BUDGET = 5, 100

if __name__ == "__main__":
    command = [sys.executable, "-m", "tunewright", "replay", "--spaces", str(SPACE), "--seeds", str(SEEDS), "--json"]
    command += ["--strategies", "portfolio,anneal,random", "--workers", "1", "--budget", str(BUDGET)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    figure, axes = blank(f"Speed still missing, mean of {SEEDS} runs, over evaluations")
    for name in told["strategies"]:
        curve = told["curves"][name]
        axes.step(curve["x"], curve["regret"], where="post", label=name)
        print(f"{name}: {curve['regret'][-1]:.1%} missing after {BUDGET} evaluations")
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set(ylim=(0, 0.5), xlabel="evaluations")
    axes.legend()
    keep(figure, __file__)
