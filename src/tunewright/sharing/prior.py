"""Prior: what the store knows that may help a search before its first trial."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.errors import StoreError
from tunewright.model.decision import Problem
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.ports.strategy import Prior, Source
from tunewright.remarks import Remarks
from tunewright.sharing.nearby import apart
from tunewright.spaces.config import Config

log = Remarks(__name__)

SOURCES = 6
FEWEST = 8
"""Trials below which a journal is no source."""

NEIGHBOURS = 3
"""How many of the nearest decisions are tried first."""


def gathered(store: Store, problem: Problem) -> tuple[Prior, tuple[Config, ...]]:
    """Trials of the same kernel under other keys, nearest first, and the configs that were chosen there.

    Reads the keys of one kernel and the journals of the few nearest.
    """
    try:
        keys = [key for key in store.keys(problem.key.kernel) if key != problem.key]
        keys.sort(key=lambda key: (*apart(problem.key, key), key.digest))
        sources: list[Source] = []
        for key in keys:
            if len(sources) == SOURCES:
                break
            trials = [trial for trial in store.trials(key) if trial.config in problem.space]
            if sum(trial.works for trial in trials) >= FEWEST:
                sources.append(Source(", ".join(problem.key.differences(key)), trials))
        chosen = store.get_many(keys[:NEIGHBOURS])
        seeds = [chosen[key].config for key in keys[:NEIGHBOURS] if key in chosen]
    except StoreError as error:
        log.warning("%s: the search starts from nothing, since the store cannot be read: %s", problem.key.kernel, error)
        return Prior(), ()
    return Prior(sources), tuple(dict.fromkeys(seed for seed in seeds if seed in problem.space))


def saving(seeds: Sequence[Config], trials: Sequence[Trial]) -> str | None:
    """What starting from seeds saved, in words: how long the search took to do as well without them."""
    timed = {trial.config: trial.seconds for trial in trials if trial.works}
    found = [timed[seed] for seed in seeds if seed in timed]
    if not found:
        return None
    own = [trial for trial in trials if trial.config not in set(seeds)]
    whom = f"the best of {len(found)} seeds" if len(found) > 1 else "its seed"
    for number, trial in enumerate(own, 1):
        if trial.works and trial.seconds <= min(found):
            return f"the search was as fast as {whom} after {number} trials of its own"
    return f"nothing that the search tried was as fast as {whom}, in {len(own)} trials"
