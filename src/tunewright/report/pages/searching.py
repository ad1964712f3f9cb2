"""Searching: strategies let loose on what was recorded, side by side, so that one can step through what they try."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

from tunewright.errors import SettingsError, SpaceError
from tunewright.ports import plugins
from tunewright.ports.strategy import Strategy
from tunewright.report.pages import parts
from tunewright.report.pages.explorer import listed
from tunewright.report.pages.frame import Query, Sheet
from tunewright.report.pages.journal import Journal
from tunewright.report.pages.markup import el, href, json_of, link, put
from tunewright.report.pages.views import Views
from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.listed import listed as rule_of
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space

SHOWN = ("random", "anneal", "bayes", "portfolio")
BUDGET, MOST_BUDGET, MOST_SEED = 100, 200, 99
FEWEST, MOST = 20, 20_000
"""Configs that a journal must have to be searched, and that it may have: an answer is waited for."""


def strategies(views: Views, query: Query) -> Sheet:
    """Several strategies on the journal of one key; without one, the list of all."""
    if not query.get("key"):
        about = "Every key that has trials: let strategies search it again, and see what each of them tries."
        return listed(views, "/strategies", "Strategies", about)
    key, seed = views.key(query["key"]), number(query, "seed", 0, MOST_SEED)
    asked = {"key": key.digest, "seed": seed or None}
    near = [
        link(f"All of {key.kernel}", "/kernel", name=key.kernel),
        link("Explore its space", "/explore", key=key.digest),
        link("Another seed", "/strategies", key=key.digest, seed=(seed + 1) % (MOST_SEED + 1)),
    ]
    about = (
        f"{', '.join(SHOWN)}: each searches the recorded trials, {BUDGET} evaluations with seed {seed}. One seed is an "
        "example, no verdict: tunewright replay compares over many."
    )
    data, journal = href("/data/search", **asked), href("/data/journal", key=key.digest)
    drawn = parts.component("searches", data_from=data, data_journal=journal)
    body = el("p", f"{key.device}. {about}", class_="about"), parts.ways(near), drawn
    return Sheet(f"Strategies on {key.kernel} {parts.sizes(key)}", put(body), "/strategies")


def number(query: Query, name: str, otherwise: int, most: int) -> int:
    """A number that a query gives, within bounds."""
    text = query.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 9 else otherwise


def search(views: Views, query: Query) -> str:
    """What each strategy tried, in order, as rows of the journal."""
    read = views.journal(views.key(query.get("key", "")))
    seed, budget = number(query, "seed", 0, MOST_SEED), number(query, "budget", BUDGET, MOST_BUDGET)
    with _one_at_a_time:
        found = traces(_Same(read), SHOWN, seed, budget)
    return json_of({"seed": seed, "best": read.best, "traces": found})


_one_at_a_time = Lock()
"""A search keeps a core busy for seconds; whoever asks meanwhile waits, and others are served."""


class _Same:
    """A journal that is equal to itself alone, so that its searches are remembered."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def __hash__(self) -> int:
        return id(self.journal)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.journal is self.journal


@lru_cache(maxsize=32)
def traces(journal: _Same, names: Sequence[str], seed: int, budget: int) -> list[dict[str, Any]]:
    """The rows that each strategy evaluates."""
    trials = journal.journal.trials
    if len(trials) < FEWEST or not any(trial.works for trial in trials):
        raise SettingsError(f"{len(trials)} configs are too few to search; {FEWEST} are needed, some of which work.")
    if len(trials) > MOST or VARIANT in journal.journal.knobs:
        raise SettingsError(
            f"This space is searched by `tunewright replay`: it has variants, or more than {MOST:,} configs."
        )
    space, rows = _space(journal.journal), {trial.config: row for row, trial in enumerate(trials)}
    found = []
    for name in names:
        strategy: Strategy = plugins.load("strategies", name)(space, np.random.default_rng(seed))
        found.append({"name": name, "rows": _evaluated(strategy, rows, journal.journal, budget)})
    return found


def _evaluated(strategy: Strategy, rows: dict[Config, int], journal: Journal, budget: int) -> list[int]:
    tried: list[int] = []
    while len(tried) < budget and (asked := strategy.ask(1)):
        row = rows[asked[0]]
        strategy.tell([journal.trials[row]])
        tried.append(row)
    return tried


def _space(journal: Journal) -> Space:
    """The space of exactly what was recorded."""
    knobs = [Knob(name, values) for name, values in journal.knobs.items()]
    try:
        return Space(
            *knobs, rules=[rule_of(knobs, (trial.config for trial in journal.trials), "this config was recorded")]
        )
    except KeyError as error:
        raise SpaceError(f"not all configs have the knob {error}; `tunewright replay` searches such spaces") from error
