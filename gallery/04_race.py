"""A race: three ways to add up an array, in interleaved rounds until the slower ones are known."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from easel import place

x = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
ones = np.ones_like(x)


def by_sum():
    x.sum()


def by_dot():
    np.dot(x, ones)


def by_reduce():
    np.add.reduce(x)


if __name__ == "__main__":
    here = Path(__file__).resolve()
    contestants = [f"{here.name}:{name}" for name in ("by_sum", "by_dot", "by_reduce")]
    plot = ["--plot", str(place(__file__).resolve()), "--seconds", "3"]
    command = [sys.executable, "-m", "tunewright", "race", *contestants, *plot]
    subprocess.run(command, check=True, cwd=here.parent)
