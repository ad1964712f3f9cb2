"""Kernel Tuner's own strategies on recorded spaces, through the replay script that lies in the peers' folder.

    python benchmarks/search_peers.py [--spaces DIR] [--peers DIR] [--seeds 10]

Each seed has a search space of its own: the object keeps lists of neighbors, from which later runs profit.

By itself: its simulated annealing as the script runs it, all seeds on one search space, and with a search space made
anew for each seed. The object keeps lists of neighbours that earlier runs came by, and proposes from them first.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

from figures import Report

from tunewright.replay.scores import TraceScore, checkpoints
from tunewright.replay.tables import RecordingFile

SCRIPT = "kernel_tuner_replay.py"
PREFIX = "kt "
"""Before the names of peers, since some of ours are called the same."""

FAILURES = {"build": "CompilationFailedConfig"}


@dataclass(frozen=True)
class Peers:
    """Where the script lies, where finished runs are kept, and how many processes may run."""

    folder: Path
    kept: Path | None
    workers: int
    scratch: Path

    def scores(
        self, origins: Sequence[RecordingFile], seeds: int, budget: int, report: Report
    ) -> dict[str, list[TraceScore]]:
        """Their scores by strategy; none, and a line that says so, where they are not installed."""
        if not (self.folder / SCRIPT).is_file() or importlib.util.find_spec("kernel_tuner") is None:
            report.lines.append(f"no peers: {SCRIPT} and the dependency group `peers` are needed for them\n")
            return {}
        # Some of them never end where there is little left to propose.
        if small := [o.name for o in origins if _rows(o) < 2 * budget]:
            report.lines.append(f"no peers on spaces of fewer than {2 * budget} configs: {', '.join(small)}\n")
            origins = [o for o in origins if o.name not in small]
        file = (self.kept or self.scratch) / "peers-own-space.jsonl"
        known = _known(file)
        missing = [o for o in origins if (o.digest, seeds, budget) not in known]
        with get_context("spawn").Pool(self.workers) as pool, file.open("a") as lines:
            jobs = [(self.folder, _readable(o, self.scratch), o.name, seeds, budget) for o in missing]
            for name, rows in pool.imap_unordered(run_space, jobs):
                print(f"kernel tuner: {name} is done", file=sys.stderr, flush=True)
                digest = next(o.digest for o in missing if o.name == name)
                known[digest, seeds, budget] = rows
                lines.write(json.dumps({"digest": digest, "seeds": seeds, "budget": budget, "rows": rows}) + "\n")
                lines.flush()
        found: dict[str, list[TraceScore]] = {}
        for origin in origins:
            kernel = json.loads(origin.path.with_suffix(".json").read_text())["kernel"]
            for row in known[origin.digest, seeds, budget]:
                found.setdefault(PREFIX + row["strategy"], []).append(_score(row, origin.name, kernel, budget))
        return found


def _rows(origin: RecordingFile) -> int:
    from pyarrow.parquet import read_metadata

    return int(read_metadata(origin.path).num_rows)


def _known(file: Path) -> dict[tuple[str, int, int], list[dict[str, Any]]]:
    """What an earlier run has done, space by space."""
    if not file.is_file():
        return {}
    found = {}
    for line in file.read_text().splitlines():
        try:
            one = json.loads(line)
        except ValueError:  # torn by a kill
            continue
        found[one["digest"], one["seeds"], one["budget"]] = one["rows"]
    return found


def _score(row: dict[str, Any], table: str, kernel: str, budget: int) -> TraceScore:
    """A row of theirs, as judged by their script."""
    ratios = {mark: row[f"r{mark}"] for mark in checkpoints(budget)}
    e5, e1 = (inf if row[name] is None else float(row[name]) for name in ("e5", "e1"))
    return TraceScore(table, kernel, ratios, e5, e1, cpu_ms=1e3 * row["cpu_s"] / max(1, row["evaluations"]))


def load(folder: Path) -> ModuleType:
    """Their script as a module."""
    spec = importlib.util.spec_from_file_location("kernel_tuner_replay", folder / SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_space(job: tuple[Path, Path, str, int, int]) -> tuple[str, list[dict[str, Any]]]:
    """All their strategies on one space, which is built for each seed; runs in a process of its own."""
    from kernel_tuner.searchspace import Searchspace

    scripts, spaces, name, seeds, budget = job
    script = load(scripts)
    script.BUDGETS = checkpoints(budget)
    table = script.Table(spaces, name)
    if table.meta["constraints"] is None:
        from constraint import FunctionConstraint

        def recorded(*settings: int) -> bool:
            return settings in table.index

        table.meta["constraints"] = [FunctionConstraint(recorded)]
    replay, rows = script.KernelTunerReplay(table), []
    for strategy in script.STRATEGIES:
        for seed in range(seeds):
            replay.space = Searchspace(table.parameters, table.meta["constraints"], 10**9)
            began = time.process_time()
            trace = replay.trace(strategy, seed, budget)
            row = {"strategy": strategy, "cpu_s": time.process_time() - began} | script.score(table, trace)
            rows.append({key: value.item() if hasattr(value, "item") else value for key, value in row.items()})
    return name, rows


def _readable(origin: RecordingFile, scratch: Path) -> Path:
    """The folder of a recording their script can read: its own, or a copy with values by number and their errors."""
    import pandas as pd

    about, rows = json.loads(origin.path.with_suffix(".json").read_text()), pd.read_parquet(origin.path)
    if "verification_ms" in rows:  # as the benchmark hub has it
        return origin.path.parent
    about["constraints"] = None  # they may read values by name
    for name in about["parameter_order"]:
        values = about["parameters"][name]
        if not all(type(value) is int for value in values):
            rows[name] = [values.index(value) for value in rows[name].tolist()]
            about["parameters"][name] = list(range(len(values)))
    said = [str(text or "").partition(":")[0] for text in rows["error"]]
    rows["error"] = ["" if not text else FAILURES.get(text, "RuntimeFailedConfig") for text in said]
    rows["verification_ms"] = 0.0
    folder = scratch / "readable"
    folder.mkdir(exist_ok=True)
    rows.to_parquet(folder / origin.path.name)
    (folder / f"{origin.name}.json").write_text(json.dumps(about))
    return folder


def annealed(job: tuple[Path, Path, str, int]) -> tuple[list[list[float]], list[list[float]]]:
    """r at 25 .. 200 for each seed of annealing on one space: sharing a search space, and each with its own."""
    from kernel_tuner.searchspace import Searchspace

    scripts, spaces, name, seeds = job
    script = load(scripts)
    table = script.Table(spaces, name)
    shared, own = [], []
    for found, fresh in ((shared, False), (own, True)):
        replay = script.KernelTunerReplay(table)
        for seed in range(seeds):
            if fresh:
                replay.space = Searchspace(table.parameters, table.meta["constraints"], 10**9)
            score = script.score(table, replay.trace("simulated_annealing", seed, max(script.BUDGETS)))
            found.append([float(score[f"r{mark}"]) for mark in script.BUDGETS])
    return shared, own


def main() -> None:
    """Annealing with and without memory of other runs."""
    import argparse

    import numpy as np

    shared_folder = Path(__file__).resolve().parent.parent.parent / "shared"
    takes = argparse.ArgumentParser(description="Kernel Tuner's annealing, with and without memory of other runs")
    takes.add_argument("--spaces", type=Path, default=shared_folder / "spaces")
    takes.add_argument("--peers", type=Path, default=shared_folder / "peers")
    takes.add_argument("--seeds", type=int, default=10)
    given = takes.parse_args()
    script = load(given.peers)
    jobs = [(given.peers, given.spaces, name, given.seeds) for name in script.names(given.spaces)]
    with get_context("spawn").Pool(2) as pool:
        rows = pool.map(annealed, jobs, chunksize=1)
    for title, which in (("one search space for all seeds", 0), ("a search space for each seed", 1)):
        means = np.mean([seed for row in rows for seed in row[which]], axis=0)
        print(f"{title}: " + "  ".join(f"r{m} {v:.3f}" for m, v in zip(script.BUDGETS, means, strict=True)))


if __name__ == "__main__":
    main()
