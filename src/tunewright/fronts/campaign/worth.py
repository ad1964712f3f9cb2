"""Worth: where the next portion of trials pays most: time at stake times what may still be gained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from tunewright.fronts.campaign.ledger import Standing

GUESS = 0.3
"""The share of its time that tuning is taken to save, where nothing is known of a kernel."""

WEIGHT = 2
"""How many items' evidence the guess counts for."""

FADES = 0.5
"""What the next portion is expected to gain against the last, where the strategy itself foresees nothing."""

USUAL_SECONDS = 1e-3
"""What a call is taken to need while no call of any item was timed."""


def share(standing: Standing) -> float | None:
    """The part of its time that an item's calls no longer need."""
    return max(0.0, 1 - 1 / standing.gain) if standing.gain else None


class Worth:
    """What portions are worth to a campaign's items, by all that was found so far."""

    def __init__(self, standings: Iterable[Standing], stakes: Mapping[str, float]) -> None:
        self._stakes = stakes
        shares: dict[str, list[float]] = {}
        times: dict[str, list[float]] = {}
        for standing in standings:
            if (found := share(standing)) is not None:
                shares.setdefault(standing.item.kernel, []).append(found)
            if standing.default_seconds:
                times.setdefault(standing.item.kernel, []).append(standing.default_seconds)
        everywhere = [one for found in shares.values() for one in found]
        self._overall = (GUESS * WEIGHT + sum(everywhere)) / (WEIGHT + len(everywhere))
        self._shares, self._times = shares, times
        self._usual = median([one for found in times.values() for one in found] or [USUAL_SECONDS])

    def stake(self, standing: Standing) -> float:
        """Seconds that all calls of an item take: as programs noted, else calls times what one is known to need."""
        if (noted := self._stakes.get(standing.item.name)) is not None:
            return noted
        own = standing.default_seconds or median(self._times.get(standing.item.kernel, [self._usual]))
        return standing.item.calls * own

    def expected(self, standing: Standing) -> float:
        """The share of its time that the next portion is expected to save."""
        if not standing.portions:
            found = self._shares.get(standing.item.kernel, [])
            return (self._overall * WEIGHT + sum(found)) / (WEIGHT + len(found))
        if standing.remains is not None:
            return standing.remains
        return self._overall * FADES**standing.portions

    def of(self, standing: Standing) -> float:
        """Seconds that the next portion is expected to save."""
        left = 1 - (share(standing) or 0.0)
        return self.stake(standing) * left * self.expected(standing)
