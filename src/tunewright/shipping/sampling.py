"""Exact statistics of a sample of entries: how many of all may be bad, and the sign test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, comb, exp, lgamma, log, log1p

import msgspec
import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
"""How often a bound holds, and how often a check of good entries raises no false alarm."""

REPORTED_SHARES = (0.005, 0.01, 0.05, 0.2)
"""Shares of bad entries for which the chance to miss them all is reported."""


class SampleStatement(msgspec.Struct, frozen=True):
    """The counts of a sample, and what follows: with confidence `sure`, at most the share `most` of all is bad.

    `missed` is the chance that a sample of this size has no bad entry, by the share of bad entries.
    """

    entries: int
    drawn: int
    bad: int
    most: float
    sure: float
    missed: Mapping[str, float]

    def __str__(self) -> str:
        chances = ", ".join(f"{share} %: {chance:.2g}" for share, chance in self.missed.items())
        return (
            f"{self.drawn} of {self.entries} entries raced again, {self.bad} bad: "
            f"at most {100 * self.most:.2g} % of all entries are bad ({100 * self.sure:g} % confidence). "
            f"Chance to miss all bad entries, by their share: {chances}"
        )


def summarize_sample(bad: int, drawn: int, entries: int, sure: float = CONFIDENCE) -> SampleStatement:
    """Returns what a random sample of `drawn` of so many entries says."""
    missed = {f"{100 * share:g}": miss_probability(drawn, entries, share) for share in REPORTED_SHARES}
    return SampleStatement(entries, drawn, bad, max_bad_share(bad, drawn, entries, sure), sure, missed)


def max_bad_share(bad: int, drawn: int, entries: int | None = None, sure: float = CONFIDENCE) -> float:
    """Returns the upper confidence bound of the share of bad entries, if `bad` of `drawn` are.

    Exact: hypergeometric for a sample without replacement of so many entries, else binomial (Clopper and Pearson,
    1934). 1 if nothing was drawn.
    """
    if drawn == 0:
        return 1.0
    if entries is None:
        return _binomial_bound(bad, drawn, sure)
    low, high = bad, entries - (drawn - bad)  # at most what the good ones drawn leave
    while low < high:  # the chance falls with the number of bad ones
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if _hypergeometric_tail(bad, drawn, middle, entries) > 1 - sure else (low, middle - 1)
        )
    return low / entries


def _binomial_bound(bad: int, drawn: int, sure: float) -> float:
    """Returns the share where the binomial tail is 1 - `sure`, by bisection."""
    if bad >= drawn:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(bad, drawn, middle) > 1 - sure else (low, middle)
    return high


def binomial_tail(bad: int, drawn: int, share: float) -> float:
    """Returns the chance of at most `bad` in so many independent draws."""
    if share <= 0 or share >= 1:
        return 1.0 if share <= 0 or bad >= drawn else 0.0
    counts = np.arange(bad + 1)
    return _sum_of_exp(_log_binomials(drawn, counts) + counts * log(share) + (drawn - counts) * log1p(-share))


def _hypergeometric_tail(bad: int, drawn: int, wrong: int, entries: int) -> float:
    """Returns the chance of at most `bad` in a sample without replacement, if `wrong` of the entries are bad."""
    counts = np.arange(max(0, drawn - (entries - wrong)), min(bad, wrong) + 1)
    return _sum_of_exp(
        _log_binomials(wrong, counts) + _log_binomials(entries - wrong, drawn - counts) - _log_binomial(entries, drawn)
    )


def miss_probability(drawn: int, entries: int, share: float) -> float:
    """Returns the chance that a sample has no bad entry, if that share of the entries is bad."""
    return _hypergeometric_tail(0, drawn, min(entries, ceil(share * entries)), entries)


def _log_binomial(size: int, count: int) -> float:
    return lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)


def _log_binomials(size: int, counts: NDArray[np.int_]) -> NDArray[np.float64]:
    """Returns the logarithms of binomial coefficients."""
    return np.array([_log_binomial(size, int(count)) for count in counts])


def _sum_of_exp(logs: NDArray[np.float64]) -> float:
    return min(1.0, float(sum(exp(value) for value in logs)))


def sign_test_threshold(rounds: int, level: float) -> int:
    """Returns in how many rounds a config must be slower than another to be called slower at this level.

    The sign test: if it is slower with a chance of one half at most, so many slower rounds happen with at most the
    probability `level`, whatever the distribution of times. More than `rounds` if no number is enough.
    """
    ways = 0
    for count in range(rounds, -1, -1):
        ways += comb(rounds, count)
        if ways > level * 2.0**rounds:
            return count + 1
    return 0


def draw_order(suspicion: Sequence[float], seed: int) -> tuple[list[int], list[int]]:
    """Returns the order of suspects, the worst first, and a random order of all others.

    Only the random order says something about the entries not reached.
    """
    order = np.random.default_rng(seed).permutation(len(suspicion)).tolist()
    suspects = sorted((i for i in order if suspicion[i] > 0), key=lambda i: -suspicion[i])
    return suspects, [i for i in order if not suspicion[i] > 0]
