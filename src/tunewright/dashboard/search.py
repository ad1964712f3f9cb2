"""The strategies page: several strategies search the recorded trials of a key, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

from tunewright.dashboard import components
from tunewright.dashboard.explorer import key_list
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.trial_columns import TrialColumns
from tunewright.dashboard.views import Views
from tunewright.errors import SettingsError, SpaceError
from tunewright.ports import plugins
from tunewright.ports.strategy import Strategy
from tunewright.report.markup import el, href, join_markup, json_text, link
from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.config_list import rule_from_rows
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space

STRATEGIES = ("random", "anneal", "bayes", "portfolio")
BUDGET, MAX_BUDGET, MAX_SEED = 100, 200, 99
MIN_CONFIGS, MAX_CONFIGS = 20, 20_000
"""Limits of the number of configs that are searched while somebody waits."""


def strategies(views: Views, query: Query) -> PageContent:
    """Renders several strategies on the trials of one key, or without a key, the list of keys."""
    if not query.get("key"):
        about = "Every key that has trials: search it again with several strategies, and see what each of them tries."
        return key_list(views, "/strategies", "Strategies", about)
    key, seed = views.key(query["key"]), query_number(query, "seed", 0, MAX_SEED)
    links = [
        link(f"All of {key.kernel}", "/kernel", name=key.kernel),
        link("Explore its space", "/explore", key=key.digest),
        link("Another seed", "/strategies", key=key.digest, seed=(seed + 1) % (MAX_SEED + 1)),
    ]
    about = (
        f"{', '.join(STRATEGIES)}: each searches the recorded trials with {BUDGET} evaluations and seed {seed}. "
        "One seed is only an example; `tunewright replay` compares over many."
    )
    data = href("/data/search", key=key.digest, seed=seed or None)
    searches = components.script_component(
        "searches", data_from=data, data_journal=href("/data/journal", key=key.digest)
    )
    body = el("p", f"{key.device}. {about}", class_="about"), components.link_list(links), searches
    return PageContent(f"Strategies on {key.kernel} {components.argument_sizes(key)}", join_markup(body), "/strategies")


def query_number(query: Query, name: str, default: int, maximum: int) -> int:
    """Returns a number of a query, at most `maximum`."""
    text = query.get(name, "")
    return min(int(text), maximum) if text.isascii() and text.isdigit() and len(text) < 9 else default


def search_data(views: Views, query: Query) -> str:
    """Returns what each strategy tried, in order, as rows of the trial columns."""
    columns = views.trial_columns(views.key(query.get("key", "")))
    seed, budget = query_number(query, "seed", 0, MAX_SEED), query_number(query, "budget", BUDGET, MAX_BUDGET)
    with _search_lock:
        traces = run_strategies(_ByIdentity(columns), STRATEGIES, seed, budget)
    return json_text({"seed": seed, "best": columns.best, "traces": traces})


_search_lock = Lock()
"""Searches run one at a time, since each keeps a core busy for seconds."""


class _ByIdentity:
    """Trial columns that are hashed by identity, so that their searches can be cached."""

    def __init__(self, columns: TrialColumns) -> None:
        self.columns = columns

    def __hash__(self) -> int:
        return id(self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.columns is self.columns


@lru_cache(maxsize=32)
def run_strategies(recorded: _ByIdentity, names: Sequence[str], seed: int, budget: int) -> list[dict[str, Any]]:
    """Returns the rows that each strategy evaluates."""
    columns = recorded.columns
    trials = columns.trials
    if len(trials) < MIN_CONFIGS or not any(trial.works for trial in trials):
        raise SettingsError(
            f"{len(trials)} configs are too few to search: at least {MIN_CONFIGS} are needed, some of which work."
        )
    if len(trials) > MAX_CONFIGS or VARIANT in columns.knobs:
        raise SettingsError(
            f"This space has variants or more than {MAX_CONFIGS:,} configs; search it with `tunewright replay`."
        )
    space, rows = _recorded_space(columns), {trial.config: row for row, trial in enumerate(trials)}
    traces = []
    for name in names:
        strategy: Strategy = plugins.load("strategies", name)(space, np.random.default_rng(seed))
        traces.append({"name": name, "rows": _evaluated_rows(strategy, rows, columns, budget)})
    return traces


def _evaluated_rows(strategy: Strategy, rows: dict[Config, int], columns: TrialColumns, budget: int) -> list[int]:
    evaluated: list[int] = []
    while len(evaluated) < budget and (configs := strategy.ask(1)):
        row = rows[configs[0]]
        strategy.tell([columns.trials[row]])
        evaluated.append(row)
    return evaluated


def _recorded_space(columns: TrialColumns) -> Space:
    """Returns the space of exactly the recorded configs."""
    knobs = [Knob(name, values) for name, values in columns.knobs.items()]
    configs = (trial.config for trial in columns.trials)
    try:
        return Space(*knobs, rules=[rule_from_rows(knobs, configs, "this config was recorded")])
    except KeyError as error:
        raise SpaceError(f"some configs lack the knob {error}; search this space with `tunewright replay`") from error
