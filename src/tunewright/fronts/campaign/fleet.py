"""Fleet: a captain on each device of a Ray cluster, which searches there, where the device is at hand."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from tunewright.errors import PluginError, SettingsError
from tunewright.fronts.campaign.driver import Lost, Seat
from tunewright.fronts.campaign.plan import HERE, Item, Plan
from tunewright.fronts.campaign.work import Order, Outcome, pace, worked
from tunewright.pools.ray import cluster
from tunewright.remarks import Remarks
from tunewright.sharing import wire

log = Remarks(__name__)

START_SECONDS = 120.0
"""How long captains may take to be placed and to begin; who comes later joins later."""

GLANCE = 2.0


class Captain:
    """Holds one device, and does portions of a campaign on it; only bytes come and go."""

    def where(self) -> str:
        """This machine and its device, in words that outlast this process."""
        context = ray.get_runtime_context()
        numbers = [one for found in context.get_accelerator_ids().values() for one in found]
        return "#".join([f"{socket.gethostname()}/{context.get_node_id()[:8]}", *numbers])

    def pid(self) -> int:
        """The process, for whoever must end it."""
        return os.getpid()

    def work(self, order: bytes) -> bytes:
        """The outcome of a portion."""
        return wire.encode(worked(wire.decode(order, Order)))

    def pace(self, order: bytes) -> float | None:
        """What an item's default takes here."""
        return pace(wire.decode(order, Order))


@dataclass(eq=False)
class Hand:
    """A captain, its seat once it has begun, and the item it works on."""

    actor: Any
    device: str
    hired: float
    seat: Seat | None = None
    item: Item | None = None


class Fleet:
    """A campaign's devices on a cluster: every one of the kinds that its items name."""

    def __init__(self, plan: Plan) -> None:
        if plan.devices != [HERE] and not plan.settings.get("store"):
            raise SettingsError(
                "a campaign over several machines needs a store that all of them reach: "
                'write [settings] with store = "postgresql://..." into its file'
            )
        cluster.connect()
        self._pending: dict[Any, Hand] = {}
        self._working: dict[Any, Hand] = {}
        self._hands: list[Hand] = []
        for device in plan.devices:
            for _ in range(_demand(device).count()):
                self._hire(device)
        until = time.monotonic() + START_SECONDS
        while self._pending and time.monotonic() < until:
            self._welcome(GLANCE)
        if not self._hands:
            raise PluginError(f"no device became free in {START_SECONDS:.0f} s; see `ray status` for who holds them")

    def _hire(self, device: str) -> None:
        made = ray.remote(**_demand(device).options())(Captain).remote()
        self._pending[made.where.remote()] = Hand(made, device, time.monotonic())

    def _welcome(self, timeout: float) -> None:
        """Take in captains that have begun."""
        begun, _ = ray.wait(list(self._pending), num_returns=1, timeout=timeout)
        for reference in begun:
            self._seat(reference)

    def _seat(self, reference: Any) -> None:
        hand = self._pending.pop(reference)
        try:
            hand.seat = Seat(ray.get(reference), hand.device)
            self._hands.append(hand)
        except RayError as error:
            log.warning("a captain for %s could not begin: %s", hand.device, error)

    def free(self) -> list[Seat]:
        """Devices that have nothing to do; if nobody works, it waits for one that is about to begin."""
        while self._pending and not self._working and not self._hands:
            self._welcome(GLANCE)
            self._drop_late()
        return [hand.seat for hand in self._hands if hand.item is None and hand.seat is not None]

    def _drop_late(self) -> None:
        for reference, hand in list(self._pending.items()):
            if time.monotonic() - hand.hired > START_SECONDS:
                log.warning("no device of kind %s became free again", hand.device)
                del self._pending[reference]
                ray.kill(hand.actor)

    def give(self, seat: Seat, order: Order) -> None:
        """Let a device work on a portion."""
        hand = next(hand for hand in self._hands if hand.seat == seat and hand.item is None)
        hand.item = order.item
        self._working[hand.actor.work.remote(wire.encode(order))] = hand

    def results(self) -> Iterator[tuple[Item, Outcome | Lost]]:
        """What has come to an end; waits for the first."""
        came: list[tuple[Item, Outcome | Lost]] = []
        while self._working and not came:
            heard, _ = ray.wait([*self._working, *self._pending], num_returns=1, timeout=GLANCE)
            for reference in heard:
                if reference in self._pending:
                    self._seat(reference)
                    return  # a device more: there may be work for it
                came.append(self._result(reference))
        yield from came

    def _result(self, reference: Any) -> tuple[Item, Outcome | Lost]:
        hand = self._working.pop(reference)
        item, hand.item = hand.item, None
        assert item is not None
        try:
            return item, wire.decode(ray.get(reference), Outcome)
        except RayActorError as error:
            self._hands.remove(hand)
            ray.kill(hand.actor)  # one that only cannot be reached must not keep its device
            said = str(error).strip().splitlines()
            log.warning("%s is lost: %s", hand.seat and hand.seat.name, said[0] if said else "")
            if int(cluster.offered().get(hand.device, 0.0)) or hand.device == HERE:
                self._hire(hand.device)
            return item, Lost(said[0] if said else "its process died")
        except RayError as error:
            return item, Outcome(failed=str(error).strip().splitlines()[-1])

    def paces(self, order: Order) -> dict[Seat, float]:
        """What the same work takes on each device of the item's kind, all at once."""
        body = wire.encode(order)
        asked = {
            hand.seat: hand.actor.pace.remote(body)
            for hand in self._hands
            if hand.device == order.item.device and hand.seat is not None
        }
        found: dict[Seat, float] = {}
        for seat, reference in asked.items():
            try:
                told = ray.get(reference)
            except RayError as error:
                log.warning("the pace of %s is not known: %s", seat.name, error)
                continue
            if told is not None:
                found[seat] = told
        return found

    def close(self) -> None:
        """Let all captains go."""
        for hand in (*self._hands, *self._pending.values()):
            ray.kill(hand.actor)
        self._hands, self._pending, self._working = [], {}, {}


def _demand(device: str) -> cluster.Demand:
    return cluster.Demand("" if device == HERE else device)
