"""The Ray cluster: its machines, their devices, and what Ray is asked for to place an actor."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tunewright.errors import PluginError

DEVICE_TIMEOUT = 10.0
"""Seconds to wait for a device kind that no machine of the cluster has; Ray would wait for ever."""

KIND_FRACTION = 0.001
"""The amount requested of a resource that only names the kind of a machine."""


def connect() -> None:
    """Joins the cluster that RAY_ADDRESS names or that runs on this machine; without one, starts one here."""
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="ERROR")


def live_nodes() -> list[dict[str, Any]]:
    """Returns the machines that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


def device_counts() -> dict[str, float]:
    """Returns how many devices of each kind the cluster has."""
    counts: dict[str, float] = {}
    for node in live_nodes():
        for kind in _kinds(node):
            counts[kind] = counts.get(kind, 0.0) + node["Resources"].get(_unit(node), 0.0)
    return counts


def _kinds(node: dict[str, Any]) -> list[str]:
    """Kinds of a machine's devices, as Ray detected them or as `ray start --resources` declared them."""
    return [name.partition(":")[2] for name in node["Resources"] if name.startswith("accelerator_type:")]


def _unit(node: dict[str, Any]) -> str:
    """The resource that counts a machine's devices; devices that Ray does not know are a `device`."""
    return "GPU" if node["Resources"].get("GPU") else "device"


class DeviceRequest:
    """Where an actor must run: on a machine with a free device of a kind or, without a kind, on this machine."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind

    def options(self) -> dict[str, Any]:
        """Returns the options for `ray.remote`; raises PluginError within seconds if no machine has such a device."""
        if not self.kind:
            here = ray.get_runtime_context().get_node_id()
            return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}
        self.count()
        unit = next(_unit(node) for node in live_nodes() if self.kind in _kinds(node))
        options: dict[str, Any] = {"num_cpus": 0, "resources": {f"accelerator_type:{self.kind}": KIND_FRACTION}}
        if unit == "GPU":
            options["num_gpus"] = 1
        else:
            options["resources"][unit] = 1
        return options

    def count(self, timeout: float = DEVICE_TIMEOUT) -> int:
        """Returns how many such devices the cluster has; a growing cluster gets a few seconds."""
        if not self.kind:
            return 1
        deadline = time.monotonic() + timeout
        while not (count := int(device_counts().get(self.kind, 0.0))):
            if time.monotonic() > deadline:
                kinds = ", ".join(sorted(device_counts())) or "none"
                raise PluginError(
                    f"no machine of this Ray cluster has a device of kind {self.kind!r} (there are: {kinds}); "
                    "start one with: ray start --address=... "
                    f"""--resources='{{"accelerator_type:{self.kind}": 1, "device": 1}}'"""
                )
            time.sleep(0.5)
        return count


def processor_count() -> int:
    """Returns how many processors the machines have for build actors."""
    return int(sum(node["Resources"].get("CPU", 0.0) for node in live_nodes()))
