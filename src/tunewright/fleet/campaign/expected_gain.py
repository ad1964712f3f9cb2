"""Expected gain of an item's next portion: the seconds at stake times the share that may still be saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from tunewright.fleet.campaign.ledger import ItemState

PRIOR_SHARE = 0.3
"""The share of its time that tuning is assumed to save, where nothing is known of a kernel."""

PRIOR_WEIGHT = 2
"""The number of items the prior counts for."""

DECAY = 0.5
"""What the next portion is expected to save against the last, where the strategy has no forecast."""

DEFAULT_CALL_SECONDS = 1e-3
"""Seconds that a call is assumed to take while no call of any item was timed."""


def saved_share(state: ItemState) -> float | None:
    """Returns the share of its time that an item's calls no longer need; None if its gain is unknown."""
    return max(0.0, 1 - 1 / state.gain) if state.gain else None


class ExpectedGain:
    """Estimates what portions save, from the states of all items of a campaign."""

    def __init__(self, states: Iterable[ItemState], recorded_seconds: Mapping[str, float]) -> None:
        self._recorded_seconds = recorded_seconds
        shares: dict[str, list[float]] = {}
        times: dict[str, list[float]] = {}
        for state in states:
            if (share := saved_share(state)) is not None:
                shares.setdefault(state.item.kernel, []).append(share)
            if state.default_seconds:
                times.setdefault(state.item.kernel, []).append(state.default_seconds)
        all_shares = [share for kernel_shares in shares.values() for share in kernel_shares]
        self._mean_share = (PRIOR_SHARE * PRIOR_WEIGHT + sum(all_shares)) / (PRIOR_WEIGHT + len(all_shares))
        self._shares, self._times = shares, times
        all_times = [seconds for kernel_times in times.values() for seconds in kernel_times]
        self._median_time = median(all_times or [DEFAULT_CALL_SECONDS])

    def seconds_at_stake(self, state: ItemState) -> float:
        """Seconds that all calls of an item take: as programs recorded, else calls times the seconds of one."""
        if (recorded := self._recorded_seconds.get(state.item.name)) is not None:
            return recorded
        seconds = state.default_seconds or median(self._times.get(state.item.kernel, [self._median_time]))
        return state.item.calls * seconds

    def share(self, state: ItemState) -> float:
        """The share of the item's time that its next portion is expected to save."""
        if not state.portions:
            shares = self._shares.get(state.item.kernel, [])
            return (self._mean_share * PRIOR_WEIGHT + sum(shares)) / (PRIOR_WEIGHT + len(shares))
        if state.remains is not None:
            return state.remains
        return self._mean_share * DECAY**state.portions

    def seconds(self, state: ItemState) -> float:
        """Seconds that the item's next portion is expected to save."""
        left = 1 - (saved_share(state) or 0.0)
        return self.seconds_at_stake(state) * left * self.share(state)
