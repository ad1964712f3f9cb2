"""Replay of one strategy on one recorded table with one seed, and its trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, product
from time import process_time
from typing import Any

import msgspec
import numpy as np

from tunewright.errors import PluginError, TunewrightError
from tunewright.ports.strategy import Prior, Source, Strategy
from tunewright.replay.noise import NoisyTimes
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.tables import RecordedTable, TableSource
from tunewright.spaces.config import Config

CACHED_TABLES = 8
"""Tables cached in a process: those of one kernel, which are sources of each other."""


class RunKey(msgspec.Struct, frozen=True):
    """Identity of a run: runs with an equal key have equal traces."""

    table: str
    """Digest of the table."""

    strategy: str
    version: str
    settings: dict[str, Any]
    seed: int
    budget: int
    batch: int = 1
    sources: tuple[str, ...] = ()
    """Digests of the tables of the prior."""

    source_trials: int = msgspec.field(default=0, name="drawn")
    """Trials sampled from each of them."""

    noise: bool = False
    """Whether times are drawn from the spread of each row, and a final race decides."""


class Trace(msgspec.Struct, frozen=True):
    """Evaluations of a strategy in order: rows of the table, seconds (None: failed), costs and its CPU time."""

    key: RunKey = msgspec.field(name="stamp")
    table: str
    kernel: str
    optimum: float
    rows: tuple[int, ...]
    seconds: tuple[float | None, ...]
    costs: tuple[float, ...]
    cpu: tuple[float, ...]
    """CPU seconds of the strategy for each evaluation."""

    setup: float = msgspec.field(name="made")
    """CPU seconds to create the strategy and to give it the prior."""

    decided: tuple[float | None, ...] = ()
    """Recorded seconds of what a race would decide for after each evaluation; empty if times have no noise."""


@dataclass(frozen=True)
class ReplayOptions:
    """Options of all runs: evaluations, how many in parallel, and trials sampled from each source."""

    budget: int = 200
    batch: int = 1
    source_trials: int = 0
    noise: bool = False
    """Whether to draw times from the recorded spreads; tables without spreads are replayed as they are."""


@dataclass(frozen=True)
class ReplayJob:
    """A replay to run."""

    key: RunKey
    table: TableSource
    prior_tables: tuple[TableSource, ...] = ()


def make_jobs(
    tables: Sequence[TableSource],
    strategies: Sequence[ReplayedStrategy],
    seeds: Sequence[int],
    options: ReplayOptions,
    sources: Mapping[TableSource, Sequence[TableSource]] | None = None,
) -> list[ReplayJob]:
    """Returns a job for every strategy, table and seed, table by table, so that a process loads each once.

    `sources` are the tables whose trials are the prior of a search on another table.
    """
    prior_tables = {table: tuple((sources or {}).get(table, ())) for table in tables}
    digests = {table: table.digest for table in {*tables, *chain.from_iterable(prior_tables.values())}}
    versions = {name: ReplayedStrategy(name).version for name in {strategy.name for strategy in strategies}}
    jobs = []
    for table, strategy in product(tables, strategies):
        priors = tuple(digests[source] for source in prior_tables[table])
        key = RunKey(
            digests[table], strategy.name, versions[strategy.name], dict(strategy.settings), 0,
            options.budget, options.batch, priors, options.source_trials if priors else 0, options.noise,
        )  # fmt: skip
        jobs += [ReplayJob(msgspec.structs.replace(key, seed=seed), table, prior_tables[table]) for seed in seeds]
    return jobs


@lru_cache(maxsize=CACHED_TABLES)
def _load_table(source: TableSource, digest: str) -> RecordedTable:
    """Returns the table; cached by digest, so that a changed file is read again."""
    return source.load()


def run_job(job: ReplayJob) -> Trace:
    """Runs a job and returns its trace; tables are cached between jobs, strategies are not."""
    key = job.key
    table, make = _load_table(job.table, key.table), ReplayedStrategy(key.strategy).load()
    tables = [_load_table(source, digest) for source, digest in zip(job.prior_tables, key.sources, strict=True)]
    prior = Prior(tuple(_sample_source(source, (key.seed, i), key.source_trials) for i, source in enumerate(tables)))
    try:
        started = process_time()
        strategy: Strategy = make(table.space, np.random.default_rng(key.seed), **key.settings)
        if prior.sources and (inform := getattr(strategy, "inform", None)) is not None:
            inform(prior)
        setup = process_time() - started
        noisy = NoisyTimes(table, key.seed) if key.noise and table.spreads.any() else None
        rows, cpu = replay(table, strategy, key.budget, key.batch, noisy)
    except TunewrightError:
        raise
    except Exception as error:
        raise PluginError(
            f"the strategy {key.strategy!r} raised {type(error).__name__}: {error} on {table.name} with seed "
            f"{key.seed}; fix it and run the same command: finished runs are kept"
        ) from error
    seconds = [None if np.isnan(s) else float(s) for s in table.seconds[rows]]
    costs = table.costs[rows].tolist()
    return Trace(key, table.name, table.kernel, table.optimum, tuple(rows), tuple(seconds), tuple(costs),
                 tuple(cpu), setup, tuple(noisy.decide(rows)) if noisy else ())  # fmt: skip


def replay(
    table: RecordedTable, strategy: Strategy, budget: int, batch: int = 1, noisy: NoisyTimes | None = None
) -> tuple[list[int], list[float]]:
    """Returns the evaluated rows in order, and the strategy's CPU seconds for each.

    Like a pool of `batch` workers, it asks for `batch` configs one by one before it tells the first trial.
    """
    rows: list[int] = []
    cpu: list[float] = []
    seen: set[int] = set()
    while len(rows) < budget:
        new_rows: list[int] = []
        for _ in range(min(batch, budget - len(rows))):
            started = process_time()
            proposals = strategy.ask(1)
            cpu.append(process_time() - started)
            if not proposals:
                cpu.pop()
                break
            new_rows.append(_new_row(table, proposals[0], seen))
        for i, row in enumerate(new_rows):
            trial = noisy.trial(row) if noisy else table.trials[row]
            started = process_time()
            strategy.tell([trial])
            cpu[len(rows) + i] += process_time() - started
        rows += new_rows
        if not new_rows:
            break
    return rows, cpu


def _new_row(table: RecordedTable, config: Config, seen: set[int]) -> int:
    """Returns the row of a proposed config; raises if the config is unknown or repeated."""
    row = table.rows.get(config)
    if row is None or row in seen:
        reason = "which it proposed before" if row is not None else "which is not in the space"
        raise PluginError(
            f"the strategy proposed {config} on {table.name}, {reason}; test it with tunewright.testing.strategy_kit"
        )
    seen.add(row)
    return row


def _sample_source(table: RecordedTable, seed: Sequence[int], count: int) -> Source:
    """Returns a random sample of a table's trials, equal for equal seeds."""
    rows = np.random.default_rng(seed).permutation(len(table.trials))[:count]
    return Source(table.name, tuple(table.trials[row] for row in rows))
