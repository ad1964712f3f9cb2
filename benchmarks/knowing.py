"""Searches that start knowing: figures of compiled code against recorded times of real cards, and as a prior.

    python benchmarks/knowing.py [--quick] [--json] --spaces DIR --kernels DIR [--figures DIR] [--pool 72]
                                 [--seeds 20] [--only KERNEL,KERNEL] [--no-search]

DIR of --kernels holds the sources of kernels whose times were recorded. Each config of a pool is compiled, some of its
blocks are executed in the emulator, and a stated model (`tunewright.emulator.cost_model`), which never saw a recorded
time, predicts its time. Figures are kept in --figures and not computed again.

- spearman: rank correlation of predicted and recorded times over the configs of the pool that work, by card.
- search: the default strategy from nothing, and the same with the predictions of 48 configs as a prior, weighted by
  the trials as they come, as trials of other devices are. Whether the prior is the model alone, or also its single
  limits (instructions issued, memory, ...), is chosen for each kernel on the other kernels alone.

Only rows with `use_shmem == 1` of the convolution are searched: its source does not read that knob.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from figures import Goal, Report, parser
from knowing_kernels import CARDS, KERNELS, ConfigFigures, config_figures, keep, load_figures, predictions
from search import LEFT_OUT, SHARED

from tunewright.backends.replay import Recording
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.ports.strategy import Prior, Source
from tunewright.replay.runs import replay
from tunewright.replay.tables import RecordedTable
from tunewright.spaces.config import Config
from tunewright.strategies.portfolio import Portfolio

BUDGET, KNOWN = 100, 48
POOL_SEED = 11
FILTERS = {"convolution": {"use_shmem": 1}}
VARIANTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "model": ("model",),
    "model and limits": ("model", "issue", "float", "memory", "l2", "integer"),
}
GOALS = (
    Goal("spearman_median", ">=", 0.8),
    Goal("r10_gain", ">=", 0.03),
    Goal("r25_gain", ">=", 0.03),
    Goal("e5_ratio", "<=", 0.7),
    Goal("worst", ">=", -0.01),
)


@dataclass(frozen=True)
class Recorded:
    """A recorded table of a kernel on a card, and the figures of some of its configs."""

    kernel: str
    card: str
    table: RecordedTable
    pool: Mapping[Config, ConfigFigures]

    @property
    def name(self) -> str:
        return f"{self.kernel}-{self.card}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load_table(kernel: str, path: Path) -> RecordedTable:
    """A recording, without the rows that the source at hand does not describe."""
    recording, wanted = Recording.read(path), FILTERS.get(kernel, {})
    if wanted:
        trials = {c: t for c, t in recording.trials.items() if all(c[name] == value for name, value in wanted.items())}
        recording = replace(recording, trials=trials)
    return RecordedTable.of(path.stem, recording)


def pool_figures(kernel: str, tables: Mapping[str, RecordedTable], options: Any) -> dict[Config, ConfigFigures]:
    """Figures of the same random configs for all cards; those that are kept are not computed again."""
    path = Path(options.figures, f"{kernel}.jsonl")
    kept, shared = load_figures(path), sorted(set.intersection(*(set(t.rows) for t in tables.values())), key=str)
    order = np.random.default_rng(POOL_SEED).permutation(len(shared))[: options.pool]
    chosen = [shared[number] for number in order]
    missing = [config for config in chosen if tuple(config.values()) not in kept]
    began = time.monotonic()
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        work = partial(config_figures, kernel, folder=options.kernels)
        for number, found in enumerate(pool.map(work, [dict(config) for config in missing]), 1):
            keep(path, found)
            kept[tuple(found.config.values())] = found
            if number % 10 == 0 or number == len(missing):
                left = (time.monotonic() - began) / number * (len(missing) - number)
                say(f"figures of {kernel}: {number} of {len(missing)}, about {left / 60:.1f} min left")
    return {config: kept[tuple(config.values())] for config in chosen}


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    ranks = [np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def rank_quality(one: Recorded) -> dict[str, Any]:
    """How predicted and recorded times agree over the pool."""
    pairs = []
    for config, found in one.pool.items():
        seconds, predicted = one.table.seconds[one.table.rows[config]], predictions(found, one.card)
        if predicted and not np.isnan(seconds):
            pairs.append((predicted, seconds))
    recorded = [seconds for _, seconds in pairs]
    by_limit = {name: round(spearman([p[name] for p, _ in pairs], recorded), 3) for name in pairs[0][0]}
    return {"configs": len(pairs), "spearman": by_limit["model"], "limits": by_limit}


def sources(one: Recorded, names: Sequence[str], seed: int) -> list[Source]:
    """The predictions for some configs of the pool, as trials of a made-up device for each limit."""
    configs = list(one.pool)
    order = np.random.default_rng((seed, 5)).permutation(len(configs))[:KNOWN]
    known = {configs[number]: predictions(one.pool[configs[number]], one.card) for number in order}
    return [Source(name, [predicted_trial(c, p.get(name)) for c, p in known.items()]) for name in names]


def predicted_trial(config: Config, seconds: float | None) -> Trial:
    """A trial with a predicted time; None means that the config does not fit."""
    if seconds is None:
        return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "does not fit"))
    return Trial(config, Timing((seconds,)))


RECORDED: dict[str, Recorded] = {}
"""What is searched, by name: processes inherit it, since rules of spaces cannot be sent."""


def searched(job: tuple[str, str, int]) -> tuple[str, str, int, list[float]]:
    """The optimum over the best so far, after each evaluation of one search."""
    name, variant, seed = job
    one = RECORDED[name]
    strategy = Portfolio(one.table.space, np.random.default_rng(seed))
    if names := VARIANTS[variant]:
        strategy.inform(Prior(sources(one, names, seed)))
    rows, _ = replay(one.table, strategy, BUDGET)
    seconds = np.nan_to_num(one.table.seconds[rows], nan=inf)
    return one.name, variant, seed, (one.table.optimum / np.minimum.accumulate(seconds)).tolist()


def summarized(curves: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean ratios after 10, 25, 50 and 100 evaluations, and the mean number until within 5 %."""
    table = np.array(curves)
    e5 = [float(np.argmax(row >= 1 / 1.05)) + 1 if (row >= 1 / 1.05).any() else BUDGET + 1.0 for row in table]
    return {f"r{k}": float(table[:, k - 1].mean()) for k in (10, 25, 50, 100)} | {"e5": float(np.mean(e5))}


