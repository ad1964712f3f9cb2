"""Decisions, races and kernels show themselves in at most five lines of plain text, whatever a store says."""

import re

import numpy as np
import pytest

import tunewright as tw
from tunewright import Config
from tunewright.errors import WireError
from tunewright.measure.race import empty_race, replay_race
from tunewright.model.decision import Decision, Evidence, Finalist, Gain, Tier
from tunewright.model.trial import Failure, Kind, Stage
from tunewright.report.summary import MAX_LINES
from tunewright.stores import serialization
from tunewright.testing.keys import DECISION, KEY, other_decision, other_key

NASTY = "<script>alert(1)</script>\x1b[2J\n\n\n\n\nsecond\u202eline"


def lines(value) -> list[str]:
    found = repr(value).split("\n")
    assert len(found) <= MAX_LINES
    assert all(line.isprintable() and len(line) <= 170 for line in found), found
    return found


def evidence(**changes) -> Evidence:
    return Evidence(**{"seconds": 1e-3, "low": 0.99e-3, "high": 1.01e-3, "trials": 7, **changes})


def test_a_decision_says_what_how_fast_against_the_default_and_why() -> None:
    ties = tuple(Finalist(Config(tile=tile), 1e-3, 1e-3, 1e-3) for tile in (8, 9, 10, 11, 12))
    told = evidence(
        default_seconds=2e-3, over_default=Gain(2.0, 1.9, 2.1), failures=2, ties=ties, notes=("first", "second")
    )
    text = "\n".join(lines(Decision(KEY, Config(tile=16), told)))
    for part in ("gemm", "M=512", "tile=16 · 1 ms ±1.0 %", "2.00x (1.9 to 2.1) the default, which took 2 ms"):
        assert part in text
    for part in ("7 trials, 2 failed", "within noise: tile=8, tile=9, tile=10 and 2 more", "first; second"):
        assert part in text


def test_an_inconclusive_gain_is_called_that() -> None:
    told = evidence(default_seconds=1e-3, over_default=Gain(1.01, 0.98, 1.04))
    assert "no clear difference" in repr(Decision(KEY, Config(tile=16), told))


def test_a_default_and_a_neighbor_are_told_apart() -> None:
    assert "nothing is decided" in repr(Decision(KEY, Config(tile=1), tier=Tier.DEFAULT))
    assert "nearest shape" in repr(DECISION.replace(tier=Tier.NEAREST))


def test_nothing_that_a_store_says_breaks_the_lines() -> None:
    odd = evidence(
        seconds=float("nan"), low=float("-inf"), high=float("inf"), default_seconds=float("inf"), notes=(NASTY,) * 9,
        ties=(Finalist(Config(tile=NASTY * 99), -1.0, 0.0, 0.0),), over_default=Gain(float("nan"), 0.0, 1e300),
        strategy=NASTY,
    )  # fmt: skip
    lines(Decision(other_key(kernel=NASTY * 50), Config(tile=NASTY * 50), odd))


def test_a_record_that_cannot_be_read_says_so_instead_of_raising() -> None:
    def fail(body: bytes):
        raise WireError("not JSON")

    assert "cannot be read: not JSON" in repr(Decision.from_body(KEY, b"", fail))


def test_what_is_shown_does_not_change_what_is_stored() -> None:
    body = serialization.encode(DECISION)
    assert serialization.decode(body, Decision) == DECISION
    assert b"default, which" not in body


def test_a_race_says_who_leads_and_how_the_others_compare() -> None:
    samples = [[1.0, 1.1, 1.0] * 8, [2.0, 2.0, 2.1] * 2, [1.0, 1.1, 1.01] * 8]
    text = "\n".join(lines(replay_race(samples, {1: 6}, 0.01)))
    assert text.startswith("race of 3 candidates: number 0 leads with 1 s")
    assert re.search(r"number 1: 1\.98x .* out after round 6", text)
    assert "a tie" in text
    assert "24 rounds" in text


def test_a_race_of_many_or_of_none_stays_short() -> None:
    lines(replay_race([[float(i + 1)] * 8 for i in range(40)], {}, 0.01))
    failed = {0: Failure(Stage.VERIFY, Kind.WRONG, NASTY), 1: Failure(Stage.TIME, Kind.CRASHED, "signal 11")}
    assert "none was timed" in lines(empty_race(2, 0.01, failed))[0]


@pytest.fixture
def triple():
    @tw.tune(
        tw.Space(tw.Knob("step", [1, 2])), session=tw.Session(store="memory:", pool="serial"), reference=lambda x: 3 * x
    )
    def triple(x: tw.In("N"), *, step):
        return 3 * x

    return triple


def decided(kernel, *args) -> None:
    """Store a decision as if the kernel had been tuned."""
    kernel.session.store.put(Decision(kernel.problem(args).key, Config(step=2), evidence(default_seconds=2e-3)))


def test_a_kernel_shows_what_this_process_used_and_nothing_before(triple) -> None:
    assert "nothing is decided in this process yet" in "\n".join(lines(triple))
    for size in (3, 4, 5, 6):
        decided(triple, np.ones(size))
        triple(np.ones(size))
    shown = lines(triple)
    assert shown[0] == "triple: 2 combinations of step; mode tune"
    assert shown[1] == "  1 earlier decision"
    assert [line.split()[0] for line in shown[2:]] == ["N=4", "N=5", "N=6"]
    assert all("step=" in line for line in shown[2:])


def test_showing_a_kernel_measures_and_tunes_nothing(triple) -> None:
    repr(triple)
    triple._repr_html_()
    assert not triple.session.counts
    assert triple.session._store is None, "not even a store is opened"


def test_a_kernel_whose_settings_are_wrong_can_still_be_shown(monkeypatch) -> None:
    monkeypatch.setenv("TUNEWRIGHT_MODE", "nonsense")
    kernel = tw.tune(tw.Space(tw.Knob("step", [1])))(lambda x, *, step: x)
    assert "no mode 'nonsense'" in repr(kernel)


def test_a_default_that_was_served_is_shown_as_one(triple) -> None:
    triple.using(tw.Session(store="memory:", mode="off"))
    triple(np.ones(3))
    assert "step=1 (default)" in repr(triple)
    assert "4.00x" in repr(other_decision(tier=Tier.EXACT))
