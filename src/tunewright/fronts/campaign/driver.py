"""Driver: gives portions of trials to devices, each to the item where it pays most, until the budget is spent."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, Protocol

import msgspec

from tunewright.fronts.campaign.ledger import Ledger, Quarantined, Standing
from tunewright.fronts.campaign.plan import HERE, Item, Plan
from tunewright.fronts.campaign.ranking import Ranking
from tunewright.fronts.campaign.work import Order, Outcome, here, pace, worked
from tunewright.remarks import Remarks

log = Remarks(__name__)

SLOW = 1.25
"""How many times slower than others of its kind a device may be."""

FEWEST = 3
"""Devices of a kind below which nobody can say which of them is the slow one."""

MOST_LOSSES = 8
"""Machines lost with an item in a row, no trial between them, after which it is taken to be the item's doing."""


class Seat(msgspec.Struct, frozen=True):
    """A device that works for the campaign."""

    name: str
    device: str


class Lost(msgspec.Struct, frozen=True):
    """A machine that is gone with what it was given."""

    reason: str


class Seats(Protocol):
    """The devices of a campaign."""

    def free(self) -> list[Seat]:
        """Those that have nothing to do."""
        ...

    def give(self, seat: Seat, order: Order) -> None:
        """Let a device work on a portion."""
        ...

    def results(self) -> Iterator[tuple[Item, Outcome | Lost]]:
        """What has come to an end; waits for the first."""
        ...

    def paces(self, order: Order) -> dict[Seat, float]:
        """What the same work takes on each device that is wanted for the item's kind."""
        ...

    def close(self) -> None:
        """Let all go."""
        ...


class Here:
    """This machine's one device: each portion is done at once, in this process."""

    def __init__(self) -> None:
        self._done: list[tuple[Item, Outcome | Lost]] = []

    def free(self) -> list[Seat]:
        """The one device, if it has nothing to do."""
        return [] if self._done else [Seat(here(), HERE)]

    def give(self, seat: Seat, order: Order) -> None:
        """Work on a portion now."""
        self._done.append((order.item, worked(order)))

    def results(self) -> Iterator[tuple[Item, Outcome | Lost]]:
        """The one result."""
        while self._done:
            yield self._done.pop()

    def paces(self, order: Order) -> dict[Seat, float]:
        """What the work takes here."""
        found = pace(order)
        return {} if found is None else {Seat(here(), HERE): found}

    def close(self) -> None:
        """Nothing to let go."""


class Watch(Protocol):
    """Whoever looks on while a campaign runs."""

    def gave(self, seat: Seat, order: Order) -> None:
        """A device was given a portion."""
        ...

    def took(self, standing: Standing, outcome: Outcome | Lost) -> None:
        """A portion came to its end."""
        ...


class Driver:
    """One run of a campaign, which may be its first or may go on where another was killed."""

    def __init__(self, plan: Plan, ledger: Ledger, seats: Seats, watch: Watch) -> None:
        self.plan, self.ledger, self.seats, self._watch = plan, ledger, seats, watch
        self._ranking = Ranking(ledger.standings, ledger.stakes())
        self._out: dict[str, int] = {}
        self._granted_out = 0

    def order(self, item: Item, trials: int) -> Order:
        """A portion for an item."""
        most = self.plan.most.seconds
        left = None if most is None else max(1.0, most - self.ledger.seconds)
        settings: dict[str, Any] = {**self.plan.settings, "worth": self.plan.worth}
        return Order(item, trials, left, settings, list(sys.path))

    def run(self) -> None:
        """Give out portions until nothing is worth one, or all is spent."""
        try:
            slow = self._slow()
            while True:
                for seat in self.seats.free():
                    if seat.name not in slow and (item := self._next(seat)) is not None:
                        self._give(seat, item)
                if not self._out:
                    return
                for item, outcome in self.seats.results():
                    self._take(item, outcome)
        finally:
            self.seats.close()

    def _slow(self) -> set[str]:
        """Devices that are out, because they do the same work more slowly than others of their kind."""
        found: list[Quarantined] = []
        for device in self.plan.devices:
            item = next(item for item in self.plan.items if item.device == device)
            paces = self.seats.paces(self.order(item, 1))
            found += slow_ones(paces)
        self.ledger.quarantine(found)
        for one in found:
            log.warning("quarantined: %s", one.said)
        return {one.where for one in found}

    def _next(self, seat: Seat) -> Item | None:
        """The item that the device should work on now; None if nothing is left for it, or all is spent."""
        if not self._granted():
            return None
        return self._ranking.next(seat.device, self._is_open)

    def _is_open(self, standing: Standing) -> bool:
        return not (standing.ended or standing.failed or standing.item.name in self._out)

    def _granted(self) -> int:
        """Trials that may be given out now."""
        most = self.plan.most
        if most.seconds is not None and self.ledger.seconds >= most.seconds:
            return 0
        if most.trials is None:
            return self.plan.portion
        return max(0, min(self.plan.portion, most.trials - self.ledger.tried - self._granted_out))

    def _give(self, seat: Seat, item: Item) -> None:
        trials = self._granted()
        self._out[item.name] = trials
        self._granted_out += trials
        self.ledger.begin(item)
        order = self.order(item, trials)
        self._watch.gave(seat, order)
        self.seats.give(seat, order)

    def _take(self, item: Item, outcome: Outcome | Lost) -> None:
        self._granted_out -= self._out.pop(item.name)
        standing = self.ledger.standings[item.name]
        if isinstance(outcome, Lost):
            lost, luckless = standing.lost + 1, standing.luckless + 1
            self.ledger.settle(msgspec.structs.replace(standing, lost=lost, luckless=luckless))
            standing = self.ledger.standings[item.name]
            if standing.luckless >= MOST_LOSSES:
                said = f"{standing.luckless} machines in a row were lost with it; last: {outcome.reason}"
                self.ledger.note(msgspec.structs.replace(standing, failed=said))
        else:
            standing = standing.after(outcome)
            ended = standing.ended or self._ranking.worth.expected(standing) < self.plan.worth
            self.ledger.note(msgspec.structs.replace(standing, ended=ended))
        standing = self.ledger.standings[item.name]
        if self._is_open(standing):
            self._ranking.put_back(standing)
        self._watch.took(standing, outcome)


def slow_ones(paces: dict[Seat, float]) -> list[Quarantined]:
    """Of devices of one kind that did the same work, those that are clearly slower than the most."""
    if len(paces) < FEWEST:
        return []
    usual = median(paces.values())
    now = time.time()
    return [
        Quarantined(seat.name, seat.device, seconds, usual, now)
        for seat, seconds in paces.items()
        if seconds > SLOW * usual
    ]