def choose_variant(scores: Mapping[str, Mapping[str, Mapping[str, float]]], kernel: str, kernels: Any) -> str:
    """The prior that is best at 10 and 25 on the spaces of other kernels; nothing if none helps there."""
    others = [name for name in scores if kernels[name] != kernel]
    gains = {
        variant: float(np.mean([scores[name][variant]["r10"] + scores[name][variant]["r25"] for name in others] or [0]))
        for variant in VARIANTS
    }
    return max(gains, key=lambda variant: gains[variant])


def search(recorded: Sequence[Recorded], seeds: int, report: Report) -> None:
    """Searches with and without figures, the prior chosen leave-one-kernel-out."""
    RECORDED.update({one.name: one for one in recorded})
    jobs = [(one.name, variant, seed) for one in recorded for variant in VARIANTS for seed in range(seeds)]
    curves: dict[str, dict[str, list[list[float]]]] = {}
    began = time.monotonic()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        for number, (name, variant, _, curve) in enumerate(pool.map(searched, jobs, chunksize=5), 1):
            curves.setdefault(name, {}).setdefault(variant, []).append(curve)
            if number % 100 == 0:
                left = (time.monotonic() - began) / number * (len(jobs) - number)
                say(f"searches: {number} of {len(jobs)}, about {left / 60:.1f} min left")
    scores = {name: {v: summarized(some) for v, some in by.items()} for name, by in curves.items()}
    kernels = {one.name: one.kernel for one in recorded}
    chosen = {name: choose_variant(scores, kernels[name], kernels) for name in scores}
    with_, without = ([scores[n][v] for n, v in pairs] for pairs in (chosen.items(), ((n, "nothing") for n in scores)))
    for mark in ("r10", "r25"):
        gains = [a[mark] - b[mark] for a, b in zip(with_, without, strict=True)]
        report.figures[f"{mark}_gain"] = round(float(np.mean(gains)), 4)
    report.figures["e5_ratio"] = round(sum(a["e5"] for a in with_) / sum(b["e5"] for b in without), 3)
    lead = [a[mark] - b[mark] for a, b in zip(with_, without, strict=True) for mark in ("r10", "r25", "r50", "r100")]
    report.figures |= {"worst": round(min(lead), 4), "chosen": chosen, "by_space": rounded(scores)}
    report.lines.append("search: optimum over best after 10 and 25, evaluations to 5 %, by prior")
    for name, by in scores.items():
        cells = "   ".join(f"{v}: {s['r10']:.3f} {s['r25']:.3f} {s['e5']:.0f}" for v, s in by.items())
        report.lines.append(f"  {name:<24} {cells}   ({chosen[name]} is chosen by the others)")


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def costs(pools: Mapping[str, Mapping[Config, ConfigFigures]], report: Report) -> None:
    """CPU seconds of the figures of a config."""
    report.lines.append("CPU seconds of a config: compiling, executing; configs without figures")
    for kernel, pool in pools.items():
        done = [one for one in pool.values() if one.figures is not None]
        if not done:
            continue
        compiling, executing = (
            median(getattr(one, f"{part}_seconds") for one in done) for part in ("compile", "execute")
        )
        failed = len(pool) - len(done)
        report.figures.setdefault("figure_seconds", {})[kernel] = [round(compiling, 2), round(executing, 2), failed]
        report.lines.append(f"  {kernel:<16} {compiling:.2f}  {executing:.2f}  {failed} of {len(pool)}")


