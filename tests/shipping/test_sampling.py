"""Bounds that are checked against counting, not against themselves."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunewright.shipping.sampling import (
    binomial_tail,
    draw_order,
    max_bad_share,
    miss_probability,
    sign_test_threshold,
    summarize_sample,
)


def test_none_found_bounds_the_share_as_tables_say() -> None:
    assert max_bad_share(0, 10) == pytest.approx(1 - 0.05**0.1)
    assert max_bad_share(0, 59) < 0.05 < max_bad_share(0, 58)
    assert max_bad_share(2, 20) == pytest.approx(0.2826, abs=1e-4)  # one-sided, Clopper and Pearson
    assert max_bad_share(5, 5) == 1.0
    assert max_bad_share(0, 0) == max_bad_share(0, 0, 100) == 1.0


def test_a_sample_without_replacement_says_more_and_all_of_them_say_everything() -> None:
    assert max_bad_share(0, 50, 100) < max_bad_share(0, 50, 10**6) <= max_bad_share(0, 50) + 1e-6
    assert max_bad_share(3, 100, 100) == 0.03
    assert max_bad_share(0, 1000, 1000) == 0.0
    assert max_bad_share(100, 100, 100) == 1.0


def test_the_bound_fails_no_more_often_than_it_says_by_counting_every_sample() -> None:
    entries, drawn = 12, 5
    for wrong in range(entries + 1):
        samples = list(combinations(range(entries), drawn))
        failed = sum(
            max_bad_share(sum(i < wrong for i in sample), drawn, entries) < wrong / entries for sample in samples
        )
        assert failed / len(samples) <= 0.05, wrong


@given(st.integers(1, 40), st.integers(0, 40), st.floats(0, 1))
def test_the_tail_is_that_of_the_binomial(drawn, bad, share) -> None:
    exact = sum(comb(drawn, k) * share**k * (1 - share) ** (drawn - k) for k in range(min(bad, drawn) + 1))
    assert binomial_tail(min(bad, drawn), drawn, share) == pytest.approx(exact, abs=1e-9)


def test_the_chance_to_miss_is_what_draws_show() -> None:
    rng, entries, drawn = np.random.default_rng(0), 200, 30
    missed = np.mean([(rng.permutation(entries)[:drawn] >= 10).all() for _ in range(20_000)])
    assert miss_probability(drawn, entries, 0.05) == pytest.approx(missed, abs=0.01)
    assert miss_probability(200, 200, 0.005) == 0.0
    assert miss_probability(0, 200, 0.2) == 1.0


@pytest.mark.parametrize("level", [0.05, 1e-3, 5e-5])
def test_a_sign_test_raises_no_more_false_alarms_than_its_level(level) -> None:
    rounds = 36
    least = sign_test_threshold(rounds, level)
    chances = [comb(rounds, k) / 2**rounds for k in range(rounds + 1)]
    assert sum(chances[least:]) <= level < sum(chances[least - 1 :])
    assert sign_test_threshold(3, 1e-6) == 4  # three rounds can never say so much


def test_suspects_come_first_and_the_rest_in_an_order_that_the_seed_alone_decides() -> None:
    suspicion = [0.0, 2.0, 0.0, 1.0, 0.0, 0.0]
    suspects, order = draw_order(suspicion, 7)
    assert suspects == [1, 3]
    assert sorted(order) == [0, 2, 4, 5]
    assert draw_order(suspicion, 7) == (suspects, order)
    firsts = [draw_order([0.0] * 4, seed)[1][0] for seed in range(2000)]
    assert all(abs(firsts.count(i) - 500) < 100 for i in range(4))


def test_a_statement_can_be_read() -> None:
    said = str(summarize_sample(0, 59, 1000))
    assert said.startswith(
        "59 of 1000 entries raced again, 0 bad: at most 4.8 % of all entries are bad (95 % confidence)"
    )
    assert "0.5 %: 0.74" in said
