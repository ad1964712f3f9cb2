"""Tables of one kernel: seconds of every config on every shape, read and recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import record_spaces as recorder
import space_kinds as kinds
from numpy.typing import NDArray

import tunewright as tw
from tunewright.shapes.table import ShapeTable

PASSES = 6
WITHIN = 0.05
"""Regret that is near the best."""

Floats = NDArray[np.float64]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """Seconds of every config (a column each) on every shape (a row each), twice: to choose by, and to judge by."""

    shapes: list[Shape]
    configs: list[tw.Config]
    chosen_by: Floats
    judged_by: Floats
    names: tuple[str, ...] = ("M", "N", "K")

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table at `NAME.parquet`: a row for each shape and config; `NAME.json` names its sizes."""
        from pyarrow import parquet

        columns = parquet.read_table(path).to_pydict()
        sizes = tuple(json.loads(path.with_suffix(".json").read_text()).get("sizes", ("M", "N", "K")))
        names = [name for name in columns if name not in sizes and not name.endswith("_ms")]
        shapes = list(dict.fromkeys(zip(*(columns[name] for name in sizes), strict=True)))
        rows = [dict(zip(names, row, strict=True)) for row in zip(*(columns[n] for n in names), strict=True)]
        configs = list(dict.fromkeys(map(tw.Config, rows)))
        grid = (len(shapes), len(configs))
        first, second = (np.array(columns[name]).reshape(grid) / 1e3 for name in ("choose_ms", "judge_ms"))
        return cls(shapes, configs, first, second, sizes)

    @cached_property
    def distances(self) -> Floats:
        """How far shapes are apart, in doublings."""
        logs = np.log2(np.array(self.shapes, dtype=np.float64))
        return np.sqrt(((logs[:, None] - logs[None, :]) ** 2).sum(axis=-1))

    @cached_property
    def slower(self) -> Floats:
        """By how much each config is slower than the best of its shape, as a logarithm; to choose by."""
        return np.asarray(np.log(self.chosen_by / self.chosen_by.min(axis=1, keepdims=True)))

    def regret(self, shape: int, config: int) -> float:
        """By how much a config is slower than the best of a shape; to judge by."""
        return float(self.judged_by[shape, config] / self.judged_by[shape].min() - 1)

    def near(self, shape: int, tuned: Sequence[int], count: int) -> list[int]:
        """The nearest of those that are tuned."""
        return sorted(tuned, key=lambda other: self.distances[shape, other])[:count]

    def served(self, tuned: Sequence[int], count: int = 1) -> Floats:
        """Regret of all other shapes, each served by the config that is best for its nearest tuned shapes together."""
        others = [i for i in range(len(self.shapes)) if i not in tuned]
        return np.array(
            [self.regret(i, int(self.slower[self.near(i, tuned, count)].mean(axis=0).argmin())) for i in others]
        )


def shape_table(table: Table, tried: NDArray[np.bool_] | None = None) -> ShapeTable:
    """What is chosen by, all of it or only what was tried."""
    seconds = table.chosen_by if tried is None else np.where(tried, table.chosen_by, np.nan)
    weights = np.ones(len(table.shapes))
    return ShapeTable(table.names, tuple(table.shapes), tuple(table.configs), seconds, weights)


@dataclass(frozen=True)
class Recorded:
    """A kernel that is recorded on many shapes: the names of its sizes, the shapes, and a job for each."""

    name: str
    names: tuple[str, ...]
    shapes: Sequence[Shape]
    job: Callable[..., kinds.Job]


def record_table(path: Path, recorded: Recorded, passes: int = PASSES) -> None:
    """Time the space of a kernel on every shape, one config at a time, and keep the table."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = []
    for shape in recorded.shapes:
        recorder.say(" x ".join(map(str, shape)))
        job = recorded.job(*shape)
        kernel = job.kernel
        configs = list(kernel.space)
        folder = kernel.kernel.cache / "recording" / f"shape-{'-'.join(map(str, shape))}-{job.mark}"
        folder.mkdir(parents=True, exist_ok=True)
        built = recorder.build_all(job, configs, folder / "builds.jsonl")
        timed = recorder.time_all(job, configs, built, folder, passes)
        if timed.wrong or any(one.refused for one in built):
            raise ValueError(f"some configs fail on {shape}: {timed.wrong or [one.refused for one in built][:1]}")
        for config, seconds in zip(configs, timed.seconds * 1e3, strict=True):
            halves = {"choose_ms": np.nanmedian(seconds[::2]), "judge_ms": np.nanmedian(seconds[1::2])}
            sizes = dict(zip(recorded.names, shape, strict=True))
            rows.append({**sizes, **config, **{name: recorder.short(x) for name, x in halves.items()}})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
    about = {"kernel": recorded.name, "sizes": list(recorded.names), "device": recorder.device_name()}
    about |= {"compiler": "; ".join(found.version for found in kernel.backend.compilers.values()), "flags": kinds.FLAGS}
    path.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")
