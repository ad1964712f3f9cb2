"""Sampling: what a few entries, raced again, say of all; exact, whatever the sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, comb, exp, lgamma, log, log1p

import msgspec
import numpy as np
from numpy.typing import NDArray

SURE = 0.95
"""How often a bound holds, and how often a run of healthy entries raises no alarm at all."""

SHARES = (0.005, 0.01, 0.05, 0.2)
"""Shares of bad entries for which the chance to miss them all is told."""


class Statement(msgspec.Struct, frozen=True):
    """What was drawn and found, and what follows: with `sure`, at most the share `most` of all is bad.

    `missed` is the chance that a sample of this size meets none, if the share named is bad.
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
            f"{self.drawn} of {self.entries} entries raced again, {self.bad} went bad: "
            f"at most {100 * self.most:.2g} % of entries may have ({100 * self.sure:g} %). "
            f"The chance to miss all bad ones, if they are {chances}"
        )


def statement(bad: int, drawn: int, entries: int, sure: float = SURE) -> Statement:
    """What a random sample of `drawn` of so many entries says."""
    missed = {f"{100 * share:g}": miss(drawn, entries, share) for share in SHARES}
    return Statement(entries, drawn, bad, most(bad, drawn, entries, sure), sure, missed)


def most(bad: int, drawn: int, entries: int | None = None, sure: float = SURE) -> float:
    """The largest share of bad entries with which so few, or fewer, are found with a chance of more than 1 - `sure`.

    Exact: hypergeometric for a sample without replacement of so many entries, else binomial (Clopper and Pearson,
    1934). With nothing drawn, nothing is excluded.
    """
    if drawn == 0:
        return 1.0
    if entries is None:
        return _bisected(bad, drawn, sure)
    low, high = bad, entries - (drawn - bad)  # the second is what the good ones that were seen leave
    while low < high:  # the chance falls as there are more bad ones
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _few(bad, drawn, middle, entries) > 1 - sure else (low, middle - 1)
    return low / entries


def _bisected(bad: int, drawn: int, sure: float) -> float:
    """The share by halving, where the binomial tail is 1 - `sure`; to the last bit that matters."""
    if bad >= drawn:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(bad, drawn, middle) > 1 - sure else (low, middle)
    return high


def tail(bad: int, drawn: int, share: float) -> float:
    """The chance of at most `bad` in so many independent draws."""
    if share <= 0 or share >= 1:
        return 1.0 if share <= 0 or bad >= drawn else 0.0
    counts = np.arange(bad + 1)
    return _summed(_chosen(drawn, counts) + counts * log(share) + (drawn - counts) * log1p(-share))


def _few(bad: int, drawn: int, wrong: int, entries: int) -> float:
    """The chance of at most `bad` in a sample without replacement, if so many of the entries are bad."""
    counts = np.arange(max(0, drawn - (entries - wrong)), min(bad, wrong) + 1)
    return _summed(_chosen(wrong, counts) + _chosen(entries - wrong, drawn - counts) - _choices(entries, drawn))


def miss(drawn: int, entries: int, share: float) -> float:
    """The chance that a sample of that size meets none of the bad ones, if they are that share of the entries."""
    return _few(0, drawn, min(entries, ceil(share * entries)), entries)


def _choices(size: int, count: int) -> float:
    return lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)


def _chosen(size: int, counts: NDArray[np.int_]) -> NDArray[np.float64]:
    """Logarithms of how many ways there are to choose."""
    return np.array([_choices(size, int(count)) for count in counts])


def _summed(logs: NDArray[np.float64]) -> float:
    return min(1.0, float(sum(exp(one) for one in logs)))


def needed(rounds: int, level: float) -> int:
    """In how many rounds one must be slower than another for a chance of `level` at most, if it is not.

    The sign test: if it is slower in no more than half of all rounds there could be, so many of these happen by chance
    with at most that probability, whatever the times are distributed like. More than `rounds` if no number is enough.
    """
    ways = 0
    for count in range(rounds, -1, -1):
        ways += comb(rounds, count)
        if ways > level * 2.0**rounds:
            return count + 1
    return 0


def draw(suspicion: Sequence[float], seed: int) -> tuple[list[int], list[int]]:
    """In which order to look: suspects, the worst first, and everyone else at random.

    Suspects are no sample of anything. Only of the others does a random order say something about those not reached.
    """
    order = np.random.default_rng(seed).permutation(len(suspicion)).tolist()
    suspects = sorted((i for i in order if suspicion[i] > 0), key=lambda i: -suspicion[i])
    return suspects, [i for i in order if not suspicion[i] > 0]
