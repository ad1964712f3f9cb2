"""A real space to measure on: configs of the tutorial's matrix product, the truth about them, and a disturbance."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from tunewright.measure.clock import HostTimer, Regime, Sampler, make_sampler
from tunewright.model.signature import Signature

TUTORIAL = Path(__file__).resolve().parent.parent / "tutorials" / "1_gemm.py"
SEED = 20
MARGIN = 0.01
SCREENED, REACH = 6, 1.15
LONGEST_LOAD = 3600
NEIGHBOUR = f"""
import os, sys, time
import numpy as np
os.sched_setaffinity(0, {{int(sys.argv[1])}})
parent, ends = int(sys.argv[2]), time.monotonic() + {LONGEST_LOAD}
memory = np.zeros(1 << 23)
print("ready", flush=True)
while os.getppid() == parent and time.monotonic() < ends:
    np.add(memory, 1.0, out=memory)
    sum(range(100_000))
"""


@dataclass(frozen=True)
class Candidate:
    """A config that computes the right product: its place in canonical order, and its timer."""

    rank: tuple[int, ...]
    timer: HostTimer


def tutorial() -> ModuleType:
    """The tutorial as a module; its name is no identifier, so `import` cannot find it."""
    spec = importlib.util.spec_from_file_location("tutorial_gemm", TUTORIAL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def candidates(count: int, size: int) -> list[Candidate]:
    """`count` configs, the same each time, for matrices of `size`; what was built before is taken from the cache.

    All run on the same arrays. One that computes something else is an error.
    """
    gemm = tutorial().gemm
    configs = list(dict.fromkeys(gemm.space.sample(np.random.default_rng(SEED), 4 * count)))[:count]
    a, b = np.random.default_rng(1).standard_normal((2, size, size), dtype=np.float32)
    args = a, b, np.empty_like(a)
    expected, kernel = a.astype(np.float64) @ b, gemm.kernel
    build = partial(gemm.backend.build, kernel, signature=Signature.of(gemm.parameters, args))
    with ThreadPoolExecutor(2) as pool:  # each waits for a compiler, a process of its own
        artifacts = list(pool.map(build, configs))
    made = []
    for config, artifact in zip(configs, artifacts, strict=True):
        launch = gemm.backend.load(kernel, artifact)
        args[-1].fill(np.nan)
        launch(*args)
        if not np.allclose(args[-1], expected, atol=1e-3):
            raise ValueError(f"{config} computes something else than the product")
        made.append(Candidate(gemm.space.rank(config), gemm.backend.timer(launch, args, 1)))
    return made


class Metered:
    """A timer that adds what it times to a common sum."""

    spent = 0.0

    def __init__(self, timer: HostTimer) -> None:
        self.clock, self.flush, self._timer = timer.clock, timer.flush, timer

    def __call__(self, count: int) -> float:
        took = self._timer(count)
        self.clock = self._timer.clock  # its first launches show which is honest
        Metered.spent += took
        return took


def one_round(visits: Sequence[Sampler], rng: np.random.Generator) -> NDArray[np.float64]:
    """Seconds of every visit, made in random order."""
    seconds = np.empty(len(visits))
    for i in rng.permutation(len(visits)):
        seconds[i] = visits[i]()
    return seconds


@dataclass(frozen=True)
class Standing:
    """The truth about the configs of a repeat: times over the best, and how small they could be, by place."""

    ratios: dict[int, float]
    lows: dict[int, float]

    @property
    def within(self) -> int:
        """How many are within the margin of the best; it is one of them."""
        return sum(ratio <= 1 + MARGIN for ratio in self.ratios.values())

    @property
    def untold(self) -> int:
        """How many the truth cannot tell from the best; it is one of them."""
        return sum(low <= 1 for low in self.lows.values())

    @property
    def error(self) -> float:
        """By how much the ratios of those nearest to the best may be too large; two standard errors."""
        nearest = sorted(self.ratios, key=self.ratios.__getitem__)[1:4]
        return median(self.ratios[i] - self.lows[i] for i in nearest)


class Truth:
    """How configs compare in one regime, from blocks of rounds that no method sees.

    All are screened; those within reach of the best in any round are followed. A config's time is the mean over
    blocks, and its error follows from their spread: within a block the machine's mood hardly changes.
    """

    def __init__(self, timers: Sequence[Metered], regime: Regime) -> None:
        self._rng = np.random.default_rng(1)
        self._visits = [make_sampler(timer, None, regime) for timer in timers]
        self._followed = np.arange(len(timers))
        screened = self._block(SCREENED)
        screened -= np.median(screened, axis=1, keepdims=True)
        self._rough = np.median(screened, axis=0)
        self._followed = np.flatnonzero(screened.min(axis=0) <= self._rough.min() + np.log(REACH))
        self._blocks: list[NDArray[np.float64]] = []
        self._levels: list[float] = []

    def _block(self, rounds: int) -> NDArray[np.float64]:
        visits = [self._visits[i] for i in self._followed]
        logs: NDArray[np.float64] = np.log([one_round(visits, self._rng) for _ in range(rounds)])
        return logs

    def follow(self, rounds: int) -> None:
        """One more block."""
        logs = self._block(rounds)
        self._levels.append(float(np.median(logs)))
        self._blocks.append(np.median(logs - np.median(logs, axis=1, keepdims=True), axis=0))

    @property
    def unrest(self) -> float:
        """How many times as long the same work took in slow blocks as in fast ones: the ninth decile over the first."""
        first, ninth = np.quantile(self._levels, (0.1, 0.9))
        return float(np.exp(ninth - first))

    def among(self, places: Sequence[int]) -> Standing:
        """The truth about some of the configs; of those not followed, roughly."""
        rough = np.exp(self._rough[list(places)] - self._rough[list(places)].min()).tolist()
        ratios = dict(zip(places, rough, strict=True))
        lows = dict(ratios)
        here = np.flatnonzero(np.isin(self._followed, places))
        blocks = np.array(self._blocks)[:, here]
        apart = blocks - blocks[:, [int(np.argmin(blocks.mean(axis=0)))]]
        centres, errors = apart.mean(axis=0), apart.std(axis=0, ddof=1) / np.sqrt(len(apart))
        for place, centre, error in zip(self._followed[here].tolist(), centres, errors, strict=True):
            ratios[place], lows[place] = float(np.exp(centre)), float(np.exp(centre - 2 * error))
        return Standing(ratios, lows)


@contextmanager
def neighbour(core: int) -> Iterator[None]:
    """A process that keeps another core and the memory busy; it ends with us, and after an hour at the latest."""
    command = [sys.executable, "-c", NEIGHBOUR, str(core), str(os.getpid())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        yield
        if process.poll() is not None:
            raise RuntimeError("the neighbour left before the measurement was over")
    finally:
        process.kill()
        process.communicate()
