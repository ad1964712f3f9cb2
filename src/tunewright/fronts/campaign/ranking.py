"""Ranking: a campaign's open items by what their next portion is worth, so that choosing one does not look at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from tunewright.fronts.campaign.ledger import Standing
from tunewright.fronts.campaign.plan import Item
from tunewright.fronts.campaign.worth import Worth

SHARE = 0.02
"""The part of the driver's time that may go into ranking all items anew, since each that ends teaches about others."""


class Ranking:
    """Open items of each kind of device, the most worthy first.

    A choice costs the logarithm of the items. All are ranked anew as often as `SHARE` allows: at every choice for a
    few dozen items, every second for ten thousand.
    """

    def __init__(self, standings: Mapping[str, Standing], stakes: Mapping[str, float]) -> None:
        self._standings, self._stakes = standings, stakes
        self.worth = Worth(standings.values(), stakes)
        self._heaps: dict[str, list[tuple[float, str]]] = {}
        self._due = 0.0

    def next(self, device: str, is_open: Callable[[Standing], bool]) -> Item | None:
        """The open item of most worth for a kind of device, which is no longer ranked; None if there is none."""
        if time.monotonic() >= self._due:
            self._rank()
        heap = self._heaps.get(device, [])
        while heap:
            standing = self._standings[heappop(heap)[1]]
            if is_open(standing):
                return standing.item
        return None

    def put_back(self, standing: Standing) -> None:
        """Rank an item again after a portion."""
        heappush(self._heaps.setdefault(standing.item.device, []), (-self.worth.of(standing), standing.item.name))

    def _rank(self) -> None:
        began = time.monotonic()
        self.worth = Worth(self._standings.values(), self._stakes)
        self._heaps = {}
        for name, standing in self._standings.items():
            self._heaps.setdefault(standing.item.device, []).append((-self.worth.of(standing), name))
        for heap in self._heaps.values():
            heapify(heap)
        now = time.monotonic()
        self._due = now + (now - began) / SHARE
