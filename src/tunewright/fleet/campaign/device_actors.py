"""The devices of a campaign on a Ray cluster: an actor on each device runs the portions given to it."""

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
from tunewright.fleet.campaign.plan import HERE, CampaignItem, CampaignPlan
from tunewright.fleet.campaign.portion import PortionRequest, PortionResult, run_portion, time_default
from tunewright.fleet.campaign.scheduler import CampaignDevice, MachineLost
from tunewright.fleet.ray import cluster
from tunewright.lazy_logging import LazyLogger
from tunewright.stores import serialization

log = LazyLogger(__name__)

START_TIMEOUT = 120.0
"""Seconds that actors may take to be placed and to start; later ones join later."""

POLL_SECONDS = 2.0


class DeviceActor:
    """Holds one device and runs portions of a campaign on it; takes and returns bytes only."""

    def where(self) -> str:
        """Names this machine and its device; the name outlasts the process."""
        context = ray.get_runtime_context()
        numbers = [number for numbers in context.get_accelerator_ids().values() for number in numbers]
        return "#".join([f"{socket.gethostname()}/{context.get_node_id()[:8]}", *numbers])

    def pid(self) -> int:
        """Returns the process id."""
        return os.getpid()

    def run_portion(self, request: bytes) -> bytes:
        """Returns the result of a portion."""
        return serialization.encode(run_portion(serialization.decode(request, PortionRequest)))

    def time_default(self, request: bytes) -> float | None:
        """Returns the seconds of an item's default here."""
        return time_default(serialization.decode(request, PortionRequest))


@dataclass(eq=False)
class ActorHandle:
    """A device actor, its device once it has started, and the item it works on."""

    actor: Any
    kind: str
    requested: float
    device: CampaignDevice | None = None
    item: CampaignItem | None = None


class RayDevicePool:
    """A campaign's devices on a cluster: every one of the kinds that its items name."""

    def __init__(self, plan: CampaignPlan) -> None:
        if plan.devices != [HERE] and not plan.settings.get("store"):
            raise SettingsError(
                "a campaign over several machines needs a store that all of them reach: "
                'write [settings] with store = "postgresql://..." into its file'
            )
        cluster.connect()
        self._pending: dict[Any, ActorHandle] = {}
        self._working: dict[Any, ActorHandle] = {}
        self._handles: list[ActorHandle] = []
        for kind in plan.devices:
            for _ in range(_device_request(kind).count()):
                self._start(kind)
        deadline = time.monotonic() + START_TIMEOUT
        while self._pending and time.monotonic() < deadline:
            self._admit_started(POLL_SECONDS)
        if not self._handles:
            raise PluginError(f"no device became free in {START_TIMEOUT:.0f} s; see `ray status` for who holds them")

    def _start(self, kind: str) -> None:
        actor = ray.remote(**_device_request(kind).options())(DeviceActor).remote()
        self._pending[actor.where.remote()] = ActorHandle(actor, kind, time.monotonic())

    def _admit_started(self, timeout: float) -> None:
        """Admits actors that have started."""
        started, _ = ray.wait(list(self._pending), num_returns=1, timeout=timeout)
        for reference in started:
            self._admit(reference)

    def _admit(self, reference: Any) -> None:
        handle = self._pending.pop(reference)
        try:
            handle.device = CampaignDevice(ray.get(reference), handle.kind)
            self._handles.append(handle)
        except RayError as error:
            log.warning("a device actor for %s could not start: %s", handle.kind, error)

    def free(self) -> list[CampaignDevice]:
        """Returns devices without work; if none works, waits for one that is about to start."""
        while self._pending and not self._working and not self._handles:
            self._admit_started(POLL_SECONDS)
            self._drop_late()
        return [handle.device for handle in self._handles if handle.item is None and handle.device is not None]

    def _drop_late(self) -> None:
        for reference, handle in list(self._pending.items()):
            if time.monotonic() - handle.requested > START_TIMEOUT:
                log.warning("no device of kind %s became free again", handle.kind)
                del self._pending[reference]
                ray.kill(handle.actor)

    def submit(self, device: CampaignDevice, request: PortionRequest) -> None:
        """Starts a portion on a device."""
        handle = next(handle for handle in self._handles if handle.device == device and handle.item is None)
        handle.item = request.item
        self._working[handle.actor.run_portion.remote(serialization.encode(request))] = handle

    def results(self) -> Iterator[tuple[CampaignItem, PortionResult | MachineLost]]:
        """Yields finished portions; waits for the first."""
        results: list[tuple[CampaignItem, PortionResult | MachineLost]] = []
        while self._working and not results:
            answered, _ = ray.wait([*self._working, *self._pending], num_returns=1, timeout=POLL_SECONDS)
            for reference in answered:
                if reference in self._pending:
                    self._admit(reference)
                    return  # one more device: there may be work for it
                results.append(self._result(reference))
        yield from results

    def _result(self, reference: Any) -> tuple[CampaignItem, PortionResult | MachineLost]:
        handle = self._working.pop(reference)
        item, handle.item = handle.item, None
        assert item is not None
        try:
            return item, serialization.decode(ray.get(reference), PortionResult)
        except RayActorError as error:
            self._handles.remove(handle)
            ray.kill(handle.actor)  # one that only cannot be reached must not keep its device
            lines = str(error).strip().splitlines()
            log.warning("%s is lost: %s", handle.device and handle.device.name, lines[0] if lines else "")
            if int(cluster.device_counts().get(handle.kind, 0.0)) or handle.kind == HERE:
                self._start(handle.kind)
            return item, MachineLost(lines[0] if lines else "its process died")
        except RayError as error:
            return item, PortionResult(failed=str(error).strip().splitlines()[-1])

    def time_defaults(self, request: PortionRequest) -> dict[CampaignDevice, float]:
        """Returns the seconds of the same work on each device of the item's kind, all timed at once."""
        body = serialization.encode(request)
        references = {
            handle.device: handle.actor.time_default.remote(body)
            for handle in self._handles
            if handle.kind == request.item.device and handle.device is not None
        }
        seconds_by_device: dict[CampaignDevice, float] = {}
        for device, reference in references.items():
            try:
                seconds = ray.get(reference)
            except RayError as error:
                log.warning("the speed of %s is unknown: %s", device.name, error)
                continue
            if seconds is not None:
                seconds_by_device[device] = seconds
        return seconds_by_device

    def close(self) -> None:
        """Ends all device actors."""
        for handle in (*self._handles, *self._pending.values()):
            ray.kill(handle.actor)
        self._handles, self._pending, self._working = [], {}, {}


def _device_request(kind: str) -> cluster.DeviceRequest:
    return cluster.DeviceRequest("" if kind == HERE else kind)
