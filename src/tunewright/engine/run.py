"""Run: the loop; ask, attempt, tell, until the budget or the strategy is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tunewright.engine.budget import Budget
from tunewright.engine.journal import Journal
from tunewright.engine.stopping import Stopping
from tunewright.model.decision import Problem
from tunewright.model.trial import Entry
from tunewright.ports.pool import Attempt, Pool
from tunewright.ports.strategy import Strategy
from tunewright.spaces.config import Config


class Search(msgspec.Struct, frozen=True):
    """What a search consists of: a problem, who proposes, how much may be spent, and where trials are kept."""

    problem: Problem
    strategy: Strategy
    budget: Budget
    stopping: Stopping
    journal: Journal


def search(plan: Search, attempt: Attempt, pool: Pool) -> None:
    """Try what the strategy proposes, the default and seeds first; every trial ends up in the journal."""
    for trial in pool.run(attempt, _proposals(plan)):
        plan.journal.add(trial)
        plan.strategy.tell([trial])


def _proposals(plan: Search) -> Iterator[Entry]:
    """Configs to try, each against the best so far; drawn when a place is free, so that nothing is staler than it must.

    What earlier runs have tried comes first, from the journal: it costs trials of the budget, but no time, and the
    strategy goes on from there.
    """
    problem, strategy, budget, journal = plan.problem, plan.strategy, plan.budget, plan.journal
    seen: set[Config] = set()
    for config in list(journal.known):
        seen.add(config)
        budget.spend()
        strategy.tell([journal.replay(config)])
    wave: Sequence[Config] = [problem.default, *problem.seeds]
    while wave:
        for config in wave:
            if config not in seen and budget.grant():
                seen.add(config)
                budget.spend()
                yield Entry(config, journal.rival)
        wave = strategy.ask(1) if budget.grant() and not plan.stopping.look(len(journal.trials)) else ()
