"""Journals in columns, and strategies let loose on them."""

import json
from itertools import combinations, product

import numpy as np
import pytest
from sample_store import BEST, REFUSED, SPACE, TRIALS, filled, key

from tunewright import Config
from tunewright.dashboard import PAGES, Views, trial_columns
from tunewright.dashboard.trial_columns import TrialColumns
from tunewright.model.trial import Timing, Trial
from tunewright.stores.memory import MemoryStore

DIGEST = key().digest


def told(path="/data/journal", **query):
    answered = PAGES[path](Views(filled(MemoryStore())), {"key": DIGEST, **query})
    return answered.status, json.loads(answered.html)


def test_a_browser_gets_every_config_with_its_time_or_its_reason() -> None:
    _, data = told()
    assert [knob["name"] for knob in data["knobs"]] == ["order", "tile", "unroll"]
    assert data["configs"] == len(TRIALS)
    rows = zip(*data["codes"], data["seconds"], data["failed"], strict=True)
    for one, (*codes, seconds, failed) in zip(TRIALS, rows, strict=True):
        config = {knob["name"]: knob["values"][code] for knob, code in zip(data["knobs"], codes, strict=True)}
        assert config == dict(one.config)
        if one.works:
            assert seconds == pytest.approx(one.seconds, rel=1e-4)
            assert failed == -1
        else:
            assert seconds is None
            assert data["reasons"][failed] == f"refused at build: {REFUSED}"


def test_it_says_how_rare_the_best_are_and_what_was_decided() -> None:
    _, data = told()
    assert data["best"] == pytest.approx(BEST.seconds)
    times = [one.seconds for one in TRIALS if one.works]
    assert data["within"]["25"] == sum(time <= 1.25 * min(times) for time in times)
    chosen = {knob["name"]: knob["values"][code] for knob, code in zip(data["knobs"], data["chosen"], strict=True)}
    assert chosen == dict(BEST.config)


def test_knobs_can_be_fixed() -> None:
    _, data = told(**{"fix.tile": "32", "fix.order": "ij"})
    assert len(data["seconds"]) == sum(one.config["tile"] == 32 and one.config["order"] == "ij" for one in TRIALS)
    assert told(**{"fix.tile": "nope"})[1]["seconds"] == []
    assert len(told(**{"fix.nope": "32"})[1]["seconds"]) == len(TRIALS)


def test_of_too_many_configs_those_are_sent_that_keep_every_heat_map_exact(monkeypatch) -> None:
    monkeypatch.setattr(trial_columns, "MAX_SENT", 150)
    rng = np.random.default_rng(1)
    configs = [Config(a=a, b=b, c=c) for a, b, c in product(range(8), range(6), range(10))]
    read = TrialColumns.of((Trial(one, Timing((float(rng.random()),))) for one in configs), len(configs))
    rows = read.selected_rows({})
    assert len(rows) < len(configs)
    for one, other in combinations(range(3), 2):

        def least(rows, one=one, other=other):
            found = {}
            for row in rows:
                place = (read.codes[row, one], read.codes[row, other])
                found[place] = min(found.get(place, np.inf), read.seconds[row])
            return found

        assert least(rows) == least(range(len(configs)))
    assert read.plain({})["whole"] is False


def test_the_last_trial_of_a_config_holds() -> None:
    again = [Trial(TRIALS[0].config, Timing((1.0,))), Trial(TRIALS[0].config, Timing((2.0,)))]
    read = TrialColumns.of(again, 2)
    assert (len(read.trials), read.total, read.best) == (1, 2, 2.0)


def test_variants_leave_holes() -> None:
    read = TrialColumns.of(
        [Trial(Config(variant="a", x=1), Timing((1.0,))), Trial(Config(variant="b", y=2), Timing((2.0,)))], 2
    )
    assert sorted(read.codes.ravel().tolist()) == [-1, -1, 0, 0, 0, 1]


def test_strategies_search_what_was_recorded_and_the_same_seed_tries_the_same() -> None:
    status, data = told("/data/search", budget="15", seed="3")
    assert status == 200
    assert [trace["name"] for trace in data["traces"]] == ["random", "anneal", "bayes", "portfolio"]
    for trace in data["traces"]:
        assert len(trace["rows"]) == len(set(trace["rows"])) == 15
        assert set(trace["rows"]) <= set(range(len(TRIALS)))
    assert told("/data/search", budget="15", seed="3")[1] == data
    assert told("/data/search", budget="15", seed="4")[1] != data


def test_what_cannot_be_searched_is_said_so() -> None:
    store = MemoryStore()
    store.record(key(), TRIALS[:5])
    answered = PAGES["/data/search"](Views(store), {"key": DIGEST})
    assert answered.status == 400
    assert "too few to search" in json.loads(answered.html)["error"]


@pytest.mark.parametrize("seed", ["", "-1", "x", "9" * 30, "²"])
def test_a_seed_that_is_none_is_no_trouble(seed) -> None:
    assert told("/data/search", budget="3", seed=seed)[0] == 200


def test_the_space_searched_is_what_was_recorded() -> None:
    assert len(SPACE) == len(TRIALS)
