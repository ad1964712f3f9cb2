"""The campaign scheduler: gives portions to devices, each to the item that gains most, until the budget is spent."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, Protocol

import msgspec

from tunewright.fleet.campaign.ledger import CampaignLedger, ItemState, SlowDevice
from tunewright.fleet.campaign.plan import HERE, CampaignItem, CampaignPlan
from tunewright.fleet.campaign.portion import PortionRequest, PortionResult, process_name, run_portion, time_default
from tunewright.fleet.campaign.ranking import ItemRanking
from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)

SLOW_RATIO = 1.25
"""How many times slower than others of its kind a device may be."""

MIN_DEVICES = 3
"""Devices of a kind below which no one can tell which of them is slow."""

MAX_LOSSES = 8
"""Machines lost in a row with an item, without a trial between, after which the item is blamed."""


class CampaignDevice(msgspec.Struct, frozen=True):
    """A device that works for the campaign: its name and its kind."""

    name: str
    device: str


class MachineLost(msgspec.Struct, frozen=True):
    """The end of a portion whose machine was lost."""

    reason: str


class DevicePool(Protocol):
    """The devices of a campaign."""

    def free(self) -> list[CampaignDevice]:
        """Returns the devices without work."""
        ...

    def submit(self, device: CampaignDevice, request: PortionRequest) -> None:
        """Starts a portion on a device."""
        ...

    def results(self) -> Iterator[tuple[CampaignItem, PortionResult | MachineLost]]:
        """Yields finished portions; waits for the first."""
        ...

    def time_defaults(self, request: PortionRequest) -> dict[CampaignDevice, float]:
        """Returns the seconds of the same work on each device of the item's kind."""
        ...

    def close(self) -> None:
        """Releases all devices."""
        ...


class LocalDevice:
    """This machine's one device: each portion runs at once, in this process."""

    def __init__(self) -> None:
        self._results: list[tuple[CampaignItem, PortionResult | MachineLost]] = []

    def free(self) -> list[CampaignDevice]:
        """Returns the one device, if it has no work."""
        return [] if self._results else [CampaignDevice(process_name(), HERE)]

    def submit(self, device: CampaignDevice, request: PortionRequest) -> None:
        """Runs a portion now."""
        self._results.append((request.item, run_portion(request)))

    def results(self) -> Iterator[tuple[CampaignItem, PortionResult | MachineLost]]:
        """Yields the one result."""
        while self._results:
            yield self._results.pop()

    def time_defaults(self, request: PortionRequest) -> dict[CampaignDevice, float]:
        """Returns the seconds of the work here."""
        seconds = time_default(request)
        return {} if seconds is None else {CampaignDevice(process_name(), HERE): seconds}

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


class CampaignObserver(Protocol):
    """Told about every portion while a campaign runs."""

    def portion_started(self, device: CampaignDevice, request: PortionRequest) -> None:
        """A device was given a portion."""
        ...

    def portion_finished(self, state: ItemState, result: PortionResult | MachineLost) -> None:
        """A portion ended."""
        ...


class CampaignScheduler:
    """One run of a campaign: the first, or one that continues where another was killed."""

    def __init__(
        self, plan: CampaignPlan, ledger: CampaignLedger, devices: DevicePool, observer: CampaignObserver
    ) -> None:
        self.plan, self.ledger, self.devices, self._observer = plan, ledger, devices, observer
        self._ranking = ItemRanking(ledger.states, ledger.recorded_seconds())
        self._in_progress: dict[str, int] = {}
        self._trials_out = 0

    def make_request(self, item: CampaignItem, trials: int) -> PortionRequest:
        """Returns a portion for an item."""
        limit = self.plan.max_budget.seconds
        left = None if limit is None else max(1.0, limit - self.ledger.seconds)
        settings: dict[str, Any] = {**self.plan.settings, "min_expected_gain": self.plan.min_expected_gain}
        return PortionRequest(item, trials, left, settings, list(sys.path))

    def run(self) -> None:
        """Gives out portions until no item is worth one, or the budget is spent."""
        try:
            slow = self._quarantine_slow()
            while True:
                for device in self.devices.free():
                    if device.name not in slow and (item := self._next_item(device)) is not None:
                        self._submit(device, item)
                if not self._in_progress:
                    return
                for item, result in self.devices.results():
                    self._handle_result(item, result)
        finally:
            self.devices.close()

    def _quarantine_slow(self) -> set[str]:
        """Names the devices that do the same work more slowly than others of their kind."""
        slow: list[SlowDevice] = []
        for kind in self.plan.devices:
            item = next(item for item in self.plan.items if item.device == kind)
            slow += find_slow_devices(self.devices.time_defaults(self.make_request(item, 1)))
        self.ledger.quarantine(slow)
        for device in slow:
            log.warning("quarantined: %s", device)
        return {device.where for device in slow}

    def _next_item(self, device: CampaignDevice) -> CampaignItem | None:
        """Returns the item that the device should work on now; None if none is left, or the budget is spent."""
        if not self._granted_trials():
            return None
        return self._ranking.pop(device.device, self._is_open)

    def _is_open(self, state: ItemState) -> bool:
        return not (state.ended or state.failed or state.item.name in self._in_progress)

    def _granted_trials(self) -> int:
        """Trials that may be given out now."""
        budget = self.plan.max_budget
        if budget.seconds is not None and self.ledger.seconds >= budget.seconds:
            return 0
        if budget.trials is None:
            return self.plan.portion
        return max(0, min(self.plan.portion, budget.trials - self.ledger.tried - self._trials_out))

    def _submit(self, device: CampaignDevice, item: CampaignItem) -> None:
        trials = self._granted_trials()
        self._in_progress[item.name] = trials
        self._trials_out += trials
        self.ledger.mark_started(item)
        request = self.make_request(item, trials)
        self._observer.portion_started(device, request)
        self.devices.submit(device, request)

    def _handle_result(self, item: CampaignItem, result: PortionResult | MachineLost) -> None:
        self._trials_out -= self._in_progress.pop(item.name)
        state = self.ledger.states[item.name]
        if isinstance(result, MachineLost):
            lost, in_a_row = state.lost + 1, state.consecutive_losses + 1
            self.ledger.close_interrupted(msgspec.structs.replace(state, lost=lost, consecutive_losses=in_a_row))
            state = self.ledger.states[item.name]
            if state.consecutive_losses >= MAX_LOSSES:
                reason = f"{state.consecutive_losses} machines in a row were lost with it; last: {result.reason}"
                self.ledger.save(msgspec.structs.replace(state, failed=reason))
        else:
            state = state.after(result)
            ended = state.ended or self._ranking.expected_gain.share(state) < self.plan.min_expected_gain
            self.ledger.save(msgspec.structs.replace(state, ended=ended))
        state = self.ledger.states[item.name]
        if self._is_open(state):
            self._ranking.push(state)
        self._observer.portion_finished(state, result)


def find_slow_devices(seconds_by_device: dict[CampaignDevice, float]) -> list[SlowDevice]:
    """Of devices of one kind that did the same work, returns those that are clearly slower than most."""
    if len(seconds_by_device) < MIN_DEVICES:
        return []
    usual = median(seconds_by_device.values())
    now = time.time()
    return [
        SlowDevice(device.name, device.device, seconds, usual, now)
        for device, seconds in seconds_by_device.items()
        if seconds > SLOW_RATIO * usual
    ]
