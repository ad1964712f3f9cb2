"""What the store knows that may help a search before its first trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tunewright.errors import StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Problem
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.ports.strategy import Prior, Source
from tunewright.spaces.config import Config
from tunewright.stores.fallback import key_distance
from tunewright.stores.records import RecordReader

log = LazyLogger(__name__)

MAX_SOURCES = 6
MIN_TRIALS = 8
"""Working trials that a journal needs to be a source."""

NEAREST_SEEDS = 3
"""How many of the nearest decisions are tried first."""


class Related(NamedTuple):
    """Trials of the same kernel under other keys, nearest first, and the configs that were chosen there.

    `other_source` are those of keys that differ in the source alone: the kernel before it was edited, or a graph of
    another model that is called in the same way. `near` are the others.
    """

    prior: Prior = Prior()
    other_source: tuple[Config, ...] = ()
    near: tuple[Config, ...] = ()

    def order_seeds(self, seeds: Sequence[Config]) -> tuple[Config, ...]:
        """Returns the seeds after what was chosen for the nearest other source: that was for the same call here."""
        return *self.other_source[:1], *seeds, *self.other_source[1:], *self.near


def collect_prior(store: Store, problem: Problem) -> Related:
    """Returns what is stored under keys that are near. Reads the keys of one kernel and the journals of the nearest."""
    try:
        keys = [key for key in store.keys(problem.key.kernel) if key != problem.key]
        keys.sort(key=lambda key: (*key_distance(problem.key, key), key.digest))
        sources: list[Source] = []
        for key in keys:
            if len(sources) == MAX_SOURCES:
                break
            trials = [trial for trial in store.trials(key) if trial.config in problem.space]
            if sum(trial.works for trial in trials) >= MIN_TRIALS:
                sources.append(Source(", ".join(problem.key.differences(key)), trials))
        nearest = RecordReader("the store").readable(store.get_many(keys[:NEAREST_SEEDS]))
        known = [key for key in keys[:NEAREST_SEEDS] if key in nearest and nearest[key].config in problem.space]
    except StoreError as error:
        log.warning("%s: the search starts without a prior, the store cannot be read: %s", problem.key.kernel, error)
        return Related()
    same = [key for key in known if set(problem.key.differences(key)) == {"source"}]
    chosen = [tuple(nearest[key].config for key in keys) for keys in (same, [key for key in known if key not in same])]
    return Related(Prior(sources), *(tuple(dict.fromkeys(configs)) for configs in chosen))


def describe_seed_benefit(seeds: Sequence[Config], trials: Sequence[Trial]) -> str | None:
    """Returns a sentence about what the seeds saved: how long the search took to do as well without them."""
    times = {trial.config: trial.seconds for trial in trials if trial.works}
    seed_times = [times[seed] for seed in seeds if seed in times]
    if not seed_times:
        return None
    searched = [trial for trial in trials if trial.config not in set(seeds)]
    seed_name = f"the best of {len(seed_times)} seeds" if len(seed_times) > 1 else "its seed"
    for number, trial in enumerate(searched, 1):
        if trial.works and trial.seconds <= min(seed_times):
            return f"the search was as fast as {seed_name} after {number} trials of its own"
    return f"no config of the search was as fast as {seed_name}, in {len(searched)} trials"
