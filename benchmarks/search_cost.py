"""What a proposal costs: CPU time and peak memory of a strategy, in a fresh process on one core."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from zlib import crc32

import numpy as np
from figures import Report
from space import Definition, declare, definitions, peak_mb

from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.runs import replay
from tunewright.replay.tables import RecordingFile
from tunewright.spaces.config import Config


@dataclass(frozen=True)
class Cost:
    """CPU seconds to make a strategy, milliseconds for each of its proposals, and the process's peak."""

    configs: int
    made_s: float
    proposals_ms: tuple[float, ...]
    peak_mb: float

    @property
    def each_ms(self) -> float:
        """A proposal, with its share of what making the strategy took."""
        return (1e3 * self.made_s + sum(self.proposals_ms)) / len(self.proposals_ms)


def on_table(strategy: str, origin: RecordingFile, count: int) -> Cost:
    """On a recorded space; runs in a fresh process."""
    table, make = origin.load(), ReplayedStrategy(strategy).load()
    began = time.process_time()
    made = make(table.space, np.random.default_rng(0))
    spent = time.process_time() - began
    _, cpu = replay(table, made, count)
    return Cost(len(table.trials), spent, tuple(1e3 * seconds for seconds in cpu), peak_mb())


def on_definition(strategy: str, definition: Definition, count: int) -> Cost:
    """On a space that has no recording, with made-up times; runs in a fresh process."""
    space, make = declare(definition), ReplayedStrategy(strategy).load()
    size = space.size
    began = time.process_time()
    made = make(space, np.random.default_rng(0))
    spent, each = time.process_time() - began, []
    for _ in range(count):
        began = time.process_time()
        asked = made.ask(1)
        asking = time.process_time() - began
        trials = [pretended(config) for config in asked]
        began = time.process_time()
        made.tell(trials)
        each.append(1e3 * (asking + time.process_time() - began))
    return Cost(size, spent, tuple(each), peak_mb())


def pretended(config: Config) -> Trial:
    """A time that depends on every knob, now and then a failure; the same in all processes."""
    if crc32(str(config).encode()) % 20 == 0:
        return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "made up"))
    parts = [
        (crc32(name.encode()) % 7) / 7 * abs(np.log2(1 + float(value)) - crc32(name.encode()) % 5)
        for name, value in config.items()
    ]
    return Trial(config, Timing((1e-3 * (1 + float(sum(parts))),)))


def costs(origins: Sequence[RecordingFile], names: Sequence[str], spaces: Path, report: Report, *, quick: bool) -> None:
    """Figures of the first strategy, lines of all."""
    largest = max(origins, key=lambda origin: origin.path.stat().st_size)
    defined, _ = definitions(spaces)
    huge = max(defined, key=lambda definition: definition.feasible)
    count = 30 if quick else 100
    report.lines.append(
        "CPU time of a proposal, with its share of the start: mean, median, largest; start; peak memory"
    )
    for name in names:
        for prefix, what, function in (("", largest, on_table), ("large_", huge, on_definition)):
            with one_core(), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                seen = pool.submit(function, name, what, count).result()
            middle, most = median(seen.proposals_ms), max(seen.proposals_ms)
            report.lines.append(
                f"  {name:<24} {what.name:<20} {seen.configs:>9,} configs  {seen.each_ms:7.2f} {middle:7.2f} "
                f"{most:8.2f} ms  {seen.made_s:6.2f} s  {seen.peak_mb:6.0f} MB"
            )
            if name == names[0]:
                report.figures |= {
                    f"{prefix}cost_ms": round(seen.each_ms, 3),
                    f"{prefix}cost_median_ms": round(middle, 3),
                    f"{prefix}cost_most_ms": round(most, 3),
                    f"{prefix}start_s": round(seen.made_s, 3),
                    f"{prefix}peak_mb": round(seen.peak_mb, 1),
                    f"{prefix}cost_configs": seen.configs,
                }
    report.lines.append("")


class one_core:  # noqa: N801 - reads as a clause
    """What is started inside keeps to one core, so that its numpy takes one thread."""

    def __enter__(self) -> None:
        self._cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(self._cores)})

    def __exit__(self, *_: object) -> None:
        os.sched_setaffinity(0, self._cores)
