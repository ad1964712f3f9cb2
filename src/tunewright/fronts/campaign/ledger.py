"""Ledger: where a campaign stands, kept in the store after every portion; whoever goes on reads it there."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.fronts.campaign.plan import Item, Plan
from tunewright.fronts.campaign.work import Outcome
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.remarks import Remarks
from tunewright.sharing import wire
from tunewright.sharing.offers import Shelves, Wants

log = Remarks(__name__)


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item with what was spent on it, what that gained, and whether more is to come.

    `lost` counts machines that were lost while they worked on it, `luckless` those since it last made progress. An item
    that was `begun` and never noted was under way when the campaign was killed.
    """

    STATES: ClassVar[tuple[str, ...]] = ("done", "begun", "waiting", "failed")

    item: Item
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
    luckless: int = 0
    begun: float = 0.0
    where: str = ""

    @property
    def state(self) -> str:
        """In a word."""
        if self.failed:
            return "failed"
        return "done" if self.ended else "begun" if self.portions else "waiting"

    @property
    def saved(self) -> float:
        """Seconds that all calls need less than with the default."""
        if not self.gain or not self.default_seconds:
            return 0.0
        return self.item.calls * self.default_seconds * (1 - 1 / self.gain)

    def after(self, outcome: Outcome) -> Standing:
        """The standing with one more portion."""
        return msgspec.structs.replace(
            self,
            key=outcome.key or self.key,
            portions=self.portions + 1,
            tried=self.tried + outcome.tried,
            seconds=self.seconds + outcome.seconds,
            gain=outcome.gain or self.gain,
            default_seconds=outcome.default_seconds or self.default_seconds,
            remains=outcome.remains,
            ended=outcome.ended,
            failed=outcome.failed,
            luckless=0,
            begun=0.0,
            where=outcome.where,
        )


class Quarantined(msgspec.Struct, frozen=True):
    """A device that is slower than others of its kind: where, how fast it did the same work, and how fast they."""

    where: str
    device: str
    seconds: float
    usual: float
    at: float

    @property
    def said(self) -> str:
        """In words."""
        return f"{self.where} ({self.device}) takes {self.seconds / self.usual:.2f}x as long as others of its kind"


class Ledger:
    """The standings of a plan's items, on a shelf of a store; `tried` and `seconds` are sums over all."""

    def __init__(self, store: Store, plan: Plan) -> None:
        if not isinstance(store, Shelves):
            raise StoreError("this store has no shelves to keep a campaign on; use SQLite, PostgreSQL or Redis")
        self._shelves: Shelves = store
        self.store, self.plan = store, plan
        self._shelf, self._ward = f"campaign {plan.name}", f"quarantine {plan.name}"
        kept = self._shelves.fetch(self._shelf, [item.name for item in plan.items])
        self.standings = {item.name: _read(item, kept.get(item.name)) for item in plan.items}
        self.tried = sum(standing.tried for standing in self.standings.values())
        self.seconds = sum(standing.seconds for standing in self.standings.values())

    def note(self, standing: Standing) -> Standing:
        """Keep a standing; what returns is kept."""
        self._shelves.keep(self._shelf, standing.item.name, wire.encode(standing))
        before = self.standings[standing.item.name]
        self.tried += standing.tried - before.tried
        self.seconds += standing.seconds - before.seconds
        self.standings[standing.item.name] = standing
        return standing

    def begin(self, item: Item) -> None:
        """Note that an item is being worked on."""
        self.note(msgspec.structs.replace(self.standings[item.name], begun=time.time()))

    def quarantine(self, found: Iterable[Quarantined]) -> None:
        """Keep what was found of slow devices."""
        for one in found:
            self._shelves.keep(self._ward, one.where, wire.encode(one))

    @property
    def quarantined(self) -> list[Quarantined]:
        """Slow devices that were found so far."""
        return [wire.decode(body, Quarantined) for _, body in self._shelves.entries(self._ward)]

    def recover(self) -> int:
        """Count in what a run that was killed recorded and never noted; how many trials that were.

        Items that were given up because machine after machine was lost get another chance: who goes on has seen to it.
        """
        for standing in list(self.standings.values()):
            if standing.failed and standing.luckless:
                self.note(msgspec.structs.replace(standing, failed="", luckless=0))
        return sum(self.settle(standing) for standing in list(self.standings.values()) if standing.begun)

    def settle(self, standing: Standing) -> int:
        """Count in the trials of a portion that was begun and will never be noted; how many there are."""
        trials = self._unnoted(standing)
        spent = sum(trial.build_seconds + trial.run_seconds for trial in trials)
        tried, seconds = standing.tried + len(trials), standing.seconds + spent
        luckless = 0 if trials else standing.luckless
        self.note(msgspec.structs.replace(standing, tried=tried, seconds=seconds, luckless=luckless, begun=0.0))
        return len(trials)

    def _unnoted(self, standing: Standing) -> list[Trial]:
        """Trials in the item's journal that are newer than the beginning of the portion."""
        if standing.key is not None:
            keys = [standing.key]
        else:
            keys = [k for k in self.store.keys(standing.item.kernel) if k.signature.dims == standing.item.sizes]
        return [trial for key in keys for trial in self.store.trials(key) if trial.at >= standing.begun]

    def stakes(self) -> dict[str, float]:
        """Seconds that programs spent in calls of an item, where a store noted that (mode=record)."""
        if not isinstance(self.store, Wants):
            return {}
        items: dict[tuple[str, frozenset[tuple[str, int]]], list[Item]] = {}
        for item in self.plan.items:
            items.setdefault((item.kernel, frozenset(item.sizes.items())), []).append(item)
        found: dict[str, float] = {}
        for want in self.store.wanted():
            for item in items.get((want.key.kernel, frozenset(want.key.signature.dims.items())), ()):
                found[item.name] = found.get(item.name, 0.0) + want.seconds
        return found


def _read(item: Item, body: bytes | None) -> Standing:
    """The standing as it was kept, for the item as the file has it now."""
    if body is None:
        return Standing(item)
    try:
        return msgspec.structs.replace(wire.decode(body, Standing), item=item)
    except WireError as error:
        log.warning("%s begins anew, since its standing cannot be read: %s", item.name, error)
        return Standing(item)
