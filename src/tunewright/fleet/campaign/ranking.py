"""Open items ranked by the expected gain of their next portion, so that choosing one does not look at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from tunewright.fleet.campaign.expected_gain import ExpectedGain
from tunewright.fleet.campaign.ledger import ItemState
from tunewright.fleet.campaign.plan import CampaignItem

RANKING_SHARE = 0.02
"""The share of the scheduler's time that may go into ranking all items again, since each result informs the others."""


class ItemRanking:
    """Open items of each device kind, the largest expected gain first.

    A choice costs the logarithm of the items. All are ranked again as often as `RANKING_SHARE` allows: at every choice
    for a few dozen items, every second for ten thousand.
    """

    def __init__(self, states: Mapping[str, ItemState], recorded_seconds: Mapping[str, float]) -> None:
        self._states, self._recorded_seconds = states, recorded_seconds
        self.expected_gain = ExpectedGain(states.values(), recorded_seconds)
        self._heaps: dict[str, list[tuple[float, str]]] = {}
        self._next_ranking = 0.0

    def pop(self, device: str, is_open: Callable[[ItemState], bool]) -> CampaignItem | None:
        """Takes the open item with the largest expected gain for a device kind; None if there is none."""
        if time.monotonic() >= self._next_ranking:
            self._rank()
        heap = self._heaps.get(device, [])
        while heap:
            state = self._states[heappop(heap)[1]]
            if is_open(state):
                return state.item
        return None

    def push(self, state: ItemState) -> None:
        """Ranks an item again after a portion."""
        heap = self._heaps.setdefault(state.item.device, [])
        heappush(heap, (-self.expected_gain.seconds(state), state.item.name))

    def _rank(self) -> None:
        began = time.monotonic()
        self.expected_gain = ExpectedGain(self._states.values(), self._recorded_seconds)
        self._heaps = {}
        for name, state in self._states.items():
            self._heaps.setdefault(state.item.device, []).append((-self.expected_gain.seconds(state), name))
        for heap in self._heaps.values():
            heapify(heap)
        now = time.monotonic()
        self._next_ranking = now + (now - began) / RANKING_SHARE
