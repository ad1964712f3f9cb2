"""Replays: one strategy on one table with one seed, and the trace it leaves."""

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
from tunewright.laboratory.contenders import Contender
from tunewright.laboratory.tables import Origin, Table
from tunewright.ports.strategy import Prior, Source, Strategy
from tunewright.spaces.config import Config

TABLES_KEPT = 8
"""Tables a process keeps at once: those of one kernel, which are sources of each other."""


class Stamp(msgspec.Struct, frozen=True):
    """What must be equal for a trace to be the same."""

    table: str
    """The digest of what the table holds."""

    strategy: str
    version: str
    settings: dict[str, Any]
    seed: int
    budget: int
    batch: int = 1
    sources: tuple[str, ...] = ()
    """Digests of the tables that the prior was drawn from."""

    drawn: int = 0
    """Trials drawn from each of them."""


class Trace(msgspec.Struct, frozen=True):
    """What a strategy evaluated, in order: rows of the table, seconds (None: failed), costs; and its own CPU time."""

    stamp: Stamp
    table: str
    kernel: str
    optimum: float
    rows: tuple[int, ...]
    seconds: tuple[float | None, ...]
    costs: tuple[float, ...]
    cpu: tuple[float, ...]
    """CPU seconds of the strategy for each evaluation."""

    made: float
    """CPU seconds to make the strategy and to inform it."""


@dataclass(frozen=True)
class Terms:
    """How each replay goes: evaluations, how many at once, and trials drawn from each source."""

    budget: int = 200
    batch: int = 1
    drawn: int = 0


@dataclass(frozen=True)
class Job:
    """A replay to be done, by whichever process."""

    stamp: Stamp
    origin: Origin
    sources: tuple[Origin, ...] = ()


def jobs(
    origins: Sequence[Origin],
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    terms: Terms,
    sources: Mapping[Origin, Sequence[Origin]] | None = None,
) -> list[Job]:
    """Every contender on every table with every seed; table by table, so that each is loaded once by a process.

    `sources` are the tables whose trials a contender is told of before it searches another.
    """
    told = {origin: tuple((sources or {}).get(origin, ())) for origin in origins}
    digests = {origin: origin.digest for origin in {*origins, *chain.from_iterable(told.values())}}
    versions = {name: Contender(name).version for name in {contender.name for contender in contenders}}
    found = []
    for origin, contender in product(origins, contenders):
        priors = tuple(digests[source] for source in told[origin])
        stamp = Stamp(
            digests[origin], contender.name, versions[contender.name], dict(contender.settings), 0,
            terms.budget, terms.batch, priors, terms.drawn if priors else 0,
        )  # fmt: skip
        found += [Job(msgspec.structs.replace(stamp, seed=seed), origin, told[origin]) for seed in seeds]
    return found


@lru_cache(maxsize=TABLES_KEPT)
def _table(origin: Origin, digest: str) -> Table:
    """The table at `origin`; by digest, so that a file that changes is read again."""
    return origin.load()


def perform(job: Job) -> Trace:
    """The trace of a job; tables are kept from one to the next, strategies never."""
    stamp = job.stamp
    table, make = _table(job.origin, stamp.table), Contender(stamp.strategy).load()
    others = [_table(source, digest) for source, digest in zip(job.sources, stamp.sources, strict=True)]
    prior = Prior(tuple(_drawn(other, (stamp.seed, i), stamp.drawn) for i, other in enumerate(others)))
    try:
        began = process_time()
        strategy: Strategy = make(table.space, np.random.default_rng(stamp.seed), **stamp.settings)
        if prior.sources and (inform := getattr(strategy, "inform", None)) is not None:
            inform(prior)
        made = process_time() - began
        rows, cpu = replay(table, strategy, stamp.budget, stamp.batch)
    except TunewrightError:
        raise
    except Exception as error:
        raise PluginError(
            f"the strategy {stamp.strategy!r} raised {type(error).__name__}: {error} on {table.name} with seed "
            f"{stamp.seed}; mend it, then run the same command: what is done is kept"
        ) from error
    seconds = [None if np.isnan(s) else float(s) for s in table.seconds[rows]]
    costs = table.costs[rows].tolist()
    return Trace(stamp, table.name, table.kernel, table.optimum, tuple(rows), tuple(seconds), tuple(costs),
                 tuple(cpu), made)  # fmt: skip


def replay(table: Table, strategy: Strategy, budget: int, batch: int = 1) -> tuple[list[int], list[float]]:
    """Rows in the order evaluated, and CPU seconds of the strategy for each.

    As a pool of `batch` workers does, it asks for one config for each place before it tells what became of the first.
    """
    rows: list[int] = []
    cpu: list[float] = []
    seen: set[int] = set()
    while len(rows) < budget:
        fresh: list[int] = []
        for _ in range(min(batch, budget - len(rows))):
            began = process_time()
            asked = strategy.ask(1)
            cpu.append(process_time() - began)
            if not asked:
                cpu.pop()
                break
            fresh.append(_row(table, asked[0], seen))
        for place, row in enumerate(fresh):
            began = process_time()
            strategy.tell([table.trials[row]])
            cpu[len(rows) + place] += process_time() - began
        rows += fresh
        if not fresh:
            break
    return rows, cpu


def _row(table: Table, config: Config, seen: set[int]) -> int:
    """The row of a config that was proposed for the first time."""
    row = table.rows.get(config)
    if row is None or row in seen:
        why = "which it proposed before" if row is not None else "which is not in the space"
        raise PluginError(
            f"the strategy proposed {config} on {table.name}, {why}; tunewright.testing.strategy_kit has tests for that"
        )
    seen.add(row)
    return row


def _drawn(table: Table, seed: Sequence[int], count: int) -> Source:
    """Trials of some rows of another table, the same for the same seed."""
    rows = np.random.default_rng(seed).permutation(len(table.trials))[:count]
    return Source(table.name, tuple(table.trials[row] for row in rows))