def main() -> int:
    """Compute figures, judge them, search with them."""
    arguments = parser(__doc__)
    arguments.add_argument("--spaces", type=Path, default=SHARED / "spaces")
    arguments.add_argument("--kernels", type=Path, default=SHARED / "kernels" / "hub")
    arguments.add_argument("--figures", type=Path, help="folder that keeps the figures")
    arguments.add_argument("--pool", type=int, help="configs with figures, of each kernel")
    arguments.add_argument("--seeds", type=int)
    arguments.add_argument("--only", default=",".join(KERNELS))
    arguments.add_argument("--no-search", action="store_true")
    options = arguments.parse_args()
    options.pool = options.pool or (12 if options.quick else 72)
    seeds, report = options.seeds or (3 if options.quick else 20), Report()
    if not options.kernels.is_dir() or not options.spaces.is_dir():
        report.lines.append("no sources or recordings: give --kernels DIR and --spaces DIR")
        return report.finish(GOALS, as_json=options.json)
    recorded, pools = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        options.figures = options.figures or Path(temporary)
        options.figures.mkdir(exist_ok=True)
        for kernel in options.only.split(","):
            paths = {card: options.spaces / f"{kernel}-{card}.parquet" for card in CARDS}
            tables = {c: load_table(kernel, p) for c, p in paths.items() if p.is_file() and p.stem not in LEFT_OUT}
            pools[kernel] = pool_figures(kernel, tables, options)
            recorded += [Recorded(kernel, card, table, pools[kernel]) for card, table in tables.items()]
    quality = {one.name: rank_quality(one) for one in recorded}
    report.figures |= {
        "spearman": quality,
        "spearman_median": round(median(q["spearman"] for q in quality.values()), 3),
    }
    report.lines.append("rank correlation of predicted and recorded times")
    report.lines += [f"  {n:<24} {q['spearman']:.2f} over {q['configs']} configs" for n, q in quality.items()]
    costs(pools, report)
    if not options.no_search:
        search(recorded, seeds, report)
    return report.finish(GOALS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
