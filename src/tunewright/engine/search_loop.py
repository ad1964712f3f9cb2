"""The search loop: ask, try, tell, until the budget or the strategy is exhausted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tunewright.engine.budget import Budget
from tunewright.engine.decide import with_notes
from tunewright.engine.journal import Journal
from tunewright.engine.repeated_failures import find_repeated_failure
from tunewright.engine.stopping import StoppingRule
from tunewright.errors import NothingWorked, SpaceError
from tunewright.model.decision import Decision, Problem
from tunewright.model.trial import Failure, Kind, TrialRequest
from tunewright.ports.pool import Attempt, Pool
from tunewright.ports.strategy import Strategy
from tunewright.spaces.config import Config
from tunewright.stores.prior import describe_seed_benefit


class Search(msgspec.Struct, frozen=True):
    """The parts of a search: problem, strategy, budget, stopping rule and journal."""

    problem: Problem
    strategy: Strategy
    budget: Budget
    stopping: StoppingRule
    journal: Journal

    def max_trials(self) -> int | None:
        """Returns the largest number of trials the search can make: the budget's, or the size of the space."""
        try:
            return min(self.budget.trials or self.problem.space.size, self.problem.space.size)
        except SpaceError:
            return self.budget.trials


def search(plan: Search, attempt: Attempt, pool: Pool) -> None:
    """Tries the default, the seeds and the strategy's proposals; every trial is recorded in the journal.

    Raises NothingWorked as soon as it is plain that nothing will build.
    """
    for trial in pool.run(attempt, _requests(plan)):
        if isinstance(trial.outcome, Failure) and trial.outcome.kind is Kind.STOPPED:
            if not plan.budget.is_hung(trial):
                plan.journal.trying.end(trial.config)
                continue
            trial = plan.journal.call_hung(trial)
        plan.budget.learn(trial, ready=trial.config in plan.problem.ready)
        plan.journal.add(trial)
        plan.strategy.tell([trial])
        if reason := find_repeated_failure(plan.problem, plan.journal.trials):
            raise NothingWorked(reason)


def _requests(plan: Search) -> Iterator[TrialRequest]:
    """Yields configs to try against the incumbent; each is chosen only when a worker is free.

    Trials of earlier runs are replayed from the journal first: they count as trials of the budget, but take no time.
    """
    problem, strategy, budget, journal = plan.problem, plan.strategy, plan.budget, plan.journal
    requested: set[Config] = set()
    for config in list(journal.known):
        requested.add(config)
        budget.spend()
        strategy.tell([journal.replay(config)])
    batch: Sequence[Config] = [problem.default, *problem.seeds, *journal.retries]
    while batch:
        for config in batch:
            essential = config == problem.default and not journal.known
            if config not in requested and budget.grant(essential=essential, ready=config in problem.ready):
                requested.add(config)
                budget.spend()
                journal.trying.start(config)
                yield TrialRequest(config, journal.incumbent, budget.allowance(), essential)
        batch = strategy.ask(1) if budget.grant() and not plan.stopping.should_stop(len(journal.trials)) else ()


def with_search_notes(decision: Decision, plan: Search) -> Decision:
    """Returns the decision with what seeds saved, why the search ended, and the expected regret."""
    notes = [note] if (note := describe_seed_benefit(plan.problem.seeds, plan.journal.trials)) else []
    forecast, count = plan.stopping.final_forecast(), len(plan.journal.trials)
    if plan.stopping.due:
        gain = plan.stopping.min_expected_gain
        notes.append(f"stopped after {count} trials: as many again are expected to gain less than {gain:.1%}")
    return with_notes(decision, *notes, remains=forecast and forecast.regret)
