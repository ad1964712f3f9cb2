"""The campaign ledger: the state of every item, saved in the store after each portion and read by the next run."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.fleet.campaign.plan import CampaignItem, CampaignPlan
from tunewright.fleet.campaign.portion import PortionResult
from tunewright.lazy_logging import LazyLogger
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.stores import namespaces, serialization
from tunewright.stores.capabilities import KeepsNamespaces, RecordsMisses

log = LazyLogger(__name__)


class ItemState(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item, what was spent on it, what that gained, and whether more is to come.

    `lost` counts machines lost while they worked on it, `consecutive_losses` those since it last made progress. An item
    with `started_at` and no result was in progress when the campaign was killed.
    """

    STATUSES: ClassVar[tuple[str, ...]] = ("done", "begun", "waiting", "failed")

    item: CampaignItem
    key: Key | None = None
    portions: int = 0
    tried: int = 0
    seconds: float = 0.0
    gain: float | None = None
    default_seconds: float | None = None
    remains: float | None = None
    ended: bool = False
    failed: str = ""
    lost: int = 0
    consecutive_losses: int = msgspec.field(default=0, name="luckless")
    started_at: float = msgspec.field(default=0.0, name="begun")
    where: str = ""

    @property
    def status(self) -> str:
        """One of `STATUSES`."""
        if self.failed:
            return "failed"
        return "done" if self.ended else "begun" if self.portions else "waiting"

    @property
    def saved_seconds(self) -> float:
        """Seconds that all calls need less than with the default."""
        if not self.gain or not self.default_seconds:
            return 0.0
        return self.item.calls * self.default_seconds * (1 - 1 / self.gain)

    def after(self, result: PortionResult) -> ItemState:
        """Returns the state after one more portion."""
        return msgspec.structs.replace(
            self,
            key=result.key or self.key,
            portions=self.portions + 1,
            tried=self.tried + result.tried,
            seconds=self.seconds + result.seconds,
            gain=result.gain or self.gain,
            default_seconds=result.default_seconds or self.default_seconds,
            remains=result.remains,
            ended=result.ended,
            failed=result.failed,
            consecutive_losses=0,
            started_at=0.0,
            where=result.where,
        )


class SlowDevice(msgspec.Struct, frozen=True):
    """A device that is slower than others of its kind: the seconds it took for the same work, and what is usual."""

    where: str
    device: str
    seconds: float
    usual: float
    at: float

    def __str__(self) -> str:
        return f"{self.where} ({self.device}) takes {self.seconds / self.usual:.2f}x as long as others of its kind"


class CampaignLedger:
    """The states of a plan's items, in a namespace of a store; `tried` and `seconds` are sums over all."""

    def __init__(self, store: Store, plan: CampaignPlan) -> None:
        if not isinstance(store, KeepsNamespaces):
            raise StoreError("this store cannot keep a campaign; use SQLite, PostgreSQL or Redis")
        self._namespaces: KeepsNamespaces = store
        self.store, self.plan = store, plan
        self._states_name = namespaces.CAMPAIGNS.named(plan.name)
        self._slow_name = namespaces.SLOW_DEVICES.named(plan.name)
        bodies = self._namespaces.fetch(self._states_name, [item.name for item in plan.items])
        self.states = {item.name: _decode(item, bodies.get(item.name)) for item in plan.items}
        self.tried = sum(state.tried for state in self.states.values())
        self.seconds = sum(state.seconds for state in self.states.values())

    def save(self, state: ItemState) -> ItemState:
        """Writes the state of an item to the store."""
        self._namespaces.keep(self._states_name, state.item.name, serialization.encode(state))
        before = self.states[state.item.name]
        self.tried += state.tried - before.tried
        self.seconds += state.seconds - before.seconds
        self.states[state.item.name] = state
        return state

    def mark_started(self, item: CampaignItem) -> None:
        """Records that an item is being worked on."""
        self.save(msgspec.structs.replace(self.states[item.name], started_at=time.time()))

    def quarantine(self, devices: Iterable[SlowDevice]) -> None:
        """Records slow devices."""
        for device in devices:
            self._namespaces.keep(self._slow_name, device.where, serialization.encode(device))

    @property
    def quarantined(self) -> list[SlowDevice]:
        """Slow devices recorded so far."""
        return [serialization.decode(body, SlowDevice) for _, body in self._namespaces.entries(self._slow_name)]

    def recover(self) -> int:
        """Counts in the trials of a run that was killed; returns how many.

        Items that failed because machine after machine was lost are opened again.
        """
        for state in list(self.states.values()):
            if state.failed and state.consecutive_losses:
                self.save(msgspec.structs.replace(state, failed="", consecutive_losses=0))
        return sum(self.close_interrupted(state) for state in list(self.states.values()) if state.started_at)

    def close_interrupted(self, state: ItemState) -> int:
        """Counts in the trials of a portion that will never report a result; returns how many."""
        trials = self._unreported_trials(state)
        spent = sum(trial.build_seconds + trial.run_seconds for trial in trials)
        self.save(
            msgspec.structs.replace(
                state,
                tried=state.tried + len(trials),
                seconds=state.seconds + spent,
                consecutive_losses=0 if trials else state.consecutive_losses,
                started_at=0.0,
            )
        )
        return len(trials)

    def _unreported_trials(self, state: ItemState) -> list[Trial]:
        """Returns the item's recorded trials since the portion started."""
        if state.key is not None:
            keys = [state.key]
        else:
            keys = [key for key in self.store.keys(state.item.kernel) if key.signature.dims == state.item.sizes]
        return [trial for key in keys for trial in self.store.trials(key) if trial.at >= state.started_at]

    def recorded_seconds(self) -> dict[str, float]:
        """Seconds that programs spent in calls of each item, where the store has miss records (mode=record)."""
        if not isinstance(self.store, RecordsMisses):
            return {}
        items: dict[tuple[str, frozenset[tuple[str, int]]], list[CampaignItem]] = {}
        for item in self.plan.items:
            items.setdefault((item.kernel, frozenset(item.sizes.items())), []).append(item)
        seconds: dict[str, float] = {}
        for miss in self.store.misses():
            for item in items.get((miss.key.kernel, frozenset(miss.key.signature.dims.items())), ()):
                seconds[item.name] = seconds.get(item.name, 0.0) + miss.seconds
        return seconds


def _decode(item: CampaignItem, body: bytes | None) -> ItemState:
    """Returns the saved state, for the item as the file has it now."""
    if body is None:
        return ItemState(item)
    try:
        return msgspec.structs.replace(serialization.decode(body, ItemState), item=item)
    except WireError as error:
        log.warning("%s begins anew, since its state cannot be read: %s", item.name, error)
        return ItemState(item)
