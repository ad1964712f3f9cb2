"""Run: the loop; ask, attempt, tell, until the budget or the strategy is done."""

from __future__ import annotations

from collections.abc import Iterator

from tunewright.engine.budget import Budget
from tunewright.engine.journal import Journal
from tunewright.model.decision import Problem
from tunewright.model.trial import Entry
from tunewright.ports.pool import Attempt, Pool
from tunewright.ports.strategy import Strategy
from tunewright.spaces.config import Config


def search(
    problem: Problem, strategy: Strategy, attempt: Attempt, *, pool: Pool, budget: Budget, journal: Journal
) -> None:
    """Try what `strategy` proposes, the default and seeds first; every trial ends up in `journal`."""
    for trial in pool.run(attempt, _proposals(problem, strategy, budget, journal)):
        journal.add(trial)
        strategy.tell([trial])


def _proposals(problem: Problem, strategy: Strategy, budget: Budget, journal: Journal) -> Iterator[Entry]:
    """Configs to try, each against the best so far; drawn when a place is free, so that nothing is staler than it must.

    What an earlier run has tried is answered from the journal: it costs a trial of the budget, but no time. The
    strategy thus sees the same history as if it had never been interrupted.
    """
    seen: set[Config] = set()
    while budget.grant():
        wave = strategy.ask(1) if seen else [problem.default, *problem.seeds]
        if not wave:
            return
        for config in wave:
            if config in seen or not budget.grant():
                continue
            seen.add(config)
            budget.spend()
            if (known := journal.replay(config)) is not None:
                strategy.tell([known])
            else:
                yield Entry(config, journal.rival)
